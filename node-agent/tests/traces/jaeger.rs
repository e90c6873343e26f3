//! A person finds the slowest block in Jaeger, by its height: of a real CKB node that imports a chain. `make test-traces`.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use ckb_probe_testkit::{
    Folder, PATIENCE, Probe,
    collector::{built, free},
};
use serde_json::Value;

use super::import::imports;

/// Jaeger, which keeps in memory what it takes.
struct Jaeger {
    child: Child,
    otlp: SocketAddr,
    query: SocketAddr,
}

impl Jaeger {
    fn start(folder: &Folder) -> Self {
        let (otlp, query, other) = (free(), free(), free());
        let config = format!(
            "service:\n  extensions: [jaeger_storage, jaeger_query]\n  pipelines:\n    \
             traces: {{receivers: [otlp], exporters: [jaeger_storage_exporter]}}\n  telemetry: {{metrics: {{level: none}}}}\n\
             extensions:\n  jaeger_query: {{storage: {{traces: mem}}, http: {{endpoint: '{query}'}}, grpc: {{endpoint: '{other}'}}}}\n  \
             jaeger_storage: {{backends: {{mem: {{memory: {{max_traces: 100000}}}}}}}}\n\
             receivers: {{otlp: {{protocols: {{http: {{endpoint: '{otlp}'}}}}}}}}\n\
             exporters: {{jaeger_storage_exporter: {{trace_storage: mem}}}}\n"
        );
        let path = folder.path("jaeger.yaml");
        fs::write(&path, config).unwrap();
        let child = Command::new(built("jaeger", "JAEGER").join("bin/jaeger"))
            .arg("--config")
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path("jaeger.log")).unwrap())
            .spawn()
            .unwrap();
        let until = Instant::now() + PATIENCE;
        for address in [otlp, query] {
            while TcpStream::connect(address).is_err() {
                assert!(Instant::now() < until, "Jaeger does not start");
                sleep(Duration::from_millis(50));
            }
        }
        Self { child, otlp, query }
    }

    /// What its API answers.
    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.query).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\nhost: jaeger\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{path}: {answer}");
        serde_json::from_str(body).unwrap()
    }

    /// The traces that a search finds, each its root's attributes and its time in microseconds.
    fn search(&self, terms: &str) -> Vec<(Value, u64)> {
        let found = self.get(&format!("/api/traces?service=ckb&limit=100000&{terms}"));
        let traces = found["data"].as_array().unwrap().iter();
        traces
            .map(|trace| {
                let mut spans = trace["spans"].as_array().unwrap().iter();
                let root = spans
                    .find(|span| span["references"].as_array().is_none_or(Vec::is_empty))
                    .unwrap();
                (root["tags"].clone(), root["duration"].as_u64().unwrap())
            })
            .collect()
    }
}

impl Drop for Jaeger {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn tag(tags: &Value, name: &str) -> Value {
    let mut tags = tags.as_array().unwrap().iter();
    let tag = tags.find(|tag| tag["key"] == name).unwrap();
    tag["value"].clone()
}

/// A folder with a chain that `scripts/build-chain.sh` made: `make test-traces` says which.
fn chain() -> PathBuf {
    std::env::var_os("CKB_PROBE_CHAIN").unwrap().into()
}

#[test]
#[ignore = "imports a chain into a real CKB node, and asks Jaeger: make test-traces"]
fn the_slowest_block_is_found_in_jaeger_by_its_height() {
    let folder = Folder::new();
    let jaeger = Jaeger::start(&folder);
    let chain = chain();
    let mut node = imports(&chain, &folder);
    let endpoint = format!("http://{}", jaeger.otlp);
    let asked = super::every_block(&endpoint);
    let mut probe = Probe::start(node.id(), &asked);
    node.wait().unwrap();
    // It ends with the import.
    let (lines, said) = probe.ended();
    let accepted = lines.iter().filter(|line| line["outcome"] == "accepted");
    let slowest = accepted
        .clone()
        .max_by_key(|line| line["durationNanoseconds"].as_u64())
        .unwrap();
    println!("{} blocks were told; {said}", lines.len());
    println!("the slowest: {slowest}");

    // Whoever knows the height finds the block.
    let height = slowest["height"].as_u64().unwrap();
    let tags = format!("tags=%7B%22ckb_probe.height%22%3A%22{height}%22%7D");
    let found = jaeger.search(&tags);
    let microseconds = slowest["durationNanoseconds"].as_u64().unwrap() / 1000;
    let durations: Vec<u64> = found.iter().map(|(_, duration)| *duration).collect();
    // Jaeger has microseconds.
    let is_it = |duration: &u64| duration.abs_diff(microseconds) <= 1;
    assert!(
        durations.len() == 1 && durations.iter().all(is_it),
        "{durations:?} for {slowest}"
    );
    // Whoever does not finds it as the slowest.
    let found = jaeger.search(&format!(
        "operation=chain%20accepted&minDuration={}us",
        microseconds - 1
    ));
    let heights: Vec<Value> = found
        .iter()
        .map(|(tags, _)| tag(tags, "ckb_probe.height"))
        .collect();
    assert!(heights.contains(&height.into()), "{heights:?}");
    // Each height is there once.
    let all = jaeger.search("operation=chain%20accepted");
    let mut heights: Vec<u64> = all
        .iter()
        .map(|(tags, _)| tag(tags, "ckb_probe.height").as_u64().unwrap())
        .collect();
    heights.sort_unstable();
    let mut told: Vec<u64> = accepted
        .map(|line| line["height"].as_u64().unwrap())
        .collect();
    told.sort_unstable();
    assert_eq!(heights, told);
    assert!(
        said.contains(" were exported to ") && !said.contains("dropped"),
        "{said}"
    );
}
