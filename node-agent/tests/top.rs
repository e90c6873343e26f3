//! `ckb-probe top`, `slow`, `heatmap` and `histogram` of a process, on this machine's kernel, as root; and `top` in a real terminal.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    fs,
    process::Command,
    thread::sleep,
    time::{Duration, Instant},
};

use ckb_probe_testkit::{Folder, GroundTruth, Probe, Terminal, is_linked, wait_until};
use ckb_probe_views::document::{Document, View};

const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// So many calls a second.
const RATE: f64 = 100.0;

/// For longer than a test lasts.
const PLAN: [&str; 1] = ["rocksdb_get_pinned_cf 60000 constant:1000"];

fn target() -> GroundTruth {
    let mut truth = GroundTruth::start("ground-truth", &["--rate", "100"], &PLAN).unwrap();
    truth.begin().unwrap();
    truth
}

/// The figures of the row in the picture: words after its name.
fn row(screen: &str, name: &str) -> Option<Vec<String>> {
    let mut lines = screen.lines().map(str::split_whitespace);
    lines.find_map(|mut words| {
        let is_row = words.next() == Some(name);
        is_row.then(|| words.map(str::to_owned).collect())
    })
}

fn rate(screen: &str) -> Option<f64> {
    row(screen, "Get")?.first()?.parse().ok()
}

fn is_true(rate: f64) -> bool {
    (RATE * 0.8..=RATE * 1.2).contains(&rate)
}

#[test]
fn in_a_terminal_it_shows_the_rate_resizes_and_leaves_all_as_it_was() {
    let truth = target();
    let folder = Folder::new();
    let [before, after] = ["before", "after"].map(|name| folder.path(name));
    let terminal = Terminal::open(80, 24);
    terminal.run(&format!("stty -a > {}", before.display()));
    let command = format!("{CKB_PROBE} top --pid {}", truth.pid());
    terminal.run(&command);
    let seen = terminal.until("a rate that is true", |seen| {
        rate(seen).is_some_and(is_true)
    });
    assert!(terminal.is_taken());
    assert!(seen.starts_with("ckb-probe top  process "), "{seen}");
    assert!(
        seen.contains("PER SECOND") || seen.contains("/SECONDv"),
        "{seen}"
    );
    assert!(
        seen.lines().all(|line| line.chars().count() <= 80),
        "{seen}"
    );
    terminal.until("some intervals as bars", |seen| {
        let figures = row(seen, "Get").unwrap_or_default();
        figures
            .last()
            .is_some_and(|last| last.contains('█') || last.contains('▇'))
    });
    // Held, sorted, sought.
    terminal.write(" ");
    terminal.until("that it is held", |seen| seen.contains("HELD"));
    terminal.write(" n");
    terminal.until("the order by name", |seen| seen.contains("TARGET, ROWv"));
    terminal.write("/nosuch");
    terminal.press("Enter");
    terminal.until("no row", |seen| {
        seen.contains("filter: nosuch") && row(seen, "Get").is_none()
    });
    terminal.press("Escape");
    terminal.until("all rows", |seen| row(seen, "Get").is_some());
    terminal.write("r");
    terminal.until("the order by rate", |seen| seen.contains("/SECONDv"));
    terminal.resize(50, 10);
    terminal.until("a smaller picture", |seen| {
        let last = seen.lines().nth(9);
        last.is_some_and(|line| line.starts_with("q quit")) && row(seen, "Get").is_some()
    });
    terminal.resize(80, 24);
    terminal.write("?");
    terminal.until("help", |seen| seen.contains("standard error of the rate"));
    terminal.write("xq");
    terminal.until("the shell", |seen| {
        seen.contains(&format!("top --pid {}", truth.pid()))
    });
    assert!(!terminal.is_taken());
    for (how, signal) in [
        ("Ctrl-C", None),
        ("TERM", Some("TERM")),
        ("HUP", Some("HUP")),
    ] {
        terminal.run("clear");
        terminal.run(&command);
        terminal.until(how, |seen| seen.contains("TARGET, ROW"));
        match signal {
            None => terminal.press("C-c"),
            Some(signal) => {
                let pattern = format!("top --pid {}$", truth.pid());
                let pid = running(&pattern).unwrap();
                let told = Command::new("kill")
                    .args(["-s", signal, pid.trim()])
                    .status();
                assert!(told.unwrap().success(), "{pid}");
            }
        }
        terminal.until(how, |seen| !seen.contains("TARGET, ROW"));
        assert!(!terminal.is_taken(), "{how}");
    }
    let done = folder.path("done");
    terminal.run(&format!(
        "stty -a > {}; touch {}",
        after.display(),
        done.display()
    ));
    terminal.until("the end", |_| done.exists());
    assert_eq!(
        fs::read_to_string(before).unwrap(),
        fs::read_to_string(after).unwrap()
    );
}

#[test]
fn at_ctrl_z_the_terminal_is_the_shell_s_and_the_picture_s_again_as_it_goes_on() {
    let truth = target();
    let folder = Folder::new();
    let [before, within] = ["before", "within"].map(|name| folder.path(name));
    let terminal = Terminal::open(80, 24);
    terminal.run(&format!("stty -a > {}", before.display()));
    terminal.run(&format!("{CKB_PROBE} top --pid {}", truth.pid()));
    let shows = |seen: &str| rate(seen).is_some_and(is_true);
    terminal.until("a rate that is true", shows);
    for _ in 0..2 {
        terminal.press("C-z");
        terminal.until("that it is suspended", |seen| {
            seen.contains("suspended, with nothing attached") && seen.contains("Stopped")
        });
        assert!(!terminal.is_taken());
        let done = folder.path("done");
        terminal.run(&format!(
            "stty -a > {}; clear; touch {}",
            within.display(),
            done.display()
        ));
        terminal.until("the shell", |_| done.exists());
        fs::remove_file(done).unwrap();
        assert_eq!(
            fs::read_to_string(&before).unwrap(),
            fs::read_to_string(&within).unwrap()
        );
        terminal.run("fg");
        terminal.until("the picture", |seen| seen.contains("TARGET, ROW"));
        assert!(terminal.is_taken());
        // Those of the interval in which it was suspended are no fewer for that.
        terminal.until("a rate that is true", shows);
    }
    terminal.write("q");
    terminal.until("the shell", |seen| !seen.contains("TARGET, ROW"));
    assert!(!terminal.is_taken());
}

#[test]
fn in_the_background_it_stays_suspended_until_the_terminal_is_its_own_or_it_is_to_end() {
    let truth = target();
    let folder = Folder::new();
    let done = folder.path("done");
    let terminal = Terminal::open(80, 24);
    terminal.run(&format!("{CKB_PROBE} top --pid {}", truth.pid()));
    let shows = |seen: &str| rate(seen).is_some_and(is_true);
    terminal.until("a rate that is true", shows);
    let pattern = format!("top --pid {}$", truth.pid());
    let pid = running(&pattern).unwrap();
    let own: u32 = pid.trim().parse().unwrap();
    assert!(is_linked(own));
    let suspend = || {
        terminal.press("C-z");
        terminal.until("that it is suspended", |seen| {
            seen.contains("suspended, with nothing attached") && seen.contains("Stopped")
        });
    };
    suspend();
    // For longer than it takes to attach.
    let command = format!("clear; bg; sleep 3; clear; jobs; touch {}", done.display());
    terminal.run(&command);
    terminal.until("that it is stopped again", |seen| {
        done.exists() && seen.contains("Stopped")
    });
    assert!(!is_linked(own));
    assert!(!terminal.is_taken());
    terminal.run("clear; fg");
    terminal.until("a rate that is true", shows);
    assert!(terminal.is_taken() && is_linked(own));
    suspend();
    // As a shell ends a job that is stopped.
    for signal in ["TERM", "CONT"] {
        let mut kill = Command::new("kill");
        let told = kill.args(["-s", signal, pid.trim()]).status();
        assert!(told.unwrap().success(), "{signal}");
    }
    wait_until("its end", || running(&pattern).is_none());
    assert!(!terminal.is_taken());
}

#[test]
fn where_no_shell_would_have_it_go_on_it_is_not_suspended_and_shows_why() {
    let truth = target();
    let terminal = Terminal::open(100, 24);
    terminal.run(&format!("exec {CKB_PROBE} top --pid {}", truth.pid()));
    let shows = |seen: &str| rate(seen).is_some_and(is_true);
    terminal.until("a rate that is true", shows);
    let why =
        "not suspended: what is attached would stay so, with nobody to keep it within the budget";
    terminal.press("C-z");
    terminal.until("why", |seen| seen.contains(why) && shows(seen));
    assert!(terminal.is_taken());
    // Until it was read.
    terminal.write("n");
    terminal.until("the order by name", |seen| {
        seen.contains("TARGET, ROWv") && !seen.contains("not suspended")
    });
}

/// Its number, once it runs; none any more once it has ended.
fn running(pattern: &str) -> Option<String> {
    let found = Command::new("pgrep").args(["-f", pattern]).output();
    let pid = String::from_utf8(found.unwrap().stdout).unwrap();
    (!pid.is_empty()).then_some(pid)
}

#[test]
fn a_terminal_that_is_closed_ends_it() {
    let truth = target();
    let pattern = format!("top --pid {}$", truth.pid());
    let terminal = Terminal::open(80, 24);
    terminal.run(&format!("exec {CKB_PROBE} top --pid {}", truth.pid()));
    terminal.until("a picture", |seen| rate(seen).is_some());
    assert!(running(&pattern).is_some());
    drop(terminal);
    let end = Instant::now() + Duration::from_secs(30);
    while let Some(pid) = running(&pattern) {
        assert!(Instant::now() < end, "{pid} goes on");
        sleep(Duration::from_millis(100));
    }
}

#[test]
fn one_picture_is_printed_without_a_terminal_and_as_a_document() {
    let truth = target();
    let pid = truth.pid().to_string();
    let mut command = Command::new(CKB_PROBE);
    let output = command
        .args(["top", "--pid", &pid, "--once"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(is_true(rate(&text).unwrap()), "{text}");
    let mut command = Command::new(CKB_PROBE);
    let output = command
        .args(["top", "--pid", &pid, "-o", "json"])
        .output()
        .unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let View::Top(top) = Document::read(&line).unwrap().view else {
        panic!("{line}");
    };
    let mut rows = top.targets.iter().flat_map(|target| &target.rows);
    let get = rows.find(|row| row.row == "Get").unwrap();
    let told: f64 = get.per_second.as_deref().unwrap().parse().unwrap();
    assert!(is_true(told), "{line}");
    let time: f64 = get.time_percent.as_deref().unwrap().parse().unwrap();
    assert!(
        (0.005..5.0).contains(&time),
        "100 calls of 1 us and more: {line}"
    );
}

#[test]
fn without_a_terminal_or_with_one_that_is_dumb_it_says_what_to_use_instead() {
    let output = Command::new(CKB_PROBE)
        .args(["top", "--pid", "1"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "ckb-probe: top draws on a terminal, and standard output is none: --once prints one picture, and -o json one for programs\n"
    );
    let terminal = Terminal::open(80, 24);
    terminal.run(&format!("TERM=dumb {CKB_PROBE} top --pid 1"));
    terminal.until("a refusal", |seen| {
        let seen = seen.replace('\n', "");
        seen.contains("TERM=\"dumb\" says that this terminal has none: --once prints one picture")
    });
    let terminal = Terminal::open(80, 24);
    terminal.run(&format!("{CKB_PROBE} top --pid 1 &"));
    terminal.until("a refusal", |seen| {
        let seen = seen.replace('\n', "");
        seen.contains("runs in the background of this one: start it without &")
    });
}

#[test]
fn whoever_has_no_cluster_is_told_how_to_name_a_process_of_this_host() {
    for arguments in [
        &["top", "--once"][..],
        &["slow"],
        &["histogram", "ckb"],
        &["heatmap", "ckb"],
        &["flamegraph", "cpu"],
    ] {
        let mut command = Command::new(CKB_PROBE);
        let command = command.args(arguments).env("KUBECONFIG", "/missing");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.starts_with("ckb-probe: cannot find a cluster: ")
                && said.ends_with(" A process of this host is named with --pid or --executable\n"),
            "{arguments:?}: {said}"
        );
    }
}

#[test]
fn what_names_something_of_a_cluster_beside_a_process_of_this_host_is_refused() {
    for (arguments, cluster) in [
        ("top --pid 1 -n ckb", "--namespace <NAMESPACE>"),
        ("top ckb --pid 1", "[NAME]"),
        ("top --pid 1 -A", "--all-namespaces"),
        ("top --pid 1 -l app=ckb", "--selector <LABELS>"),
        ("slow ckb --pid 1", "[NAME]"),
        ("slow --pid 1 -n ckb", "--namespace <NAMESPACE>"),
        ("histogram ckb --pid 1", "[NAME]"),
        ("histogram --pid 1 --context other", "--context <NAME>"),
        ("heatmap Get --pid 1 -n ckb", "--namespace <NAMESPACE>"),
        (
            "flamegraph cpu --pid 1 --kubeconfig x",
            "--kubeconfig <FILE>",
        ),
        ("threads ckb --pid 1", "[NAME] [TARGET]..."),
        ("threads --pid 1 -n ckb", "--namespace <NAMESPACE>"),
    ] {
        for (host, shown) in [
            ("--pid", "--pid <PID>"),
            ("--executable", "--executable <EXECUTABLE>"),
        ] {
            let arguments = arguments.replace("--pid", host);
            let mut command = Command::new(CKB_PROBE);
            let output = command.args(arguments.split(' ')).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{arguments}");
            let said = String::from_utf8(output.stderr).unwrap();
            let told = format!(
                "error: {cluster} is about a cluster, and {shown} names a process of this host: leave out one of them\n"
            );
            assert!(said.starts_with(&told), "{arguments}: {said}");
        }
    }
    // What may be of a process is none of a cluster.
    let mut command = Command::new(CKB_PROBE);
    let command = command.args(["heatmap", "Get", "--pid", "999999999"]);
    assert_eq!(command.output().unwrap().status.code(), Some(1));
}

#[test]
fn an_interval_that_is_too_short_is_refused_with_the_shortest() {
    for verb in ["rocksdb", "top", "slow", "histogram", "heatmap", "record"] {
        let mut command = Command::new(CKB_PROBE);
        command.args([verb, "--pid", "999999999", "--interval", "99ms"]);
        let output = command.args(["-o", "text"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{verb}");
        let said = String::from_utf8(output.stderr).unwrap();
        let why =
            "invalid value '99ms' for '--interval <INTERVAL>': the shortest interval is 100ms\n";
        assert!(said.contains(why), "{verb}: {said}");
    }
    let mut command = Command::new(CKB_PROBE);
    let command = command.args(["rocksdb", "--pid", "999999999", "--interval", "100ms"]);
    assert_eq!(command.output().unwrap().status.code(), Some(1));
}

#[test]
fn a_budget_that_is_no_number_of_percent_is_refused() {
    for option in ["--max-percent", "--floor"] {
        for given in ["nan", "inf", "-1", "1%"] {
            let mut command = Command::new(CKB_PROBE);
            let command = command.args(["rocksdb", "--pid", "999999999"]);
            let output = command.arg(format!("{option}={given}")).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{option}={given}");
            let said = String::from_utf8(output.stderr).unwrap();
            let why = "it is a number that is not below 0, such as 1 or 0.5";
            assert!(said.contains(why), "{said}");
        }
    }
}

#[test]
fn two_rows_are_refused_and_one_of_which_nothing_is_measured_is_said_to_be_none() {
    let truth = target();
    let pid = truth.pid().to_string();
    let heatmap = |rows: &[&str]| {
        let mut command = Command::new(CKB_PROBE);
        let command = command.args(["heatmap", "--pid", &pid, "--for", "2s"]);
        let output = command.args(rows).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), said)
    };
    assert_eq!(
        heatmap(&["Get", "TxnGet"]).1,
        "ckb-probe: of a process one row is drawn, and not Get and TxnGet: name one\n"
    );
    let (code, said) = heatmap(&["Nosuch"]);
    let none = "ckb-probe: nothing was measured of that within a whole interval\n";
    assert!(code == Some(1) && said.ends_with(none), "{said}");
}

#[test]
fn where_the_process_ends_before_there_is_anything_to_show_that_is_said() {
    for arguments in [
        &["top", "--once", "--preset", "disk", "--interval", "10m"][..],
        &["histogram", "--preset", "disk", "--interval", "10m"],
        &[
            "heatmap",
            "--preset",
            "disk",
            "--interval",
            "10m",
            "-o",
            "json",
        ],
    ] {
        let mut process = Command::new("sleep").arg("600").spawn().unwrap();
        let mut probe = Probe::start(process.id(), arguments);
        // What is left out is said once all is attached.
        probe.says("attached; the figures are of the node's disks");
        process.kill().unwrap();
        process.wait().unwrap();
        let (_, said) = probe.ended();
        assert!(said.contains("ckb-probe: the process ended"), "{said}");
    }
}

#[test]
fn whoever_reads_no_further_is_told_of_no_error() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(CKB_PROBE);
    let command = command.args(["completion", "bash"]).stdout(writer);
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn how_long_a_row_takes_over_time_is_drawn_and_told_interval_by_interval() {
    let truth = target();
    let pid = truth.pid().to_string();
    let mut command = Command::new(CKB_PROBE);
    let arguments = ["heatmap", "--pid", &pid, "Get", "--for", "4s"];
    let output = command.args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with(&format!("process {pid} ")), "{text}");
    assert!(
        text.contains("+----\n") || text.contains("+---\n"),
        "{text}"
    );
    assert!(text.contains("@"), "all calls take about the same: {text}");
    let mut command = Command::new(CKB_PROBE);
    let output = command
        .args(arguments)
        .args(["-o", "json"])
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let counts = lines
        .lines()
        .map(|line| match Document::read(line).unwrap().view {
            View::Distribution(one) => (one.row, one.count, one.time.is_some()),
            other => panic!("{other:?}"),
        });
    let counts: Vec<_> = counts.collect();
    assert!((3..=4).contains(&counts.len()), "{counts:?}");
    for (row, count, has_time) in &counts {
        assert!(
            is_true(*count as f64) && row == "Get" && *has_time,
            "{counts:?}"
        );
    }
}

#[test]
fn slow_calls_of_a_process_come_as_those_of_a_cluster_do() {
    let plan = ["rocksdb_get_pinned_cf 60000 constant:3000000"];
    let mut truth = GroundTruth::start("ground-truth", &["--rate", "20"], &plan).unwrap();
    truth.begin().unwrap();
    let pid = truth.pid().to_string();
    let slow = |threshold: &str, more: &[&str]| {
        let mut command = Command::new(CKB_PROBE);
        command.args([
            "slow",
            "--pid",
            &pid,
            "--for",
            "3s",
            "--threshold",
            threshold,
        ]);
        let output = command.args(more).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.ends_with("ckb-probe: the time was up\n"), "{said}");
        String::from_utf8(output.stdout).unwrap()
    };
    let text = slow("2ms", &[]);
    let lines: Vec<&str> = text.lines().collect();
    assert!((20..=70).contains(&lines.len()), "{text}");
    for line in &lines {
        let mut words = line.split(' ').skip(1);
        assert_eq!(words.next(), Some("ground-truth"), "{line}");
        assert!(
            words.next().is_some_and(|row| row.starts_with("Get")),
            "{line}"
        );
    }
    let mut in_order = lines.clone();
    in_order.sort_unstable();
    assert_eq!(lines, in_order, "by their times");
    let text = slow("2ms", &["-o", "json"]);
    let mut as_long = 0;
    for line in text.lines() {
        let View::Event(found) = Document::read(line).unwrap().view else {
            panic!("{line}");
        };
        assert_eq!(found.subject, format!("process {pid} (ground-truth)"));
        assert_eq!(
            (found.probe.as_str(), found.event.row.as_str()),
            ("storage", "Get")
        );
        as_long += usize::from(found.event.details["duration"].starts_with("3."));
    }
    // Each takes three milliseconds; on a busy machine some take longer.
    assert!(as_long * 2 > text.lines().count(), "{text}");
    assert_eq!(slow("1s", &[]), "");
}

#[test]
fn how_long_a_row_takes_is_shown_of_a_process() {
    let truth = target();
    sleep(Duration::from_millis(100));
    let pid = truth.pid().to_string();
    let mut command = Command::new(CKB_PROBE);
    let output = command
        .args([
            "histogram",
            "--pid",
            &pid,
            "--row",
            "Get",
            "--interval",
            "2s",
            "-o",
            "json",
        ])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let line = String::from_utf8(output.stdout).unwrap();
    let View::Distribution(found) = Document::read(&line).unwrap().view else {
        panic!("{line}");
    };
    assert!(is_true(found.count as f64 / 2.0), "{line}");
    assert!(
        found.bars.iter().all(|bar| bar.from >= 500),
        "a call takes 1 us at the least: {line}"
    );
}
