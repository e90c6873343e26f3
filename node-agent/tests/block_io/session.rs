//! The command line `ckb-probe block-io` at work.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Command, Stdio},
    thread::JoinHandle,
};

use ckb_probe_crds::Figures;
use serde_json::Value;

const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// Attached, until it is ended.
pub struct Session {
    child: Child,
    errors: BufReader<ChildStderr>,
    output: Option<JoinHandle<Vec<Value>>>,
    /// What it printed, once it has ended.
    pub lines: Vec<Value>,
}

/// A row since the attach.
pub struct Row {
    /// All of it.
    pub all: Figures,
    /// The figures of the row by part.
    pub parts: BTreeMap<String, Figures>,
}

/// The process that runs the tests.
pub fn own_pid() -> u32 {
    std::process::id()
}

/// As Ctrl-C does.
pub fn interrupt(pid: u32) {
    let status = Command::new("kill")
        .args(["-INT", &pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

impl Session {
    /// Rows of a process's node. Returns when everything is counted.
    pub fn begin(pid: u32, arguments: &[&str]) -> Self {
        Self::start(pid, "--json", arguments)
    }

    /// Events.
    pub fn begin_events(pid: u32, arguments: &[&str]) -> Self {
        Self::start(pid, "--events", arguments)
    }

    fn start(pid: u32, how: &str, arguments: &[&str]) -> Self {
        let mut child = Command::new(CKB_PROBE)
            .args([
                "block-io",
                "--pid",
                &pid.to_string(),
                "--on-breach",
                "report",
                how,
            ])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let output = std::thread::spawn(move || {
            let parsed = |line: String| serde_json::from_str(&line).unwrap();
            stdout.lines().map(|line| parsed(line.unwrap())).collect()
        });
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        errors.read_line(&mut said).unwrap();
        assert!(
            said.contains("attached; the figures are of the node's disks: own are"),
            "{said}"
        );
        Self {
            child,
            errors,
            output: Some(output),
            lines: Vec::new(),
        }
    }

    /// Ends it, and returns what it said at its end.
    pub fn end(&mut self) -> String {
        interrupt(self.child.id());
        self.lines = self.output.take().unwrap().join().unwrap();
        let mut said = String::new();
        self.errors.read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }

    /// The names of its rows.
    pub fn rows(&self) -> Vec<String> {
        let names = self
            .lines
            .iter()
            .map(|line| line["row"].as_str().unwrap().to_string());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names.dedup();
        names
    }

    /// A row as it was told last.
    pub fn row(&self, name: &str) -> Option<Row> {
        let line = self.lines.iter().rfind(|line| line["row"] == name)?;
        let figures = |value: &Value| serde_json::from_value(value["total"].clone()).unwrap();
        let parts = line["parts"].as_array().unwrap().iter();
        Some(Row {
            all: figures(line),
            parts: parts
                .map(|part| (part["key"].as_str().unwrap().to_string(), figures(part)))
                .collect(),
        })
    }
}
