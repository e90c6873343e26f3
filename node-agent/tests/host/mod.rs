//! `ckb-probe` on a fixture: a program, compiled here, that does what it is told line by line.
#![allow(
    clippy::panic,
    reason = "it is a part of tests, where that is how to fail"
)]
#![allow(
    dead_code,
    reason = "every file of tests uses a part of it, and each is a program of its own"
)]

pub mod container;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread,
    time::{Duration, Instant},
};

use ckb_probe_crds::Figures;
use serde_json::Value;

pub const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder of its own for each test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ckb-probe-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles one of `tests/fixtures`, without what would make other functions of those that are there.
    pub fn compile(&self, compiler: &str, source: &str, name: &str, options: &[&str]) -> PathBuf {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let program = self.path(name);
        let mut command = Command::new(compiler);
        command
            .args([
                "-O0",
                "-fno-omit-frame-pointer",
                "-fcf-protection=none",
                "-o",
            ])
            .args([&program, &fixtures.join(source)])
            .args(options);
        run(&mut command);
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Runs it to its good end.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// A program that does what it is told.
pub struct Fixture {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Fixture {
    pub fn start(program: &Path) -> Self {
        Self::start_with(program, &[])
    }

    pub fn start_with(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut fixture = Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        // Its libraries are mapped.
        assert_eq!(fixture.tell("ready"), "");
        fixture
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has something done, and waits until it is. What it says to that, after `done`.
    pub fn tell(&mut self, order: &str) -> String {
        self.orders
            .write_all(format!("{order}\n").as_bytes())
            .unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        let answer = answer.trim_end().strip_prefix("done");
        answer.unwrap().trim_start().to_string()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// `ckb-probe`, at work on a process.
pub struct Probe {
    child: Child,
    lines: Receiver<Value>,
}

impl Probe {
    /// Measures every call, whatever that costs, and prints lines of JSON.
    pub fn start(pid: u32, arguments: &[&str]) -> Self {
        let mut child = Command::new(CKB_PROBE)
            .args(arguments)
            .args(["--on-breach", "report", "--interval", "100ms"])
            .args(["--pid", &pid.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    /// The next line that is so, while something is done over and over.
    pub fn line_while(&mut self, wanted: impl Fn(&Value) -> bool, mut act: impl FnMut()) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            act();
            match self.lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) if wanted(&line) => return line,
                Err(RecvTimeoutError::Disconnected) => panic!("{}", self.end().1),
                _ => assert!(Instant::now() < end, "no such line"),
            }
        }
    }

    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits until it prints, which it does when all is attached.
    pub fn is_attached(&mut self) {
        self.line_while(|_| true, || {});
    }

    /// Ends it as Ctrl-C does: the lines that were not taken, and what it said besides.
    fn end(&mut self) -> (Vec<Value>, String) {
        // It may have ended by itself, and said why.
        let _ = rustix::process::kill_process(self.pid(), rustix::process::Signal::INT);
        let mut said = String::new();
        let mut errors = self.child.stderr.take().unwrap();
        std::io::Read::read_to_string(&mut errors, &mut said).unwrap();
        self.child.wait().unwrap();
        (self.lines.iter().collect(), said)
    }

    /// Ends it: each row as it stands at the end, and what was said besides.
    pub fn rows(mut self) -> (Rows, String) {
        let (lines, said) = self.end();
        let lines = lines.into_iter();
        let rows = lines.map(|line| (line["row"].as_str().unwrap().to_string(), Row(line)));
        (Rows(rows.collect()), said)
    }

    /// Ends it: the events that were not taken, and what was said besides.
    pub fn events(mut self) -> (Vec<Value>, String) {
        self.end()
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The rows of a table.
#[derive(Debug)]
pub struct Rows(BTreeMap<String, Row>);

impl Rows {
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// How many calls there were of one.
    pub fn count(&self, row: &str) -> u64 {
        self.0.get(row).map_or(0, |row| row.figure("count"))
    }

    /// The counts of all rows.
    pub fn counts(&self) -> BTreeMap<&str, u64> {
        let rows = self.0.iter();
        rows.map(|(name, row)| (name.as_str(), row.figure("count")))
            .collect()
    }

    pub fn row(&self, name: &str) -> &Row {
        let known = self.names();
        self.0
            .get(name)
            .unwrap_or_else(|| panic!("no row {name} among {known:?}"))
    }
}

/// One of them.
#[derive(Debug)]
pub struct Row(Value);

impl Row {
    /// A figure that is a number.
    pub fn figure(&self, name: &str) -> u64 {
        let figure = self.0["figures"][name].as_str();
        figure.map_or(0, |figure| figure.parse().unwrap())
    }

    /// What was counted in all.
    pub fn total(&self) -> Figures {
        serde_json::from_value(self.0["total"].clone()).unwrap()
    }

    /// Nanoseconds.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let durations = &self.total().distributions["duration"];
        durations.histogram.quantile(quantile).unwrap()
    }

    /// A figure of each of its parts.
    pub fn parts(&self, figure: &str) -> BTreeMap<&str, u64> {
        let parts = self.0["parts"].as_array().unwrap().iter();
        let part = |part: &Value| part["figures"][figure].as_str().unwrap().parse().unwrap();
        parts
            .map(|one| (one["key"].as_str().unwrap(), part(one)))
            .collect()
    }
}

/// What `ckb-probe` says where it cannot measure, after its name.
pub fn refusal(pid: u32, arguments: &[&str]) -> String {
    let output = Command::new(CKB_PROBE)
        .args(arguments)
        .args(["--duration", "100ms", "--pid", &pid.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let said = said.trim_end().strip_prefix("ckb-probe: ");
    said.unwrap().to_string()
}
