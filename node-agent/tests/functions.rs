//! `ckb-probe functions` and `ckb-probe symbols --match` on programs that do a known thing a known number of times: on this
//! machine's kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

#[path = "functions/libraries.rs"]
mod libraries;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use ckb_probe_testkit::{
    Fixture, Folder, Probe, Rows, ckb_probe, fixtures, refusal, run, wait_until, words, works,
};
use serde_json::json;

/// Attaches, has things done, and tells what was counted.
fn counted(fixture: &mut Fixture, arguments: &[&str], orders: &[&str]) -> (Rows, String) {
    let mut probe = Probe::start(
        fixture.pid(),
        &[&["functions", "--json"], arguments].concat(),
    );
    probe.is_attached();
    for order in orders {
        fixture.tell(order);
    }
    probe.rows()
}

fn fixture(folder: &Folder) -> PathBuf {
    folder.compile("cc", "functions.c", "functions", &[])
}

const ALPHA: [&str; 5] = [
    "alpha_one 100000",
    "alpha_two 321",
    "alpha_deep 40",
    "alpha_stepped 50",
    "beta_one 77",
];

#[test]
fn each_call_of_the_functions_that_match_is_counted_and_no_other() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let (rows, said) = counted(&mut fixture, &["--match", "alpha_*"], &ALPHA);
    let counts = [
        ("alpha_deep", 200),
        ("alpha_one", 100_000),
        ("alpha_two", 321),
    ];
    assert_eq!(rows.counts(), BTreeMap::from(counts));
    assert_eq!(
        said.trim_end(),
        "ckb-probe: attached; alpha_stepped was left out, since the kernel would have to single-step the first instruction, \
         at many times the cost: includeSingleStepped: true measures them all the same"
    );
}

/// Has it execute the file that it was given.
fn execute(fixture: &mut Fixture, file: &Path) {
    fixture.order("exec");
    let link = format!("/proc/{}/exe", fixture.pid());
    let executes = || std::fs::read_link(&link).is_ok_and(|found| found == file);
    wait_until("the exec", executes);
}

#[test]
fn a_process_that_executes_another_file_is_measured_anew_and_the_same_file_goes_on() {
    let folder = Folder::new();
    let first = fixture(&folder);
    let second = folder.path("another");
    std::fs::copy(&first, &second).unwrap();
    let paths = [&first, &second].map(|path| path.to_str().unwrap());
    let mut process = Fixture::start_with(&first, &[paths[0], paths[1]]);
    let arguments = ["functions", "--json", "--match", "alpha_one"];
    let mut probe = Probe::start(process.pid(), &arguments);
    let count = |line: &serde_json::Value| -> u64 {
        line["figures"]["count"].as_str().unwrap().parse().unwrap()
    };
    probe.is_attached();
    process.tell("alpha_one 100");
    // It is long attached, so that nothing keeps it from being measured anew.
    std::thread::sleep(std::time::Duration::from_secs(2));
    process.order("exec");
    process.tell("alpha_one 1000");
    probe.line_while(|line| count(line) == 1100, || {});

    execute(&mut process, &second);
    let said = format!(
        "ckb-probe: process {} executes another program by now, which is measured anew: what it called until then is not counted\n",
        process.pid()
    );
    probe.says(&said);
    // Those of the first moments may come before it is attached, and those of the last ones after the line that ends this.
    let mut told = 0;
    let seen = probe.line_while(
        |line| count(line) > 1100,
        || {
            process.tell("alpha_one 1");
            told += 1;
        },
    );
    process.tell("alpha_one 10000");
    let (rows, all) = probe.rows();
    let counted = rows.counts()["alpha_one"] - 10_000;
    assert!((count(&seen)..=1100 + told).contains(&counted), "{counted}");
    assert_eq!(all, said);
}

#[test]
fn who_lists_or_records_says_once_that_a_process_executes_another_file() {
    let folder = Folder::new();
    let first = fixture(&folder);
    let second = folder.path("another");
    std::fs::copy(&first, &second).unwrap();
    let asks = folder.path("asks.yaml");
    std::fs::write(&asks, "- {name: a, functions: {match: alpha_one}}\n").unwrap();
    let to = folder.path("a.record");
    let [to, asks] = [&to, &asks].map(|path| path.to_str().unwrap().to_owned());
    let recording = ["record", "--interval", "500ms", "--probe", &asks, "-o", &to];
    let listing = [
        "slow",
        "-o",
        "json",
        "--interval",
        "500ms",
        "--preset",
        "disk",
    ];
    for arguments in [&recording[..], &listing[..]] {
        let mut process = Fixture::start_with(&first, &[second.to_str().unwrap()]);
        let mut probe = Probe::start(process.pid(), arguments);
        // Long attached, so that nothing keeps it from being measured anew.
        std::thread::sleep(std::time::Duration::from_secs(4));
        execute(&mut process, &second);
        let said = format!(
            "ckb-probe: process {} executes another program by now, which is measured anew: what it called until then is not counted\n",
            process.pid()
        );
        probe.says(&said);
        std::thread::sleep(std::time::Duration::from_secs(2));
        drop(process);
        let (_, all) = probe.ended();
        assert_eq!(all.matches(&said).count(), 1, "{all}");
    }
    let report = Command::new(ckb_probe())
        .args(["report", &to])
        .output()
        .unwrap();
    let text = String::from_utf8(report.stdout).unwrap();
    let told = text.matches("The process executed another program");
    assert_eq!(told.count(), 1, "{text}");
}

#[test]
fn where_a_process_executes_what_lacks_the_functions_that_is_said_and_nothing_is_told_to_be_attached()
 {
    let folder = Folder::new();
    let mut process = Fixture::start_with(&fixture(&folder), &["/bin/cat"]);
    let arguments = ["functions", "--json", "--match", "alpha_one"];
    let mut probe = Probe::start(process.pid(), &arguments);
    probe.is_attached();
    std::thread::sleep(std::time::Duration::from_secs(2));
    execute(&mut process, &std::fs::canonicalize("/bin/cat").unwrap());
    let lacks = "ckb-probe: cat is stripped: its symbol table is gone, and of what it exports nothing matches alpha_one\n";
    probe.says(lacks);
    let (_, said) = probe.ended();
    assert!(said.ends_with(lacks), "{said}");
}

/// Has the main thread end, and leave the process to another.
fn leave(fixture: &mut Fixture) {
    fixture.tell("leave");
    let stat = format!("/proc/{}/stat", fixture.pid());
    wait_until("the end of the main thread", || {
        std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "))
    });
}

#[test]
fn a_process_is_measured_on_whose_main_thread_has_ended_while_another_calls() {
    let folder = Folder::new();
    let program = folder.compile("cc", "leaderless.c", "leaderless", &["-pthread"]);
    let mut fixture = Fixture::start(&program);
    // By perf events nothing is counted any more: see docs/troubleshooting.md.
    let tiers = ["session", "uprobe-multi"].map(|tier| works(tier).then_some(tier));
    for tier in tiers.into_iter().flatten() {
        let mut fixture = Fixture::start(&program);
        let arguments = ["functions", "--json", "--match", "alpha", "--tier", tier];
        let mut probe = Probe::start(fixture.pid(), &arguments);
        probe.is_attached();
        fixture.tell("alpha 321");
        leave(&mut fixture);
        fixture.tell("alpha 1000");
        let (rows, said) = probe.rows();
        assert_eq!(
            (rows.counts(), &*said),
            ([("alpha", 1_321)].into(), ""),
            "{tier}"
        );
    }
    // And one of which that is so from the start.
    leave(&mut fixture);
    let arguments = ["syscalls", "--json", "--names", "getuid,getppid"];
    let mut probe = Probe::start(fixture.pid(), &arguments);
    probe.line_while(
        |line| line["row"] == "getuid",
        || drop(fixture.tell("getuid 1")),
    );
    fixture.tell("getppid 1234");
    let (rows, said) = probe.rows();
    assert_eq!((rows.count("getppid"), &*said), (1_234, ""));
    let pid = fixture.pid();
    for tier in tiers.into_iter().flatten() {
        assert_eq!(
            refusal(pid, &["functions", "--match", "alpha", "--tier", tier]),
            format!(
                "the main thread of process {pid} has ended: the kernel tells by it whose functions and stacks these are, also where other threads \
                 run. What needs neither, such as syscalls, tcp and blockIo, is measured"
            )
        );
    }
}

#[test]
fn what_the_kernel_must_single_step_is_counted_on_demand() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let arguments = ["--match", "alpha_[os]*", "--include-single-stepped"];
    let (rows, said) = counted(&mut fixture, &arguments, &ALPHA);
    let counts = [("alpha_one", 100_000), ("alpha_stepped", 50)];
    assert_eq!(rows.counts(), BTreeMap::from(counts));
    assert_eq!(said, "");
    assert_eq!(
        refusal(fixture.pid(), &["functions", "--match", "alpha_stepped"]),
        "nothing that matches alpha_stepped is measured; alpha_stepped was left out, since the kernel would have to \
         single-step the first instruction, at many times the cost: includeSingleStepped: true measures them all the same"
    );
}

#[test]
fn who_counts_under_anothers_name_is_told_and_so_is_what_is_not_counted() {
    let folder = Folder::new();
    let program = folder.compile("cc", "aliases.c", "aliases", &[]);
    let mut fixture = Fixture::start(&program);
    let orders = ["merged_one 100", "another 23", "varied 10", "variant 7"];
    let (rows, said) = counted(&mut fixture, &["--match", "[mv]*ed*"], &orders);
    let counts = [("merged_one", 123), ("varied", 10)];
    assert_eq!(rows.counts(), BTreeMap::from(counts));
    assert_eq!(
        said.trim_end(),
        "ckb-probe: attached; merged_one has also the name another: the linker found one code for all of these, and their calls \
         count together; for some callers there is also varied.constprop.0, not counted: a pattern with a dot finds such"
    );
}

#[test]
fn overloads_count_as_one() {
    let folder = Folder::new();
    let program = folder.compile("c++", "functions.cpp", "store", &[]);
    let mut fixture = Fixture::start(&program);
    let (rows, _) = counted(&mut fixture, &["--match", "db::*"], &["work"]);
    let counts = [
        ("db::Store::get", 1200),
        ("db::Store::put", 30),
        ("db::Store::scan<char>", 7),
        ("db::Store::scan<int>", 7),
        ("db::open", 1),
    ];
    assert_eq!(rows.counts(), BTreeMap::from(counts));
}

#[test]
fn quantiles_are_those_of_the_delays() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let mut probe = Probe::start(
        fixture.pid(),
        &words("functions --json --match delayed --threshold 7ms"),
    );
    probe.is_attached();
    let said = fixture.tell("delays");
    let said: Vec<u64> = said
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let (rows, _) = probe.rows();
    let row = rows.row("delayed");
    assert_eq!((row.figure("count"), row.figure("slow")), (100, said[0]));
    for (quantile, said) in [0.5, 0.9].iter().zip(&said[1..]) {
        let said = *said as f64;
        let measured = row.quantile(*quantile) as f64;
        // What the program measures has two traps in it, and a call of clock_gettime.
        let trap = 50_000.0;
        assert!(measured <= said * 1.032, "{quantile}: {measured} of {said}");
        assert!(
            measured >= (said - trap) * 0.968,
            "{quantile}: {measured} of {said}"
        );
    }
}

#[test]
fn slow_calls_are_told_with_their_arguments() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let arguments = words("functions --events --match slow_call --threshold 2ms");
    let kept = ["--arguments", "int,str,string,integer,str"];
    let mut probe = Probe::start(fixture.pid(), &[&arguments[..], &kept].concat());
    let first = probe.line_while(|_| true, || drop(fixture.tell("slow_call 1")));
    assert_eq!(first["function"], "slow_call");
    assert_eq!(first["thread"], fixture.pid());
    assert_eq!(first["threadName"], "functions");
    let nanos = first["durationNanoseconds"].as_u64().unwrap();
    assert!((3_000_000..1_000_000_000).contains(&nanos), "{nanos}");
    let bad = "0x8 (not in memory)";
    assert_eq!(
        first["arguments"],
        json!(["-7", "\"a text\"", "null", "5000000000", bad])
    );
    let long = probe.line_while(
        |line| line["arguments"][0] != "-7",
        || drop(fixture.tell("long_text 1")),
    );
    assert_eq!(
        long["arguments"],
        json!([
            "2147483647",
            "\"01234567890123456789012345678901234567890123456\"…",
            "\"0123456789012345678901234567890123456789012345\"",
            "-1",
            "\"\""
        ])
    );
}

#[test]
fn functions_of_a_library_are_counted() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let arguments = words("--match getenv --library libc --include-single-stepped");
    let (rows, _) = counted(&mut fixture, &arguments, &["getenv 4321"]);
    assert_eq!(rows.counts(), BTreeMap::from([("getenv", 4321)]));
}

#[test]
fn functions_of_a_rust_program_go_by_their_paths() {
    let folder = Folder::new();
    for mangling in ["legacy", "v0"] {
        let program = folder.path(mangling);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/functions.rs");
        let mut rustc = Command::new("rustc");
        rustc
            .args(["-C", "force-frame-pointers=yes", "--crate-name", "chain"])
            // The older one is not a choice of the stable compiler any more, where it is not what it does anyway.
            .args(["-Z", "unstable-options", "-C"])
            .arg(format!("symbol-mangling-version={mangling}"))
            .env("RUSTC_BOOTSTRAP", "1")
            .arg("-o")
            .args([&program, &source]);
        run(&mut rustc);
        let mut fixture = Fixture::start(&program);
        let (rows, _) = counted(
            &mut fixture,
            &["--match", "chain::verify::*", "--include-single-stepped"],
            &["work"],
        );
        let counts = [
            ("chain::verify::Header::check", 20),
            ("chain::verify::block", 300),
        ];
        assert_eq!(rows.counts(), BTreeMap::from(counts), "{mangling}");
    }
}

#[test]
fn calls_of_a_go_program_are_counted_and_not_timed() {
    let folder = Folder::new();
    let program = folder.path("gopher");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/functions.go");
    run(Command::new("go")
        .arg("build")
        .arg("-o")
        .args([&program, &source]));
    let mut fixture = Fixture::start(&program);
    let arguments = ["--match", "main.work", "--include-single-stepped"];
    let (rows, said) = counted(&mut fixture, &arguments, &["work"; 20]);
    assert_eq!(rows.counts(), BTreeMap::from([("main.work", 8000)]));
    let durations = &rows.row("main.work").total().distributions["duration"];
    assert_eq!(
        (durations.unmeasured, durations.histogram.count()),
        (8000, 0)
    );
    assert_eq!(
        said.trim_end(),
        "ckb-probe: attached; calls are counted and not timed, since Go moves its stacks, and a probe at a return would break \
         the process"
    );
}

#[test]
fn more_than_the_limit_is_refused_with_how_many_and_ten_of_them() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let many = ["functions", "--match", "many_*"];
    assert_eq!(
        refusal(fixture.pid(), &many),
        "many_* matches 60 functions, more than the limit of 50: for example many_00, many_01, many_02, many_03, many_04, \
         many_05, many_06, many_07, many_08, many_09; name fewer, or raise limit"
    );
    let (rows, _) = counted(&mut fixture, &["--match", "many_*", "--limit", "60"], &[]);
    assert_eq!(rows.names().len(), 60);
}

#[test]
fn what_is_not_there_has_a_sentence_each() {
    let folder = Folder::new();
    let program = fixture(&folder);
    let whole = Fixture::start(&program);
    let of = |fixture: &Fixture, arguments: &[&str]| {
        refusal(fixture.pid(), &[&["functions"], arguments].concat())
    };
    assert_eq!(
        of(&whole, &["--match", "omega_*"]),
        "no function in functions matches omega_*"
    );
    assert_eq!(
        of(&whole, &["--match", "alpha_on"]),
        "no function in functions matches alpha_on; there is alpha_deep, alpha_one, alpha_stepped"
    );
    assert_eq!(
        of(&whole, &["--match", "Get", "--library", "librocksdb"]),
        "functions has no library librocksdb: it has ld-linux-x86-64.so.2, libc.so.6"
    );

    let stripped = folder.path("stripped");
    run(Command::new("strip").arg("-o").args([&stripped, &program]));
    assert_eq!(
        of(&Fixture::start(&stripped), &["--match", "alpha_*"]),
        "stripped is stripped: its symbol table is gone, and of what it exports nothing matches alpha_*"
    );

    let program = folder.compile("cc", "functions.c", "static", &["-static"]);
    let mut fixed = Fixture::start(&program);
    assert_eq!(
        of(&fixed, &["--match", "getenv", "--library", "libc"]),
        "static has no library libc: it is linked statically, so what it uses is in the executable itself"
    );
    let arguments = ["--match", "getenv", "--include-single-stepped"];
    let (rows, _) = counted(&mut fixed, &arguments, &["getenv 123"]);
    assert_eq!(rows.counts(), BTreeMap::from([("getenv", 123)]));
}

#[test]
fn symbols_shows_what_would_be_attached_to_and_at_what_price() {
    let folder = Folder::new();
    let program = fixture(&folder);
    let fixture = Fixture::start(&program);
    let symbols = |glob: &str| {
        let mut command = Command::new(ckb_probe());
        let pid = fixture.pid().to_string();
        let command = command.args(["symbols", "--match", glob, "--pid", &pid]);
        String::from_utf8(run(command).stdout).unwrap()
    };
    let nm = String::from_utf8(run(Command::new("nm").arg(&program)).stdout).unwrap();
    let nm: Vec<&str> = nm.lines().filter(|line| line.contains(" alpha_")).collect();
    let said = symbols("alpha_*");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], format!("process {} (functions)", fixture.pid()));
    for (line, symbol) in lines[1..].iter().zip(&nm) {
        let [address, _, name] = symbol.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{symbol}")
        };
        let address = u64::from_str_radix(address, 16).unwrap();
        let stepped = if name == "alpha_stepped" {
            " single-stepped"
        } else {
            ""
        };
        let place = format!("/proc/{}/exe+{address:#x}{stepped}", fixture.pid());
        assert_eq!(*line, format!("{name:<13}  {place}"));
    }
    assert_eq!(nm.len(), 4);
    assert_eq!(
        lines[5],
        "4 functions: as many as a probe's limit must allow"
    );
    assert!(
        lines[6].starts_with("a probed call costs the process "),
        "{said}"
    );
    assert!(
        lines[7].starts_with("one of the 1 that are single-stepped ")
            && lines[7].ends_with(": left out without --include-single-stepped"),
        "{said}"
    );
    assert_eq!(lines.len(), 8);
    assert_eq!(symbols("many_*").lines().count(), 63);
}

#[test]
fn a_file_that_nobody_runs_is_looked_at_as_a_process_is() {
    let [full, stripped] =
        ["ground-truth", "ground-truth-stripped"].map(|name| fixtures().join(name));
    let symbols = |arguments: &[&str]| {
        let mut command = Command::new(ckb_probe());
        let output = command.arg("symbols").args(arguments).output().unwrap();
        let [told, said] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (told, said, output.status.code())
    };
    let path = full.to_str().unwrap();
    let (told, _, code) = symbols(&[path]);
    assert_eq!(code, Some(0));
    assert_eq!(told.lines().next(), Some(&*format!("file {path}")));
    let nm = String::from_utf8(run(Command::new("nm").arg(&full)).stdout).unwrap();
    let address = |name: &str| {
        let mut lines = nm.lines().map(str::split_whitespace);
        lines.find_map(|mut words| {
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            (words.nth(1)? == name).then_some(address)
        })
    };
    // The executable is linked to where its file's offsets are, but for this.
    let base = 0x40_0000;
    let get = address("rocksdb_get_pinned_cf").unwrap() - base;
    let place = format!("{path}+{get:#x}");
    let is_there = told.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.starts_with(&["Get", "rocksdb_get_pinned_cf", &place])
    });
    assert!(is_there, "{place}: {told}");
    let (told, _, code) = symbols(&["--match", "rocksdb_get_pinned_c*", path]);
    assert_eq!(code, Some(0));
    assert!(
        told.contains(&format!("rocksdb_get_pinned_cf  {place}")),
        "{told}"
    );
    assert!(told.contains("1 function\n"), "{told}");
    // The same by its name as an option, and of what is not there.
    assert_eq!(symbols(&["--file", path]).2, Some(0));
    let (told, said, code) = symbols(&[stripped.to_str().unwrap()]);
    assert_eq!(code, Some(3));
    assert!(told.contains("it has no symbol table"), "{told}");
    assert!(
        said.contains("the file has none of these functions"),
        "{said}"
    );
    assert!(!said.contains("attached"), "{said}");
    let (_, said, code) = symbols(&["/nosuch"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("cannot search /nosuch: "), "{said}");
    // A file and a process are two things.
    assert_eq!(symbols(&["--pid", "1", path]).2, Some(2));
}
