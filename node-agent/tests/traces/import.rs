//! Blocks of a real CKB node that imports a chain, held against the chain's own file; and what it takes to tell of them. `make test-traces`.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use ckb_probe_crds::Overhead;
use ckb_probe_testkit::{Folder, Probe, ckb_probe, collector::built, is_linked, run, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Bytes of memory that telling of blocks takes beside what `ckb-probe` takes while it waits for a process.
const MOST_MEMORY: u64 = 8_000_000;

/// A folder with a chain of 40,000 blocks that `scripts/build-chain.sh` made: `make test-traces` says which.
pub fn chain() -> PathBuf {
    std::env::var_os("CKB_PROBE_LONG_CHAIN").unwrap().into()
}

/// A real node, which imports a chain into a folder.
pub fn imports(chain: &Path, folder: &Folder) -> Child {
    let data = folder.path("node");
    run(Command::new("cp")
        .arg("-r")
        .arg(chain.join("config"))
        .arg(&data));
    Command::new(built("ckb", "CKB").join("bin/ckb"))
        .args(["import", "-C"])
        .arg(&data)
        .arg(chain.join("blocks.jsonl"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// One that has not begun.
struct Import {
    node: Child,
    _folder: Folder,
}

impl Import {
    fn halted() -> Self {
        let folder = Folder::new();
        let import = Self {
            node: imports(&chain(), &folder),
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

    /// It goes on to its end.
    fn runs(&mut self) {
        self.runs_while(|| ());
    }

    /// The same, and all that time something is looked at.
    fn runs_while(&mut self, mut look: impl FnMut()) {
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

pub fn attached_for_good(probe: u32) {
    // How it attaches is tried out before, by links that go again: after seconds, where the machine is busy.
    let mut since = Instant::now();
    wait_until("what tells of blocks, for good", || {
        if !is_linked(probe) {
            since = Instant::now();
        }
        since.elapsed() > Duration::from_secs(6)
    });
}

/// The number in a line that begins with this word.
fn number_after(text: &str, word: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(word))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// What a container is charged for by a process of this number, but for tables of its pages: pages that are of no file, and what the kernel has of
/// its maps and programs. Pages of its own file are everybody's, and go where memory is short.
pub fn memory(pid: u32) -> u64 {
    let pages = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let own = number_after(&pages, "Anonymous:").unwrap_or(0) << 10;
    let descriptors = fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let said = descriptors.into_iter().flatten().flatten();
    let said = said.filter_map(|one| fs::read_to_string(one.path()).ok());
    // Some are open more than once.
    let in_kernel: BTreeMap<_, _> = said
        .filter_map(|said| {
            let identity = ["map_id:", "prog_id:"].map(|word| number_after(&said, word));
            let is_one = identity.iter().any(Option::is_some);
            is_one.then_some((identity, number_after(&said, "memlock:")?))
        })
        .collect();
    own + in_kernel.values().sum::<u64>()
}

/// What it takes while it has nothing to measure.
fn memory_of_one_that_waits() -> u64 {
    let mut probe = Command::new(ckb_probe())
        .args(["chain", "--wait", "--executable", "no-such-program"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut before, mut since) = (0, Instant::now());
    wait_until("it takes no more", || {
        let now = memory(probe.id());
        if std::mem::replace(&mut before, now) != now {
            since = Instant::now();
        }
        since.elapsed() > Duration::from_secs(2)
    });
    probe.kill().unwrap();
    probe.wait().unwrap();
    before
}

/// In percent, by a table of one interval.
fn estimated_cost(table: &str) -> f64 {
    let costs = table.lines().filter_map(|line| {
        let rest = line.strip_prefix("estimated cost: ")?;
        rest.split('%').next()?.parse().ok()
    });
    let costs: Vec<f64> = costs.collect();
    assert_eq!(costs.len(), 1, "{table}");
    costs[0]
}

/// Tells of the blocks of a process until that ends, which `run` sees to, looking now and then.
pub fn keeps_to_the_budget(process: u32, run: impl FnOnce(&mut dyn FnMut())) {
    let before = memory_of_one_that_waits();
    // Of one interval, which is all of it, there is one estimate.
    let probe = Command::new(ckb_probe())
        .args(["chain", "--interval", "1h", "--pid"])
        .arg(process.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    attached_for_good(probe.id());
    let mut most = memory(probe.id());
    run(&mut || most = most.max(memory(probe.id())));
    let output = probe.wait_with_output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    println!("{before} bytes, {most} at the most; {table}");
    let cost = estimated_cost(&table);
    assert!(
        cost > 0.0 && cost <= Overhead::default().max_percent,
        "{cost}"
    );
    assert!(before > 1_000_000, "{before}");
    let more = most.saturating_sub(before);
    // The buffer that blocks come through is a mebibyte of it.
    assert!((1 << 20..=MOST_MEMORY).contains(&more), "{more}");
}

#[test]
#[ignore = "imports 40,000 blocks into a real CKB node: make test-traces"]
fn to_tell_of_the_blocks_of_an_import_keeps_to_the_budget_and_takes_8_mb_at_most() {
    let mut import = Import::halted();
    keeps_to_the_budget(import.node.id(), |look| import.runs_while(look));
}

#[test]
#[ignore = "imports 40,000 blocks into a real CKB node: make test-traces"]
fn each_block_of_an_import_is_told_once_as_the_chain_has_it_and_none_that_it_has_not() {
    let mut import = Import::halted();
    let asked = ["chain", "--threshold", "0s", "--events"];
    let mut probe = Probe::start(import.node.id(), &asked);
    attached_for_good(probe.pid().as_raw_nonzero().get() as u32);
    import.runs();
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
