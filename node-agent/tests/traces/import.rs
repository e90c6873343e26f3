//! Blocks of a real CKB node that imports a chain, held against the chain's own file. `make test-traces`.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use ckb_probe_testkit::{Folder, Probe, collector::built, is_linked, run, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A folder with a chain of 40,000 blocks that `scripts/build-chain.sh` made: `make test-traces` says which.
fn chain() -> PathBuf {
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
        self.signal(Signal::CONT);
        self.node.wait().unwrap();
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
    // How it attaches is tried out before, by links that go again.
    let mut since = Instant::now();
    wait_until("what tells of blocks, for good", || {
        if !is_linked(probe.pid().as_raw_nonzero().get() as u32) {
            since = Instant::now();
        }
        since.elapsed() > Duration::from_secs(3)
    });
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
