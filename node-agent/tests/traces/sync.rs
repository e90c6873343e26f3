//! Blocks of a real CKB node that syncs a chain from another one, held against what the node itself says of them; and what it takes to tell of
//! them. `make test-traces`.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use ckb_probe_testkit::{
    Folder, Probe,
    collector::{built, free},
    run, wait_until,
};
use serde_json::{Value, json};

use super::import::{attached_for_good, chain, keeps_to_the_budget};

/// What is synced, of a chain of 40,000: some ten seconds' work.
const BLOCKS: u64 = 5000;

/// What is mined when all of these are there: they are relayed, one by one.
const RELAYED: u64 = 20;

/// A real node of that chain, which answers by RPC.
struct Node {
    child: Child,
    rpc: SocketAddr,
    peers: SocketAddr,
    _folder: Folder,
}

impl Node {
    /// One that has so many blocks from the beginning.
    fn with(blocks: u64) -> Self {
        let (folder, chain) = (Folder::new(), chain());
        let data = folder.path("node");
        run(Command::new("cp")
            .arg("-r")
            .arg(chain.join("config"))
            .arg(&data));
        let (rpc, peers) = (free(), free());
        configure(&data.join("ckb.toml"), rpc, peers);
        let ckb = built("ckb", "CKB").join("bin/ckb");
        if blocks > 0 {
            let part = folder.path("blocks.jsonl");
            first_blocks(&chain.join("blocks.jsonl"), blocks, &part);
            run(Command::new(&ckb)
                .args(["import", "-C"])
                .arg(&data)
                .arg(&part));
        }
        let child = Command::new(&ckb)
            .args(["run", "-C"])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let node = Self {
            child,
            rpc,
            peers,
            _folder: folder,
        };
        wait_until("the node answers", || TcpStream::connect(rpc).is_ok());
        node
    }

    /// One to sync from.
    fn with_all() -> Self {
        let node = Self::with(BLOCKS);
        // Who has no block of the last 24 hours takes itself for one that syncs, and tells others nothing.
        node.mine();
        assert_eq!(node.tip(), BLOCKS + 1);
        node
    }

    fn ask(&self, method: &str, parameters: &Value) -> Value {
        let body = json!({"id": 1, "jsonrpc": "2.0", "method": method, "params": parameters});
        let body = body.to_string();
        let mut stream = TcpStream::connect(self.rpc).unwrap();
        write!(
            stream,
            "POST / HTTP/1.0\r\nhost: ckb\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let answer: Value = serde_json::from_str(body).unwrap();
        assert_eq!(answer.get("error"), None, "{method}: {answer}");
        answer["result"].clone()
    }

    fn tip(&self) -> u64 {
        number(&self.ask("get_tip_block_number", &json!([])))
    }

    fn mine(&self) {
        self.ask("generate_block", &json!([]));
    }

    fn connects(&self, to: &Self) {
        let peer = to.ask("local_node_info", &json!([]))["node_id"].clone();
        let address = format!("/ip4/127.0.0.1/tcp/{}", to.peers.port());
        self.ask("add_node", &json!([peer, address]));
    }

    /// It has as many as the other one, which it has them from, and all that time something is looked at.
    fn syncs_from(&self, other: &Self, mut look: impl FnMut()) {
        let last = other.tip();
        let (mut tip, mut since) = (self.tip(), Instant::now());
        self.connects(other);
        while tip < last {
            look();
            sleep(Duration::from_millis(50));
            let before = std::mem::replace(&mut tip, self.tip());
            if tip > before {
                since = Instant::now();
            }
            // Where the machine is busy it takes the other one for too slow, and lets go of it.
            if since.elapsed() > Duration::from_secs(10) {
                let states = [self, other].map(|one| one.ask("sync_state", &json!([])));
                println!("{tip} of {last} blocks: {states:?}");
                self.connects(other);
                since = Instant::now();
            }
        }
        assert_eq!(tip, last);
    }

    /// What it says of each of its blocks but the first, by height: the hash, and how many transactions.
    fn blocks(&self) -> Vec<(u64, String, u64)> {
        let heights = 1..=self.tip();
        let blocks = heights.map(|height| {
            let block = self.ask("get_block_by_number", &json!([format!("{height:#x}")]));
            let hash = block["header"]["hash"].as_str().unwrap().to_owned();
            let transactions = block["transactions"].as_array().unwrap().len() as u64;
            (number(&block["header"]["number"]), hash, transactions)
        });
        blocks.collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn number(said: &Value) -> u64 {
    let digits = said.as_str().unwrap().trim_start_matches("0x");
    u64::from_str_radix(digits, 16).unwrap()
}

/// Addresses of its own, and blocks on demand.
fn configure(file: &Path, rpc: SocketAddr, peers: SocketAddr) {
    let mut config = fs::read_to_string(file).unwrap();
    for (from, to) in [
        (
            "\nlisten_address = \"127.0.0.1:18114\"\n",
            format!("\nlisten_address = \"{rpc}\"\n"),
        ),
        (
            "/ip4/0.0.0.0/tcp/0",
            format!("/ip4/{}/tcp/{}", peers.ip(), peers.port()),
        ),
        (
            "\nmodules = [",
            "\nmodules = [\"IntegrationTest\", ".to_owned(),
        ),
        (
            "\n[block_assembler]\n",
            "\n[block_assembler]\nupdate_interval_millis = 0\n".to_owned(),
        ),
    ] {
        assert_eq!(config.matches(from).count(), 1, "{from:?}");
        config = config.replace(from, &to);
    }
    fs::write(file, config).unwrap();
}

/// The lines of the first block of a chain, which each node has, and of so many others.
fn first_blocks(chain: &Path, blocks: u64, into: &Path) {
    let lines = BufReader::new(fs::File::open(chain).unwrap()).lines();
    let lines: Vec<String> = lines
        .take(blocks as usize + 1)
        .map(Result::unwrap)
        .collect();
    assert_eq!(lines.len() as u64, blocks + 1);
    fs::write(into, lines.join("\n") + "\n").unwrap();
}

#[test]
#[ignore = "has a real CKB node sync from another: make test-traces"]
fn each_block_that_a_node_syncs_or_is_relayed_is_told_once_as_it_has_it_and_none_that_it_has_not() {
    let (all, node) = (Node::with_all(), Node::with(0));
    let asked = ["chain", "--threshold", "0s", "--events"];
    let probe = Probe::start(node.child.id(), &asked);
    attached_for_good(probe.pid().as_raw_nonzero().get() as u32);
    node.syncs_from(&all, || ());
    for _ in 0..RELAYED {
        all.mine();
        node.syncs_from(&all, || ());
    }
    assert_eq!(node.tip(), BLOCKS + 1 + RELAYED);
    let (lines, said) = probe.events();
    println!("{} blocks were told; {said}", lines.len());
    let mut told: Vec<(u64, String, u64)> = Vec::new();
    for line in &lines {
        // Neither reorganised, nor of a side branch.
        assert_eq!(line["outcome"], "accepted", "{line}");
        // They are verified, as those that are mined are.
        let [verified, took] = ["verificationNanoseconds", "durationNanoseconds"]
            .map(|name| line[name].as_u64().unwrap());
        assert!(0 < verified && verified <= took, "{line}");
        let hash = line["hash"].as_str().unwrap().to_owned();
        let [height, transactions] =
            ["height", "transactions"].map(|name| line[name].as_u64().unwrap());
        told.push((height, hash, transactions));
    }
    told.sort();
    let heights: BTreeSet<u64> = told.iter().map(|(height, ..)| *height).collect();
    let missing: Vec<u64> = (1..=node.tip())
        .filter(|height| !heights.contains(height))
        .collect();
    assert_eq!(missing, [0; 0], "{said}");
    assert_eq!(told, node.blocks());
    // Both have the same chain.
    let hash = |node: &Node| node.ask("get_tip_header", &json!([]))["hash"].clone();
    assert_eq!(hash(&node), hash(&all));
}

#[test]
#[ignore = "has a real CKB node sync from another: make test-traces"]
fn to_tell_of_the_blocks_that_a_node_syncs_keeps_to_the_budget_and_takes_8_mb_at_most() {
    let (all, mut node) = (Node::with_all(), Node::with(0));
    keeps_to_the_budget(node.child.id(), |look| {
        node.syncs_from(&all, look);
        node.child.kill().unwrap();
    });
}
