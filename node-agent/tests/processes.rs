//! `ckb-probe processes` against a process whose children end in every way: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// What each round does: the row, whether it is executed, and how it ends.
const WAYS: [(&str, bool, Option<&str>); 10] = [
    ("p-ok", true, Some("0")),
    ("p-fail", true, Some("3")),
    ("p-term", true, Some("SIGTERM")),
    ("p-segv", true, Some("SIGSEGV")),
    ("p-threads", true, Some("0")),
    ("p-group", true, Some("5")),
    ("p-exec", true, None),
    ("p-after", true, Some("0")),
    ("fixture", false, Some("0")),
    ("fixture", false, Some("127")),
];

/// The folder with the fixture, and the names that it goes by.
fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("processes-{test}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/processes.c");
    let program = folder.join("fixture");
    let status = Command::new("gcc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(status.unwrap().success());
    let executed = WAYS.iter().filter(|(_, executed, _)| *executed);
    let names = executed.map(|(name, ..)| *name);
    for name in names.chain(["p-ping", "p-ping-fail"]) {
        symlink(&program, folder.join(name)).unwrap();
    }
    folder
}

/// The fixture, started by a command that becomes it.
struct Fixture {
    child: Child,
    output: BufReader<ChildStdout>,
    pid: u32,
}

impl Fixture {
    fn start(folder: &Path, by: &[&str]) -> Self {
        let program = folder.join("fixture");
        let mut words = by.iter().copied().chain([program.to_str().unwrap()]);
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let pid = child.id();
        let mut fixture = Self { child, output, pid };
        // It has become the fixture once it answers.
        fixture.order("ping");
        if by.contains(&"--fork") {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            fixture.pid = children.unwrap().trim().parse().unwrap();
        }
        fixture
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    fn order(&mut self, order: &str) {
        self.tell(order);
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), order);
    }

    fn end(mut self) {
        self.tell("end");
        assert_eq!(self.child.wait().unwrap().code(), Some(7));
    }
}

/// `ckb-probe processes` on a process, at work.
struct Probe {
    child: Child,
    lines: Arc<Mutex<Vec<Value>>>,
    reader: thread::JoinHandle<()>,
}

impl Probe {
    fn start(fixture: &mut Fixture, arguments: &[&str]) -> Self {
        let mut child = Command::new(CKB_PROBE)
            .args(["processes", "--pid", &fixture.pid.to_string()])
            .args(["--interval", "200ms"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let output = BufReader::new(child.stdout.take().unwrap());
        let reader = thread::spawn({
            let lines = lines.clone();
            move || {
                for line in output.lines() {
                    let line = serde_json::from_str(&line.unwrap()).unwrap();
                    lines.lock().unwrap().push(line);
                }
            }
        });
        let probe = Self {
            child,
            lines,
            reader,
        };
        // It is attached once it sees something.
        let patience = Instant::now() + Duration::from_secs(60);
        while probe.lines.lock().unwrap().is_empty() {
            assert!(Instant::now() < patience, "it does not attach");
            fixture.order("ping");
            thread::sleep(Duration::from_millis(50));
        }
        probe
    }

    /// After the fixture's end: all that it said, on both outputs.
    fn end(mut self) -> (Vec<Value>, String) {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        let errors = self.child.stderr.as_mut().unwrap();
        errors.read_to_string(&mut said).unwrap();
        self.reader.join().unwrap();
        (
            Arc::into_inner(self.lines).unwrap().into_inner().unwrap(),
            said,
        )
    }
}

/// What the fixture does until it is seen.
fn is_ping(line: &Value) -> bool {
    let command = line["command"].as_str();
    command.is_some_and(|command| command.starts_with("p-ping"))
}

/// How often what was told: by command, what, and code or signal.
fn told(lines: &[Value]) -> BTreeMap<(String, String, String), u64> {
    let mut told = BTreeMap::new();
    for line in lines.iter().filter(|line| !is_ping(line)) {
        let text = |name: &str| match &line[name] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let how = text("code") + &text("signal");
        *told
            .entry((text("command"), text("what"), how))
            .or_default() += 1;
    }
    told
}

/// What there is to tell of so many rounds, and of the fixture's end.
fn truth(rounds: u64) -> BTreeMap<(String, String, String), u64> {
    let mut truth = BTreeMap::new();
    for (command, executed, end) in WAYS {
        let command = || command.to_string();
        if executed {
            truth.insert((command(), "exec".to_string(), String::new()), rounds);
        }
        if let Some(end) = end {
            truth.insert((command(), "end".to_string(), end.to_string()), rounds);
        }
    }
    truth.insert(("fixture".into(), "end".into(), "7".into()), 1);
    truth
}

#[test]
fn every_exec_and_every_end_is_told_or_counted_as_lost() {
    let folder = folder("all");
    let mut fixture = Fixture::start(&folder, &["env"]);
    let probe = Probe::start(&mut fixture, &["--events"]);
    let pid = fixture.pid;
    let began = Instant::now();
    fixture.order("go 1000");
    println!(
        "1,000 rounds of {} processes in {:?}",
        WAYS.len() - 1,
        began.elapsed()
    );
    fixture.end();
    let (lines, said) = probe.end();
    let lost = said.split_once("lost ").map_or(0, |(_, rest)| {
        let (count, _) = rest.split_once(" events").unwrap();
        count.trim().parse().unwrap()
    });
    println!("{lost} events lost");
    let (told, truth) = (told(&lines), truth(1000));
    if lost == 0 {
        assert_eq!(told, truth);
    }
    let sum = |all: &BTreeMap<_, u64>| all.values().sum::<u64>();
    assert_eq!(sum(&told) + lost, sum(&truth), "{said}");
    let last = lines.last().unwrap();
    assert_eq!((&last["code"], &last["notable"]), (&7.into(), &true.into()));
    assert_eq!(last["pid"], pid);
    let notable = lines.iter().filter(|line| line["notable"] == true);
    assert_eq!(notable.count(), 1);
    let exec = lines.iter().find(|line| line["what"] == "exec");
    let exec = exec.unwrap();
    let path = folder.join(exec["command"].as_str().unwrap());
    let arguments = format!("{} {} 'an argument'", path.display(), folder.display());
    assert_eq!(exec["arguments"], arguments);
    assert_eq!(exec["parent"], "fixture");
    assert_eq!(exec["parentPid"], pid);
}

#[test]
fn totals_are_exact_and_lifetimes_are_of_all_that_ended() {
    let folder = folder("totals");
    let mut fixture = Fixture::start(&folder, &["env"]);
    let probe = Probe::start(&mut fixture, &["--json"]);
    fixture.order("go 300");
    fixture.end();
    let (lines, said) = probe.end();
    assert!(!said.contains("counts"), "{said}");
    let mut last = BTreeMap::new();
    for line in &lines {
        last.insert(line["row"].as_str().unwrap(), line);
    }
    for (command, told) in by_command(&truth(300)) {
        let line = last[command.as_str()];
        let sums = &line["total"]["sums"];
        for (name, expected) in &told {
            assert_eq!(sums[*name], *expected, "{command} {name}: {line}");
        }
        if told["ends"] > 0 {
            let lifetime = &line["total"]["distributions"]["lifetime"];
            assert_eq!(lifetime.get("unmeasured"), None, "{line}");
        }
    }
}

/// The same as sums.
fn by_command(
    truth: &BTreeMap<(String, String, String), u64>,
) -> BTreeMap<String, BTreeMap<&'static str, u64>> {
    let mut sums: BTreeMap<String, BTreeMap<&'static str, u64>> = BTreeMap::new();
    for ((command, what, how), count) in truth {
        let row = sums.entry(command.clone()).or_insert_with(|| {
            BTreeMap::from(["execs", "ends", "failures", "kills", "oomKills"].map(|name| (name, 0)))
        });
        let mut add = |name| *row.get_mut(name).unwrap() += count;
        match (what.as_str(), how.as_str()) {
            ("exec", _) => add("execs"),
            (_, how) => {
                add("ends");
                if how.starts_with("SIG") {
                    add("kills");
                } else if how != "0" {
                    add("failures");
                }
            }
        }
    }
    sums
}

#[test]
fn what_belongs_to_a_pod_is_what_is_in_its_namespaces() {
    for (test, by) in [
        ("network", &["unshare", "--net"][..]),
        ("processes", &["unshare", "--pid", "--fork"][..]),
    ] {
        let folder = folder(test);
        let mut fixture = Fixture::start(&folder, by);
        let probe = Probe::start(&mut fixture, &["--events"]);
        // A container beside it, or an exec into its own; and somebody who has nothing to do with it.
        let target = fixture.pid.to_string();
        let entered = Command::new("nsenter")
            .args(["--target", &target, "--net", "--pid"])
            .args(["sh", "-c", "exit 5"])
            .status();
        assert_eq!(entered.unwrap().code(), Some(5));
        let outside = Command::new(folder.join("p-fail")).arg(&folder).status();
        assert_eq!(outside.unwrap().code(), Some(3));
        fixture.order("go 20");
        fixture.end();
        let (lines, said) = probe.end();
        assert!(!said.contains("lost"), "{said}");
        let mut truth = truth(20);
        truth.insert(("sh".into(), "exec".into(), String::new()), 1);
        truth.insert(("sh".into(), "end".into(), "5".into()), 1);
        if test == "network" {
            // Whoever enters the pid namespace forks, and is in the network itself while it waits.
            truth.insert(("nsenter".into(), "end".into(), "5".into()), 1);
        }
        assert_eq!(told(&lines), truth, "{test}");
    }
}

#[test]
fn what_is_not_asked_for_is_not_listed_but_the_own_end_is() {
    let folder = folder("failures");
    let mut fixture = Fixture::start(&folder, &["env"]);
    let failures = Probe::start(&mut fixture, &["--events", "--list", "failures"]);
    let redacted = Probe::start(&mut fixture, &["--events", "--redact-arguments"]);
    fixture.order("go 10");
    fixture.end();
    let (lines, _) = failures.end();
    let mut expected = truth(10);
    expected.retain(|(_, what, how), _| what == "end" && how != "0");
    assert_eq!(told(&lines), expected);
    let (lines, _) = redacted.end();
    assert_eq!(told(&lines), truth(10));
    for line in lines.iter().filter(|line| line["what"] == "exec") {
        assert_eq!(line["arguments"], 3, "{line}");
    }
}

/// A memory control group of 16 MiB.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        let name = format!("ckb-probe-test-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/memory");
        let (parent, limit) = if first.exists() {
            (first, "memory.limit_in_bytes")
        } else {
            (Path::new("/sys/fs/cgroup"), "memory.max")
        };
        let folder = parent.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(limit), "16777216").unwrap();
        Self(folder)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn who_dies_for_lack_of_memory_is_told_from_who_is_killed() {
    let folder = folder("memory");
    let group = Group::new();
    let mut fixture = Fixture::start(&folder, &["env"]);
    let probe = Probe::start(&mut fixture, &["--events"]);
    for _ in 0..5 {
        fixture.order(&format!("oom {}", group.0.display()));
    }
    fixture.end();
    let (lines, _) = probe.end();
    let killed: Vec<&Value> = lines
        .iter()
        .filter(|line| line["signal"] == "SIGKILL")
        .collect();
    assert_eq!(killed.len(), 5);
    assert!(killed.iter().all(|line| line["oom"] == true), "{killed:?}");
}
