//! The command line `ckb-probe`, at work on a process.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, RecvTimeoutError, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ckb_probe_crds::Figures;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{PATIENCE, run, wait_until};

/// Where it is: beside the folder of the test that asks.
///
/// # Panics
/// When a test is nowhere.
pub fn ckb_probe() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("ckb-probe")
}

/// Whether functions can be attached to by this tier on the kernel that is there.
///
/// # Panics
/// When `ckb-probe` does not run.
pub fn works(tier: &str) -> bool {
    let check = Command::new(ckb_probe())
        .args(["check", "--tier", tier])
        .output();
    check.unwrap().status.success()
}

/// The stacks of this profile and their weights, as `ckb-probe render` writes them in lines.
///
/// # Panics
/// When it does not.
pub fn folded(profile: &Path) -> String {
    let drawn = profile.with_extension("folded");
    run(Command::new(ckb_probe())
        .arg("render")
        .arg(profile)
        .arg("-o")
        .arg(&drawn));
    fs::read_to_string(drawn).unwrap()
}

/// `ckb-probe`, at work on a process.
pub struct Probe {
    child: Child,
    lines: Receiver<Value>,
    /// What it says beside these, so far.
    said: Arc<Mutex<String>>,
    listener: Option<JoinHandle<()>>,
}

impl Probe {
    /// Measures every call, whatever that costs, unless the arguments say what then, and prints lines of JSON.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(pid: u32, arguments: &[&str]) -> Self {
        Self::start_with(pid, arguments, &[])
    }

    /// The same with these variables set.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_with(pid: u32, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        let unless_said =
            |option: &'static str, value: &'static str| match arguments.contains(&option) {
                true => vec![],
                false => vec![option, value],
            };
        let mut child = Command::new(ckb_probe())
            .envs(variables.iter().copied())
            .args(arguments)
            .args(unless_said("--on-breach", "report"))
            .args(unless_said("--interval", "100ms"))
            .args(["--pid", &pid.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(serde_json::from_str(&line).unwrap()).is_err() {
                    break;
                }
            }
        });
        let said = Arc::new(Mutex::new(String::new()));
        let heard = said.clone();
        let listener = thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                *heard.lock().unwrap() += &(line + "\n");
            }
        });
        Self {
            child,
            lines,
            said,
            listener: Some(listener),
        }
    }

    /// The next line that is so, while something is done over and over.
    ///
    /// # Panics
    /// When there is no such line.
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

    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Waits until it prints, which it does when all is attached.
    pub fn is_attached(&mut self) {
        self.line_while(|_| true, || {});
    }

    /// Waits until it says this beside what it prints.
    pub fn says(&self, text: &str) {
        wait_until(text, || self.said.lock().unwrap().contains(text));
    }

    /// Ends it as Ctrl-C does: the lines that were not taken, and what it said besides.
    fn end(&mut self) -> (Vec<Value>, String) {
        // It may have ended by itself, and said why.
        let _ = kill_process(self.pid(), Signal::INT);
        self.ended()
    }

    /// Waits until it has ended: the lines that were not taken, and what it said besides.
    ///
    /// # Panics
    /// When it was ended before.
    pub fn ended(&mut self) -> (Vec<Value>, String) {
        self.child.wait().unwrap();
        self.listener.take().unwrap().join().unwrap();
        (
            self.lines.iter().collect(),
            self.said.lock().unwrap().clone(),
        )
    }

    /// Ends it: each row as it stands at the end, and what was said besides.
    ///
    /// # Panics
    /// When it prints something else.
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
    /// What they are called.
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

    /// One of them.
    ///
    /// # Panics
    /// When it is not there.
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

    /// What all its parts were counted to have done.
    pub fn totals(&self) -> BTreeMap<&str, Figures> {
        let parts = self.0["parts"].as_array().unwrap().iter();
        let total = |part: &Value| serde_json::from_value(part["total"].clone()).unwrap();
        parts
            .map(|one| (one["key"].as_str().unwrap(), total(one)))
            .collect()
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
    let output = Command::new(ckb_probe())
        .args(arguments)
        .args(["--duration", "100ms", "--pid", &pid.to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let said = said.trim_end().strip_prefix("ckb-probe: ");
    said.unwrap().to_string()
}
