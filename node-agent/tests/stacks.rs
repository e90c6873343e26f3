//! `ckb-probe profile` and `ckb-probe threads` on a program that spends its time in a known way: on this machine's kernel, as
//! root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use ckb_probe_testkit::{
    Container, Fixture, Folder, Probe, assert_begins, assert_contains, ckb_probe, folded,
    is_linked, refusal, run, wait_until, words,
};
use rustix::process::{Pid, Signal, kill_process};

/// How often each thread has been switched to and from, where all of them are asleep.
fn switches(pid: u32) -> Option<Vec<String>> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |thread: fs::DirEntry| {
        let status = fs::read_to_string(thread.path().join("status")).ok()?;
        let counts = status.lines().filter(|line| line.contains("_switches:"));
        let counts = counts.collect::<Vec<_>>().join(" ");
        status.contains("State:\tS").then_some(counts)
    };
    threads.flatten().map(of).collect()
}

/// Waits until all of its threads are where they wait for good.
fn settle(fixture: &Fixture) {
    let mut before = None;
    wait_until("threads that stay asleep", || {
        let now = switches(fixture.pid());
        now.is_some() && now == std::mem::replace(&mut before, now.clone())
    });
}

/// Waits until a process holds so many links of BPF programs, and has looked around itself.
fn samples(sampling: &Child, links: usize) {
    let held = || {
        let descriptors = fs::read_dir(format!("/proc/{}/fdinfo", sampling.id()));
        let descriptors = descriptors.into_iter().flatten().flatten();
        let said = descriptors.filter_map(|one| fs::read_to_string(one.path()).ok());
        said.filter(|said| said.contains("link_id:")).count()
    };
    wait_until("a sampler that is attached", || held() == links);
    thread::sleep(Duration::from_millis(500));
}

/// Samples who runs, until the process ends; it has begun.
fn sampling(fixture: &Fixture) -> Child {
    sampling_at(fixture, 999)
}

fn sampling_at(fixture: &Fixture, frequency: u32) -> Child {
    let sampling = Command::new(ckb_probe())
        .args(["profile", "--mode", "cpu", "--frequency"])
        .arg(frequency.to_string())
        .args(["--duration", "10m", "--pid", &fixture.pid().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("a sampler that is attached", || is_linked(sampling.id()));
    sampling
}

fn fixture(folder: &Folder) -> PathBuf {
    folder.compile_optimised("stacks")
}

/// Of a line of the file: the thread, the calls from the outermost on, and how much.
struct Line {
    thread: String,
    calls: Vec<String>,
    weight: f64,
}

fn lines(folded: &str) -> Vec<Line> {
    let line = |line: &str| {
        let (stack, weight) = line.rsplit_once(' ').unwrap();
        let mut calls = stack.split(';').map(str::to_string);
        Line {
            thread: calls.next().unwrap(),
            calls: calls.collect(),
            weight: weight.parse().unwrap(),
        }
    };
    folded.lines().map(line).collect()
}

/// What part of a thread's time is in stacks that `name` tells by, in percent.
fn shares(
    lines: &[Line],
    thread: &str,
    name: impl Fn(&Line) -> Option<&'static str>,
) -> BTreeMap<&'static str, f64> {
    let own = || lines.iter().filter(|line| line.thread == thread);
    let all: f64 = own().map(|line| line.weight).sum();
    let mut shares = BTreeMap::new();
    for line in own() {
        *shares.entry(name(line).unwrap_or("other")).or_default() += 100.0 * line.weight / all;
    }
    shares
}

fn is_near(shares: &BTreeMap<&str, f64>, known: &[(&str, f64)]) {
    for (name, share) in known {
        let found = shares.get(name).copied().unwrap_or_default();
        assert!(
            (found - share).abs() <= 3.0,
            "{name}: {share} %, {shares:?}"
        );
    }
}

fn probe(fixture: &Fixture, arguments: &[&str]) -> Output {
    let mut command = Command::new(ckb_probe());
    command
        .args(arguments)
        .args(["--pid", &fixture.pid().to_string()]);
    run(&mut command)
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn time_on_a_cpu_is_told_by_function_and_the_calls_that_led_there() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let sampling = sampling(&fixture);
    fixture.tell("burn 8");
    // It ends with the process.
    drop(fixture);
    let output = sampling.wait_with_output().unwrap();
    let (folded, summary) = said(&output);
    assert_eq!(output.status.code(), Some(0), "{summary}");
    let lines = lines(&folded);
    let burnt = ["heavy", "middling", "light"];
    let by = |line: &Line| {
        burnt
            .into_iter()
            .find(|name| line.calls.iter().any(|call| call == name))
    };
    let shares = shares(&lines, "burner", by);
    is_near(
        &shares,
        &[("heavy", 70.0), ("middling", 20.0), ("light", 10.0)],
    );
    let complete = |line: &&Line| line.calls.first().is_none_or(|call| call != "[truncated]");
    let whole: f64 = lines.iter().filter(complete).map(|line| line.weight).sum();
    let all: f64 = lines.iter().map(|line| line.weight).sum();
    assert!(all > 500.0, "{all} samples: {summary}");
    assert!(
        whole / all >= 0.99,
        "{whole} of {all} are complete: {summary}"
    );
    for line in lines
        .iter()
        .filter(|line| line.calls.iter().any(|call| call == "heavy"))
    {
        let at = line.calls.iter().position(|call| call == "heavy").unwrap();
        // `burn` may have become a part of its one caller.
        assert!(
            ["burn", "burner"].contains(&line.calls[at - 1].as_str()),
            "{:?}",
            line.calls
        );
    }
}

/// A number of the summary that stands before these words.
fn number_before(summary: &str, words: &str) -> f64 {
    let (before, _) = summary.split_once(words).unwrap();
    let number = before.rsplit([' ', '\n', '(']).next().unwrap();
    number.parse().unwrap()
}

#[test]
fn who_runs_for_moments_on_an_idle_cpu_weighs_as_much_as_it_ran() {
    if thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("one CPU: none is idle while the other is not");
        return;
    }
    let folder = Folder::new();
    let mut fixture = Fixture::start(&fixture(&folder));
    let sampling = sampling_at(&fixture, 99);
    // The iterator over what is to be named, and the tick.
    samples(&sampling, 2);
    let told = fixture.tell("bursts 40");
    let used: Vec<f64> = told
        .split(' ')
        .map(|nanoseconds| nanoseconds.parse::<f64>().unwrap() / 1e9)
        .collect();
    // It ends with the process.
    drop(fixture);
    let (folded, summary) = said(&sampling.wait_with_output().unwrap());
    let lines = lines(&folded);
    let of = |thread: &str| -> f64 {
        let own = lines.iter().filter(|line| line.thread == thread);
        own.map(|line| line.weight).sum()
    };
    let (steady, bursts) = (of("steady"), of("bursts"));
    let told = 100.0 * bursts / (steady + bursts);
    let truth = 100.0 * used[1] / (used[0] + used[1]);
    println!("used {used:?} s; {truth:.2} % are of bursts, told {told:.2} %; {summary}");
    assert!(
        (told - truth).abs() < 1.0,
        "{truth:.2} %, told {told:.2} %: {summary}"
    );
    // Its clock, as it reads it itself; and what samples stand for without it.
    let clock = number_before(&summary, " s on a CPU by its clock");
    assert!((clock / used[2] - 1.0).abs() < 0.03, "{used:?}: {summary}");
    let sampled = number_before(&summary, " % of it by the samples");
    assert!((sampled - 100.0).abs() < 3.0, "{used:?}: {summary}");
}

/// What is said of the memory that a process touches while it does this: megabytes that were touched for the first time; and the
/// summary.
fn touched(fixture: &mut Fixture, order: &str) -> (f64, String) {
    let sampling = Command::new(ckb_probe())
        .args(["profile", "--mode", "memory", "--duration", "10m"])
        .args(["--pid", &fixture.pid().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The iterator over what is to be named, and the faults of the process and of the kernel on its behalf.
    samples(&sampling, 3);
    fixture.tell(order);
    kill_process(Pid::from_child(&sampling), Signal::INT).unwrap();
    let (_, summary) = said(&sampling.wait_with_output().unwrap());
    println!("{order}: {summary}");
    (
        number_before(&summary, " MB touched for the first time"),
        summary,
    )
}

const MEGABYTES: f64 = 1.048_576;

#[test]
fn a_page_that_is_written_back_and_written_again_is_touched_once() {
    let folder = Folder::new();
    let mut fixture = Fixture::start(&fixture(&folder));
    let file = folder.path("shared");
    let order = format!("rewrite 64 {}", file.display());
    let (touched, summary) = touched(&mut fixture, &order);
    let ratio = touched / (64.0 * MEGABYTES);
    assert!((0.95..1.05).contains(&ratio), "{summary}");
}

#[test]
fn a_page_of_a_file_that_the_process_writes_for_itself_is_copied() {
    let folder = Folder::new();
    let mut fixture = Fixture::start(&fixture(&folder));
    let file = folder.path("private");
    let order = format!("copy 16 {}", file.display());
    let (touched, summary) = touched(&mut fixture, &order);
    // Up to sixteen pages come with one that is read.
    let ratio = touched / (16.0 * MEGABYTES);
    assert!((0.95..1.2).contains(&ratio), "{summary}");
}

#[test]
fn memory_that_comes_without_being_touched_is_told_beside() {
    let folder = Folder::new();
    let mut fixture = Fixture::start(&fixture(&folder));
    let (touched, summary) = touched(&mut fixture, "populate 64");
    assert!(touched < 2.0, "{summary}");
    let untouched = number_before(&summary, " MB of it came without being touched");
    let ratio = untouched / (64.0 * MEGABYTES);
    assert!((0.95..1.05).contains(&ratio), "{summary}");
    let anonymous = number_before(&summary, " MB of no file");
    assert!(
        (anonymous / (64.0 * MEGABYTES) - 1.0).abs() < 0.05,
        "{summary}"
    );
}

#[test]
fn time_off_the_cpu_is_told_by_what_is_waited_for_also_of_200_threads_which_nothing_interrupts() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    fixture.tell("wait");
    fixture.tell("poll 200");
    settle(&fixture);
    let arguments = words("profile --mode off-cpu --frequency 50 --duration 3s");
    let (folded, summary) = said(&probe(&fixture, &arguments));
    let lines = lines(&folded);
    let by = |line: &Line| {
        let known = ["[futex]", "[sleep]", "[epoll]", "[read pipe]"];
        known
            .into_iter()
            .find(|wait| line.calls.last().is_some_and(|call| call == wait))
    };
    let shares = shares(&lines, "waiter", by);
    let known = [
        ("[futex]", 30.0),
        ("[sleep]", 20.0),
        ("[epoll]", 30.0),
        ("[read pipe]", 20.0),
    ];
    is_near(&shares, &known);
    let time_of = |thread: &str| -> f64 {
        let own = lines.iter().filter(|line| line.thread == thread);
        own.map(|line| line.weight).sum()
    };
    let threads = time_of("poller") / (time_of("waiter") / 10.0);
    assert!((threads - 200.0).abs() < 6.0, "{threads}: {summary}");
    assert_contains(&summary, "100.0 % of them complete, 0 lost");
    assert_eq!(fixture.tell("interrupted"), "0");
}

#[test]
fn threads_that_do_the_same_are_listed_together_with_what_they_wait_for_and_none_is_interrupted() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    fixture.tell("wait");
    fixture.tell("poll 200");
    settle(&fixture);
    let (listed, _) = said(&probe(&fixture, &["threads"]));
    let mut paragraphs = listed.split("\n\n");
    let head = format!("process {} (stacks): 211 threads", fixture.pid());
    assert_eq!(paragraphs.next(), Some(head.as_str()));
    let polls = paragraphs.next().unwrap();
    assert_begins(polls, "203 threads sleeping, waits for epoll, since ");
    assert_contains(polls, "\n  poller (200 of them), waiter (3 of them)\n");
    assert_contains(polls, "\n      in_epoll  (stacks)\n");
    for waits in [
        "3 threads sleeping, waits for futex",
        "2 threads sleeping, waits for sleep",
    ] {
        assert_contains(&listed, waits);
    }
    // Its first thread waits for orders.
    assert_contains(&listed, "\n2 threads sleeping, waits for read pipe");
    assert_contains(&listed, "\n1 thread sleeping, waits for read pipe");
    assert_eq!(fixture.tell("interrupted"), "0");
}

#[test]
fn a_process_that_is_stopped_or_frozen_waits_for_no_page() {
    let folder = Folder::new();
    let program = fixture(&folder);
    let are_listed = |fixture: &Fixture, threads: usize, expected: &str| {
        let mut listed = String::new();
        wait_until(expected, || {
            listed = said(&probe(fixture, &["threads"])).0;
            listed.matches(expected).count() == threads
        });
        assert!(!listed.contains("waits for a page"), "{listed}");
    };
    // One thread runs in no call of the kernel's, and one waits for it.
    let burning = || {
        let mut fixture = Fixture::start(&program);
        fixture.order("burn 600");
        let threads = format!("/proc/{}/task", fixture.pid());
        // What it was made by is a call, too.
        wait_until("a second thread that runs", || {
            let threads = fs::read_dir(&threads).unwrap().flatten();
            let times = threads.filter_map(|thread| {
                let said = fs::read_to_string(thread.path().join("schedstat")).ok()?;
                said.split(' ').next()?.parse::<u64>().ok()
            });
            times
                .filter(|nanoseconds| *nanoseconds > 20_000_000)
                .count()
                == 1
        });
        fixture
    };
    let stopped = burning();
    let pid = Pid::from_raw(stopped.pid() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    are_listed(&stopped, 2, "1 thread stopped, waits for SIGCONT");
    drop(stopped);
    // Whoever is frozen on its way out of a call is told to be in that.
    let is_frozen = (0..8).any(|number| {
        let container = Container::new(number);
        let frozen = burning();
        container.adopt(frozen.pid() as i32);
        container.freeze();
        thread::sleep(Duration::from_millis(500));
        let (listed, _) = said(&probe(&frozen, &["threads"]));
        println!("{listed}");
        assert!(!listed.contains("waits for a page"), "{listed}");
        listed.contains("1 thread frozen, waits for the freezer")
    });
    assert!(is_frozen);
}

#[test]
fn a_profile_is_written_as_pprof_that_can_be_drawn() {
    let (folder, mut fixture) = Fixture::made(fixture);
    fixture.tell("wait");
    settle(&fixture);
    let file = folder.path("off.pb.gz");
    let arguments = ["profile", "--mode", "off-cpu", "--duration", "1s", "-o"];
    probe(
        &fixture,
        &[&arguments[..], &[file.to_str().unwrap()]].concat(),
    );
    let folded = folded(&file);
    assert!(
        folded.contains("in_futex") && folded.contains("in_pipe"),
        "{folded}"
    );
}

#[test]
fn a_file_that_a_profile_cannot_be_written_to_is_named() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    fixture.tell("wait");
    settle(&fixture);
    let output = Command::new(ckb_probe())
        .args(["profile", "--mode", "off-cpu", "--duration", "1s"])
        .args(["-o", "/dev/full", "--pid", &fixture.pid().to_string()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "ckb-probe: cannot write to /dev/full: No space left on device (os error 28)\n"
    );
}

#[test]
fn what_is_on_a_stack_is_told_to_nobody() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    fixture.tell("secret");
    settle(&fixture);
    let off_cpu = ["profile", "--mode", "off-cpu", "--duration", "1s"];
    for arguments in [&["threads"][..], &off_cpu] {
        let output = Command::new(ckb_probe())
            .env("RUST_LOG", "trace")
            .args(arguments)
            .args(["--pid", &fixture.pid().to_string()])
            .output()
            .unwrap();
        let (told, besides) = said(&output);
        assert_contains(&told, "with_secret");
        assert!(
            !told.contains("S3cr3tPw") && !besides.contains("S3cr3tPw"),
            "{told}{besides}"
        );
    }
}

#[test]
fn names_are_told_also_where_the_executable_was_replaced() {
    let folder = Folder::new();
    let program = fixture(&folder);
    let mut fixture = Fixture::start(&program);
    fixture.tell("wait");
    fs::remove_file(&program).unwrap();
    fs::write(&program, "something else").unwrap();
    settle(&fixture);
    let (listed, _) = said(&probe(&fixture, &["threads"]));
    assert_contains(&listed, "in_futex  (stacks");
}

#[test]
fn a_process_that_is_not_there_is_told() {
    let nobody = i32::MAX as u32;
    for command in ["profile", "threads"] {
        let mut arguments = vec![command];
        if command == "threads" {
            let output = Command::new(ckb_probe())
                .args(["threads", "--pid", &nobody.to_string()])
                .output()
                .unwrap();
            let (_, said) = said(&output);
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert_begins(&said, "ckb-probe: no process 2147483647");
            continue;
        }
        arguments.push("--mode=off-cpu");
        assert!(refusal(nobody, &arguments).starts_with("no process 2147483647"));
    }
}

#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_sampled() {
    let own = std::process::id();
    let other = refusal(own, &["profile", "-o", "/tmp/x.svg"]);
    let expected = "cannot write to /tmp/x.svg: only pprof and folded text are written: name a file that ends in .pb.gz or .folded";
    assert_eq!(other, expected);
    let nowhere = refusal(own, &["profile", "-o", "/nowhere/x.folded"]);
    let expected = "cannot write to /nowhere/x.folded: No such file or directory (os error 2)";
    assert_eq!(nowhere, expected);
}

#[test]
fn stacks_are_whole_also_where_a_function_in_them_is_probed_at_its_return() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let mut probe = Probe::start(fixture.pid(), &["functions", "--json", "--match", "burn"]);
    probe.is_attached();
    let sampling = sampling(&fixture);
    fixture.tell("burn 1");
    // By now it is known where functions return to that are probed.
    fixture.tell("burn 4");
    let (rows, _) = probe.rows();
    assert_eq!(rows.count("burn"), 2);
    drop(fixture);
    let (folded, summary) = said(&sampling.wait_with_output().unwrap());
    let lines = lines(&folded);
    let is_whole = |line: &Line| {
        let calls: Vec<&str> = line.calls.iter().map(String::as_str).collect();
        let known = ["heavy", "middling", "light"];
        let own = || {
            calls
                .windows(3)
                .any(|three| three[..2] == ["burner", "burn"] && known.contains(&three[2]))
        };
        calls.first() != Some(&"[truncated]") && own()
    };
    let burnt = |line: &Line| {
        line.calls
            .iter()
            .any(|call| ["heavy", "middling", "light"].contains(&call.as_str()))
    };
    let all: f64 = lines
        .iter()
        .filter(|line| burnt(line))
        .map(|line| line.weight)
        .sum();
    let whole: f64 = lines
        .iter()
        .filter(|line| is_whole(line))
        .map(|line| line.weight)
        .sum();
    assert!(all > 300.0, "{all} samples: {summary}");
    assert!(whole / all > 0.9, "{whole} of {all}: {summary}");
}

#[test]
fn a_process_is_sampled_and_drawn_in_one() {
    let (folder, mut fixture) = Fixture::made(fixture);
    fixture.tell("wait");
    settle(&fixture);
    let arguments = words("flamegraph off-cpu --duration 2s");
    let (text, progress) = said(&probe(&fixture, &arguments));
    let process = format!("process {} (stacks)", fixture.pid());
    assert_begins(&text, &format!("{process}: wait "));
    assert_contains(&text, "SELF  FUNCTION\n");
    assert_contains(&text, "  in_futex\n");
    assert_eq!(
        progress,
        format!("{process} OffCpu: [........................] 0 of 2 s\n")
    );
    let svg = folder.path("off.svg");
    let saved = format!("flamegraph off-cpu --duration 1s -o {}", svg.display());
    let (text, said) = said(&probe(&fixture, &words(&saved)));
    assert_eq!(text, "", "{said}");
    assert_contains(&said, &format!("written to {}", svg.display()));
    assert_contains(&fs::read_to_string(svg).unwrap(), "<title>in_futex (");
}
