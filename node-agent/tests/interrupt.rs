//! Ctrl-C ends it whenever it comes: also in the moment in which something else is due. Ctrl-Z does not leave a target to itself.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _, pipe},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_testkit::{Fixture, Folder, Terminal, ckb_probe, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(30);

/// One test at a time: what one has attached and measures, another would find in its times.
fn in_turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which of two things that are due is done first, is left to chance.
const TRIES: usize = 6;

#[test]
fn an_interrupt_is_not_lost_to_what_is_due_with_it() {
    let _turn = in_turn();
    let folder = Folder::new();
    let mut target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    for _ in 0..TRIES {
        let mut child = Command::new(ckb_probe())
            .args(["syscalls", "--pid", &target.pid().to_string(), "--json"])
            .args(["--interval", "200ms", "--on-breach", "report"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (printed, prints) = channel();
        thread::spawn(move || lines.for_each(|line| drop(printed.send(line))));
        // There is nothing to print before anything was called.
        while prints.recv_timeout(Duration::from_millis(50)).is_err() {
            target.tell("uid");
        }
        kill_process(pid, Signal::STOP).unwrap();
        // The end of an interval is due by then.
        thread::sleep(Duration::from_millis(400));
        kill_process(pid, Signal::INT).unwrap();
        kill_process(pid, Signal::CONT).unwrap();
        ends(&mut child);
    }
}

/// Goes with the test, whatever becomes of that.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Well, and by itself.
fn ends(child: &mut Child) {
    let end = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            child.kill().unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert!(status.success(), "it did not end by itself: {status}");
}

/// As in a pager that shows the first page, or a terminal that is halted.
#[test]
fn who_reads_nothing_keeps_it_neither_from_its_budget_nor_from_ending() {
    let _turn = in_turn();
    let folder = Folder::new();
    let mut target = Fixture::start(&folder.compile("cc", "functions.c", "functions", &[]));
    let pid = target.pid();
    let mut calls = |count: u64| {
        let began = Instant::now();
        target.tell(&format!("alpha_one {count}"));
        began.elapsed()
    };
    let unprobed = (0..4).map(|_| calls(1_000_000)).max().unwrap();
    let mut probe = Killed(
        Command::new(ckb_probe())
            .args(["functions", "--match", "alpha_one", "--threshold", "0s"])
            .args(["--events", "--interval", "200ms", "--pid"])
            .arg(pid.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let child = &mut probe.0;
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let is_heard = thread::spawn(move || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        // And never again, though it could.
        (out, line)
    });
    while !is_heard.is_finished() {
        calls(1);
        thread::sleep(Duration::from_millis(20));
    }
    let (out, _) = is_heard.join().unwrap();
    // So few that each is listed, and more than a pipe has room for.
    for _ in 0..20 {
        calls(50);
        thread::sleep(Duration::from_millis(100));
    }
    let mut probed: Vec<Duration> = (0..8).map(|_| calls(1_000_000)).collect();
    probed.sort();
    // Each of them told would take a hundred times as long.
    assert!(
        probed[4] < 10 * unprobed,
        "{unprobed:?} unprobed: {probed:?}"
    );
    kill_process(Pid::from_child(child), Signal::INT).unwrap();
    ends(child);
    let mut said = String::new();
    let mut errors = child.stderr.take().unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert!(said.contains("nobody read what was printed last"), "{said}");
    drop(out);
}

/// Of a process, as /proc tells it.
fn status_of(pid: u32, what: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    line.unwrap().trim().to_owned()
}

/// How much a process has attached.
fn links_of(pid: u32) -> usize {
    let opened = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let leads = opened.filter_map(|one| std::fs::read_link(one.unwrap().path()).ok());
    let names = leads.map(|to| to.display().to_string());
    let is_link = |name: &String| {
        ["bpf_link", "bpf-link", "perf_event"]
            .iter()
            .any(|of| name.contains(of))
    };
    names.filter(is_link).count()
}

fn is_stopped(pid: u32) -> bool {
    status_of(pid, "State").starts_with('T')
}

/// All that measure for longer than a moment.
const VERBS: [&str; 6] = [
    "syscalls",
    "slow --preset disk",
    "histogram --preset disk --interval 1m",
    "heatmap --preset disk",
    "cost syscalls",
    "record --preset disk -o",
];

/// One of them on a process.
fn verb(words: &str, pid: u32, folder: &Folder, by: &Path) -> Command {
    let mut command = Command::new(by);
    if by != ckb_probe() {
        command.arg(ckb_probe());
    }
    command.args(words.split(' '));
    if words.ends_with("-o") {
        command.arg(folder.path("record"));
    }
    command.args(["--pid", &pid.to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn until_it_knows_of_ctrl_z(pid: u32) {
    wait_until("it knows of Ctrl-Z", || {
        let caught = u64::from_str_radix(&status_of(pid, "SigCgt"), 16).unwrap();
        caught & 1 << (Signal::TSTP.as_raw() - 1) != 0
    });
}

#[test]
fn at_ctrl_z_nothing_stays_attached_and_what_was_attached_is_again_as_it_goes_on() {
    let _turn = in_turn();
    let folder = Folder::new();
    let target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    for words in VERBS {
        let mut command = verb(words, target.pid(), &folder, &ckb_probe());
        // As a shell does.
        let mut probe = Killed(command.process_group(0).spawn().unwrap());
        let child = &mut probe.0;
        let (own, number) = (child.id(), Pid::from_child(child));
        until_it_knows_of_ctrl_z(own);
        wait_until("it has attached something", || links_of(own) > 0);
        for _ in 0..2 {
            kill_process(number, Signal::TSTP).unwrap();
            wait_until("it is stopped", || is_stopped(own));
            assert_eq!(links_of(own), 0, "{words}");
            kill_process(number, Signal::CONT).unwrap();
            wait_until("it is attached again", || links_of(own) > 0);
        }
        kill_process(number, Signal::INT).unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let said: Vec<String> = errors.lines().map_while(Result::ok).collect();
        let suspended = said
            .iter()
            .filter(|line| line.contains("suspended, with nothing attached"));
        assert_eq!(suspended.count(), 2, "{words}: {said:?}");
        drop(probe);
    }
}

#[test]
fn who_reads_nothing_does_not_keep_it_from_being_suspended() {
    let _turn = in_turn();
    let folder = Folder::new();
    let target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    let (reader, mut writer) = pipe().unwrap();
    let mut command = verb("syscalls", target.pid(), &folder, &ckb_probe());
    command.stderr(writer.try_clone().unwrap()).process_group(0);
    let probe = Killed(command.spawn().unwrap());
    let (own, number) = (probe.0.id(), Pid::from_child(&probe.0));
    until_it_knows_of_ctrl_z(own);
    wait_until("it has attached something", || links_of(own) > 0);
    let is_suspended_and_goes_on = || {
        kill_process(number, Signal::TSTP).unwrap();
        wait_until("it is stopped", || is_stopped(own));
        assert_eq!(links_of(own), 0);
        kill_process(number, Signal::CONT).unwrap();
        wait_until("it is attached again", || links_of(own) > 0);
    };
    // More than a pipe has room for.
    let fills = thread::spawn(move || writer.write_all(&vec![b'\n'; 1 << 20]));
    thread::sleep(Duration::from_millis(200));
    is_suspended_and_goes_on();
    assert!(!fills.is_finished());
    // And never will.
    drop(reader);
    assert!(fills.join().unwrap().is_err());
    is_suspended_and_goes_on();
}

#[test]
fn what_is_called_while_it_is_suspended_is_in_no_count_and_that_is_told() {
    let _turn = in_turn();
    let folder = Folder::new();
    let mut target = Fixture::start(&folder.compile("cc", "functions.c", "functions", &[]));
    let [out, number] = ["out", "number"].map(|name| folder.path(name));
    let terminal = Terminal::open(120, 24);
    terminal.run(&format!(
        "sh -c 'echo $$ > {}; exec {} functions --match alpha_one --pid {} --json --interval 200ms --on-breach report > {}'",
        number.display(),
        ckb_probe().display(),
        target.pid(),
        out.display()
    ));
    // What was counted, and whether that is the least that there was.
    let told = || -> Option<(u64, bool)> {
        let text = std::fs::read_to_string(&out).unwrap_or_default();
        let line: Value = serde_json::from_str(text.lines().last()?).ok()?;
        let count = line["figures"]["count"].as_str()?.parse().ok()?;
        Some((count, line["atLeast"].as_bool()?))
    };
    wait_until("it measures", || {
        target.tell("alpha_one 1");
        told().is_some()
    });
    thread::sleep(Duration::from_secs(1));
    let (before, _) = told().unwrap();
    target.tell("alpha_one 200");
    wait_until("it has told of them", || {
        told() == Some((before + 200, false))
    });
    terminal.press("C-z");
    terminal.until("that it is suspended", |seen| {
        seen.contains("ckb-probe: suspended, with nothing attached: fg goes on with it")
    });
    let own = std::fs::read_to_string(&number).unwrap();
    let own: u32 = own.trim().parse().unwrap();
    wait_until("it is stopped", || is_stopped(own));
    assert_eq!(links_of(own), 0);
    target.tell("alpha_one 1000");
    thread::sleep(Duration::from_millis(1200));
    terminal.run("fg");
    wait_until("it is attached again", || links_of(own) > 0);
    target.tell("alpha_one 300");
    wait_until("it has told of them", || {
        told() == Some((before + 500, true))
    });
    terminal.press("C-c");
    wait_until("its end", || !Path::new(&format!("/proc/{own}")).exists());
    assert_eq!(told(), Some((before + 500, true)));
}

#[test]
fn what_its_shell_has_left_behind_is_not_suspended() {
    let _turn = in_turn();
    let folder = Folder::new();
    let target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    let command = format!(
        "{} syscalls --pid {} > /dev/null & echo $!",
        ckb_probe().display(),
        target.pid()
    );
    let mut shell = Command::new("sh");
    let shell = shell.args(["-c", &command]).process_group(0);
    let shell = shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let mut number = String::new();
    let mut out = shell.stdout.take().unwrap();
    out.read_to_string(&mut number).unwrap();
    assert!(shell.wait().unwrap().success());
    let own: u32 = number.trim().parse().unwrap();
    let number = Pid::from_raw(number.trim().parse().unwrap()).unwrap();
    until_it_knows_of_ctrl_z(own);
    kill_process(number, Signal::TSTP).unwrap();
    let errors = BufReader::new(shell.stderr.take().unwrap());
    let mut lines = errors.lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("suspended"));
    let stopped = is_stopped(own);
    // Also where it is stopped, for good.
    kill_process(number, Signal::KILL).unwrap();
    let said = said.unwrap_or_default();
    assert!(said.starts_with("ckb-probe: not suspended: "), "{said}");
    assert!(!stopped);
}

#[test]
fn what_nobody_would_have_go_on_is_not_suspended_and_says_why() {
    let _turn = in_turn();
    let folder = Folder::new();
    let target = Fixture::start(&folder.compile("cc", "syscalls.c", "syscalls", &[]));
    // What looks for a while that is known before is not suspended by anybody.
    let own_session = VERBS.map(|words| (words, PathBuf::from("setsid")));
    for (words, by) in own_session.into_iter().chain([("profile", ckb_probe())]) {
        let mut command = verb(words, target.pid(), &folder, &by);
        let mut probe = Killed(command.spawn().unwrap());
        let child = &mut probe.0;
        let own = child.id();
        until_it_knows_of_ctrl_z(own);
        kill_process(Pid::from_child(child), Signal::TSTP).unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let mut lines = errors.lines().map_while(Result::ok);
        let said = lines.find(|line| line.contains("suspended"));
        assert_eq!(
            said.as_deref(),
            Some(
                "ckb-probe: not suspended: what is attached would stay so, with nobody to keep it within the budget. Ctrl-C ends this; \
                 with & behind it, a command runs in the background"
            ),
            "{words}"
        );
        assert!(!is_stopped(own), "{words}");
        drop(probe);
    }
}
