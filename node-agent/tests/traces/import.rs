//! Blocks of a real CKB node that imports a chain, held against the chain's own file; and what it takes to tell of them. `make test-traces`.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    thread::sleep,
    time::Duration,
};

use ckb_probe_testkit::{Folder, Probe, ckb_probe, collector::built, is_linked, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Of what it takes to tell of blocks, in bytes, beside what it takes to be there.
const MOST_MEMORY: u64 = 8_000_000;

/// A folder with a chain of 40,000 blocks that `scripts/build-chain.sh` made: `make test-traces` says which.
fn chain() -> PathBuf {
    std::env::var_os("CKB_PROBE_LONG_CHAIN").unwrap().into()
}

/// A node that has not begun to import a chain.
struct Import {
    node: Child,
    _folder: Folder,
}

impl Import {
    fn halted() -> Self {
        let folder = Folder::new();
        let (chain, data) = (chain(), folder.path("node"));
        let copied = Command::new("cp")
            .arg("-r")
            .arg(chain.join("config"))
            .arg(&data)
            .status();
        assert!(copied.unwrap().success());
        let node = Command::new(built("ckb", "CKB").join("bin/ckb"))
            .args(["import", "-C"])
            .arg(&data)
            .arg(chain.join("blocks.jsonl"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let import = Self {
            node,
            _folder: folder,
        };
        // It opens a database first, and has its libraries before that.
        let maps = format!("/proc/{}/maps", import.node.id());
        wait_until("libraries of the node", || {
            fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("libstdc++"))
        });
        import.signal(Signal::STOP);
        import
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.node), signal).unwrap();
    }

    /// It goes on to its end, and all that time something is looked at.
    fn runs(&mut self, mut look: impl FnMut()) {
        self.signal(Signal::CONT);
        while self.node.try_wait().unwrap().is_none() {
            look();
            sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        drop(self.node.kill());
        drop(self.node.wait());
    }
}

/// What the chain's file says of a block.
#[derive(Debug, PartialEq)]
struct Block {
    hash: String,
    transactions: u64,
}

/// All but the first, which no node imports: each has it.
fn blocks(chain: &Path) -> BTreeMap<u64, Block> {
    let file = fs::File::open(chain.join("blocks.jsonl")).unwrap();
    let blocks = BufReader::new(file).lines().map(|line| {
        let block: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let header = &block["header"];
        let number = header["number"].as_str().unwrap();
        let number = u64::from_str_radix(number.trim_start_matches("0x"), 16).unwrap();
        let block = Block {
            hash: header["hash"].as_str().unwrap().to_owned(),
            transactions: block["transactions"].as_array().unwrap().len() as u64,
        };
        (number, block)
    });
    blocks.filter(|(number, _)| *number > 0).collect()
}

#[test]
#[ignore = "imports 40,000 blocks into a real CKB node: make test-traces"]
fn each_block_of_an_import_is_told_once_as_the_chain_has_it_and_none_that_it_has_not() {
    let mut import = Import::halted();
    let asked = ["chain", "--threshold", "0s", "--events"];
    let mut probe = Probe::start(import.node.id(), &asked);
    wait_until("what tells of blocks", || {
        is_linked(probe.pid().as_raw_nonzero().get() as u32)
    });
    // How it attaches is tried out before, by links that go again.
    sleep(Duration::from_secs(3));
    import.runs(|| {});
    let (lines, said) = probe.ended();
    let mut told: BTreeMap<u64, Block> = BTreeMap::new();
    for line in &lines {
        assert_eq!(line["outcome"], "accepted", "{line}");
        let block = Block {
            hash: line["hash"].as_str().unwrap().to_owned(),
            transactions: line["transactions"].as_u64().unwrap(),
        };
        let before = told.insert(line["height"].as_u64().unwrap(), block);
        assert_eq!(before, None, "{line}");
    }
    println!("{} blocks were told; {said}", told.len());
    let chain = blocks(&chain());
    let missing: Vec<&u64> = chain
        .keys()
        .filter(|number| !told.contains_key(number))
        .collect();
    assert_eq!(missing, [&0_u64; 0], "{said}");
    assert_eq!(told, chain);
}

/// What a kind of measuring takes of an import, within the budget that it has by default.
struct Taken {
    /// The last estimate of what it costs the node, in percent of its CPU time.
    cost: f64,
    /// Resident at its highest, in bytes.
    memory: u64,
}

fn taken(asked: &[&str]) -> Taken {
    let mut import = Import::halted();
    let mut probe = Command::new(ckb_probe())
        .args(asked)
        .args(["--interval", "1s", "--pid", &import.node.id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("it attaches", || is_linked(probe.id()));
    sleep(Duration::from_secs(3));
    let printed = printed(probe.stdout.take().unwrap());
    let status = format!("/proc/{}/status", probe.id());
    let mut memory = 0;
    import.runs(|| {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("VmHWM:"));
        let highest = lines.next().and_then(|rest| rest.split_whitespace().next());
        let highest = highest.and_then(|number| number.parse::<u64>().ok());
        memory = memory.max(highest.unwrap_or(0) << 10);
    });
    probe.wait().unwrap();
    let text = printed.join().unwrap();
    let costs = text.lines().filter_map(|line| {
        let rest = line.strip_prefix("estimated cost: ")?;
        rest.split('%').next()?.parse().ok()
    });
    let costs: Vec<f64> = costs.collect();
    println!("{asked:?}: {memory} bytes, costs {costs:?}");
    Taken {
        cost: *costs.last().unwrap(),
        memory,
    }
}

fn printed(mut output: ChildStdout) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        // What is no text was printed by somebody else.
        let _ = output.read_to_string(&mut text);
        text
    })
}

#[test]
#[ignore = "imports 40,000 blocks into a real CKB node, twice: make test-traces"]
fn to_tell_of_the_blocks_of_an_import_keeps_to_the_budget_and_takes_little_memory() {
    let budget = ckb_probe_crds::Overhead::default().max_percent;
    let nothing = taken(&["rocksdb", "--operations", "WalSync", "--no-health"]);
    let blocks = taken(&["chain"]);
    assert!(
        blocks.cost > 0.0 && blocks.cost <= budget,
        "{}",
        blocks.cost
    );
    let more = blocks.memory.saturating_sub(nothing.memory);
    assert!(more <= MOST_MEMORY, "{more}");
}
