//! `ckb-probe usdt` and `ckb-probe symbols --usdt` on programs that meet their probes a known number of times: on this machine's
//! kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

use std::{
    collections::BTreeMap,
    io::{BufRead, Write, stdin, stdout},
    process::Command,
};

use ckb_probe_testkit::{
    Fixture, Folder, Probe, Rows, ckb_probe, fixtures, refusal, run, wait_until,
};
use rustix::process::{Signal, kill_process};

#[path = "usdt/confined.rs"]
mod confined;
#[path = "usdt/postgresql.rs"]
mod postgresql;
#[path = "usdt/python.rs"]
mod python;

fn fixture() -> Fixture {
    Fixture::named("usdt", &[])
}

fn attached(pid: u32, arguments: &[&str]) -> Probe {
    let mut probe = Probe::start(pid, &[&["usdt", "--json"], arguments].concat());
    probe.is_attached();
    probe
}

/// Attaches, has things done, and tells what was counted.
fn counted(fixture: &mut Fixture, arguments: &[&str], orders: &[&str]) -> (Rows, String) {
    let probe = attached(fixture.pid(), arguments);
    for order in orders {
        fixture.tell(order);
    }
    probe.rows()
}

const ORDERS: [&str; 5] = [
    "plain 20000",
    "five 3000",
    "ten 400",
    "guarded 321",
    "twice 77",
];
const COUNTS: [(&str, u64); 5] = [
    ("five", 3000),
    ("guarded", 321),
    ("plain", 20_000),
    ("ten", 400),
    ("twice", 154),
];

#[test]
fn each_hit_is_counted_with_and_without_semaphores_and_whatever_nops_there_are() {
    let mut fixture = fixture();
    // Nobody is attached: nobody's probe is met.
    fixture.tell("guarded 10");
    let (rows, said) = counted(&mut fixture, &["--provider", "fixture"], &ORDERS);
    assert_eq!(rows.counts(), BTreeMap::from(COUNTS));
    assert_eq!(said, "");
}

#[test]
fn only_what_matches_is_attached_to_and_counted() {
    let mut fixture = fixture();
    let names = ["--provider", "fixture", "--names", "gu*,t?n"];
    let probe = attached(fixture.pid(), &names);
    assert_eq!(fixture.tell("semaphores"), "1 0");
    for order in ORDERS {
        fixture.tell(order);
    }
    let (rows, _) = probe.rows();
    let counts = [("guarded", 321), ("ten", 400)];
    assert_eq!(rows.counts(), BTreeMap::from(counts));
}

#[test]
fn semaphores_are_back_at_zero_however_the_agent_ends() {
    let mut fixture = fixture();
    assert_eq!(fixture.tell("semaphores"), "0 0");
    let arguments = ["--provider", "fixture"];
    for signal in [Signal::KILL, Signal::INT] {
        let mut first = attached(fixture.pid(), &arguments);
        // One for each place that has a breakpoint, however many agents want it.
        assert_eq!(fixture.tell("semaphores"), "1 2");
        let second = attached(
            fixture.pid(),
            &["--provider", "fixture", "--names", "twice"],
        );
        assert_eq!(fixture.tell("semaphores"), "1 2");
        kill_process(first.pid(), signal).unwrap();
        first.ended();
        wait_until("the first one's are gone", || {
            fixture.tell("semaphores") == "0 2"
        });
        fixture.tell("twice 5");
        assert_eq!(second.rows().0.count("twice"), 10);
        wait_until("all are gone", || fixture.tell("semaphores") == "0 0");
    }
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let fixture = fixture();
    let refused = |arguments: &[&str]| refusal(fixture.pid(), &[&["usdt"][..], arguments].concat());
    assert!(
        refused(&["--provider", "fixture", "--names", "query*"]).contains(
            "no USDT probe of fixture matches query*; there is five, guarded, plain, ten, twice"
        )
    );
    assert!(refused(&["--provider", "postgresql"]).contains(
        "no file of the process has USDT probes of postgresql; there are those of fixture"
    ));
    assert!(
        refused(&["--provider", "fixture", "--limit", "4"]).contains(
            "* matches 5 USDT probes of fixture, more than the limit of 4: for example five,"
        )
    );
}

/// What is listed, without its first line, which has a process's id, and without its last, which has a price.
fn listed(arguments: &[&str]) -> Vec<String> {
    let out = run(Command::new(ckb_probe())
        .args(["symbols", "--usdt"])
        .args(arguments));
    let out = String::from_utf8(out.stdout).unwrap();
    let lines = out
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect()
}

#[test]
fn probes_of_a_process_and_of_a_file_are_listed_with_their_arguments() {
    let program = fixtures().join("usdt");
    let of_file = listed(&["--file", program.to_str().unwrap()]);
    let without_offsets: Vec<String> = of_file[1..of_file.len() - 1]
        .iter()
        .map(|line| {
            let words = line.split(' ').filter(|word| !word.starts_with("+0x"));
            words.collect::<Vec<_>>().join(" ")
        })
        .collect();
    let [plain, five, rest @ ..] = &without_offsets[..] else {
        panic!("{of_file:?}");
    };
    assert!(
        plain.starts_with("fixture:plain nop no semaphore 2 arguments: -4@%"),
        "{plain}"
    );
    assert!(
        five.starts_with("fixture:five nop,nop5 no semaphore 1 argument: -4@")
            && five.ends_with("+site"),
        "{five}"
    );
    assert_eq!(
        rest,
        [
            "fixture:ten nop,nop10 no semaphore 0 arguments",
            "fixture:guarded nop semaphore 0 arguments",
            "fixture:twice nop semaphore 0 arguments",
            "fixture:twice nop semaphore 0 arguments",
        ]
    );
    assert_eq!(of_file.last().unwrap(), "5 probes of fixture, at 6 places");
    let fixture = fixture();
    let pid = fixture.pid().to_string();
    let of_process = listed(&["--pid", &pid]);
    assert_eq!(of_process[0], format!("process {pid} (usdt)"));
    assert_eq!(of_process[2..of_process.len() - 1], of_file[1..]);
    assert!(
        of_process
            .last()
            .unwrap()
            .starts_with("a hit costs the process "),
        "{of_process:?}"
    );
    let one = listed(&["--pid", &pid, "--match", "tw*"]);
    assert_eq!(one[one.len() - 2], "1 probe of fixture, at 2 places");
}

#[test]
fn throws_of_a_library_that_is_mapped_are_counted() {
    let folder = Folder::new();
    let program = folder.path("throws");
    let source = folder.path("throws.cpp");
    let text = "#include <cstdio>\nint main() { int n; while (scanf(\"%*s %d\", &n) >= 0) { for (int i = 0; i < n; i++) \
                try { throw i; } catch (int) {} puts(\"done\"); fflush(stdout); n = 0; } }";
    std::fs::write(&source, text).unwrap();
    run(Command::new("c++").arg("-o").args([&program, &source]));
    let mut fixture = Fixture::run(&mut Command::new(&program));
    fixture.tell("throw 1");
    let arguments = ["--provider", "libstdcxx", "--names", "throw,catch"];
    let (rows, _) = counted(&mut fixture, &arguments, &["throw 123"]);
    let counts = [("catch", 123), ("throw", 123)];
    assert_eq!(rows.counts(), BTreeMap::from(counts));
}

/// Says that this program is to be a target, which its test below is then.
const TARGET: &str = "CKB_PROBE_USDT_TARGET";

/// A program in Rust with probes of the `probe` crate, one of which has a semaphore: this one, when it is asked to be that.
#[test]
fn as_a_target() {
    if std::env::var_os(TARGET).is_none() {
        return;
    }
    let answer = |text: &str| {
        println!("\ndone {text}");
        stdout().flush().unwrap();
    };
    answer("there");
    for line in stdin().lock().lines().map_while(Result::ok) {
        let (order, times) = line.split_once(' ').unwrap();
        let mut met = 0;
        for time in 0..times.parse::<u32>().unwrap() {
            match order {
                "eager" => probe::probe!(ckb_probe_test, eager, time, &raw const met),
                _ => met += u32::from(probe::probe_lazy!(ckb_probe_test, lazy, time)),
            }
        }
        answer(&met.to_string());
    }
}

/// The next answer of the target, past what a test program says of itself.
fn next(target: &mut Fixture) -> String {
    loop {
        let answer = target.answer();
        if !answer.is_empty() && !answer.starts_with("test") && !answer.starts_with("running") {
            return answer;
        }
    }
}

#[test]
fn probes_of_rust_are_counted_and_lazy_ones_are_met_only_while_somebody_is_attached() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "as_a_target", "--nocapture"]);
    let mut target = Fixture::run(program.env(TARGET, "1"));
    assert_eq!(next(&mut target), "there");
    let mut meet = |order: &str| {
        target.order(order);
        next(&mut target)
    };
    assert_eq!(meet("lazy 10"), "0");
    meet("eager 10");
    let pid = target.pid();
    let probe = attached(pid, &["--provider", "ckb_probe_test"]);
    let mut meet = |order: &str| {
        target.order(order);
        next(&mut target)
    };
    assert_eq!(meet("lazy 432"), "432");
    meet("eager 5678");
    let (rows, _) = probe.rows();
    let counts = [("eager", 5678), ("lazy", 432)];
    assert_eq!(rows.counts(), BTreeMap::from(counts));
    wait_until("nobody is attached", || meet("lazy 1") == "0");
}
