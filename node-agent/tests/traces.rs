//! `ckb-probe --otlp`: what takes a time arrives as spans at a real receiver. On this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

#[path = "traces/import.rs"]
mod import;
#[path = "traces/jaeger.rs"]
mod jaeger;
#[path = "traces/sync.rs"]
mod sync;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    thread::sleep,
    time::Duration,
};

use ckb_probe_crds::Histogram;
use ckb_probe_testkit::{CollectedSpan, Collector, Fixture, Folder, Probe, ckb_probe};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// The spans of each trace, by the number of the trace.
fn traces(spans: &[CollectedSpan]) -> BTreeMap<&str, Vec<&CollectedSpan>> {
    let mut traces: BTreeMap<&str, Vec<&CollectedSpan>> = BTreeMap::new();
    for span in spans {
        traces.entry(&span.trace).or_default().push(span);
    }
    traces
}

/// The one without a parent. All others are right below it, and within its time.
fn root<'a>(trace: &[&'a CollectedSpan]) -> &'a CollectedSpan {
    let mut roots = trace.iter().filter(|span| span.parent.is_empty());
    let root = roots.next().unwrap();
    assert!(roots.next().is_none(), "one root");
    for span in trace.iter().filter(|span| !span.parent.is_empty()) {
        assert_eq!(span.parent, root.id);
        assert!(span.start_ns >= root.start_ns && span.end_ns <= root.end_ns);
    }
    root
}

/// Each block is told, and exported there.
fn every_block(endpoint: &str) -> [&str; 6] {
    ["chain", "--threshold", "0s", "--events", "--otlp", endpoint]
}

/// All spans, by what is said at the end: that as many were exported. The Collector writes them down a moment after it answered.
fn all_exported(collector: &Collector, said: &str) -> Vec<CollectedSpan> {
    let mut told = said
        .lines()
        .filter_map(|line| line.strip_prefix("ckb-probe: of "));
    let spans = told.find(|rest| rest.contains(" spans "));
    let count = spans.and_then(|rest| rest.split(' ').next());
    let count: usize = count.unwrap().parse().unwrap();
    let sentence = format!("of {count} spans {count} were exported to 127.0.0.1:");
    assert!(said.contains(&sentence), "{said}");
    let spans = collector.wait_for_spans(count);
    assert_eq!(spans.len(), count);
    spans
}

#[test]
fn each_block_is_a_trace_with_its_height_and_what_it_consisted_of() {
    let collector = Collector::start();
    let mut node = Fixture::named("blocks", &[]);
    let (endpoint, mut height) = (collector.http(), 0);
    let asked = every_block(&endpoint);
    let mut probe = Probe::start(node.pid(), &asked);
    let first = probe.line_while(
        |_| true,
        || {
            height += 1;
            node.tell(&format!("accept {height} {height} 3"));
        },
    );
    node.tell("accept 1001 1100 7 100");
    let (lines, said) = probe.events();
    let lines: Vec<Value> = [first].into_iter().chain(lines).collect();
    let spans = all_exported(&collector, &said);
    let traces = traces(&spans);
    assert_eq!(traces.len(), lines.len(), "a trace for each block");
    let by_height: BTreeMap<_, _> = traces
        .values()
        .map(|trace| (root(trace).attributes["ckb_probe.height"].as_u64(), trace))
        .collect();
    for line in &lines {
        let trace = by_height[&line["height"].as_u64()];
        let root = root(trace);
        assert_eq!(root.name, "chain accepted");
        assert_eq!(line["durationNanoseconds"], root.end_ns - root.start_ns);
        assert_eq!(
            line["rocksdbNanoseconds"],
            root.attributes["ckb_probe.rocksdb_ns"]
        );
        assert_eq!(root.attributes["thread.name"], "verify_blocks");
        assert_eq!(root.resource["service.name"], "blocks");
        assert_eq!(root.resource["process.pid"], node.pid());
        let below = |name: &str| {
            let mut named = trace.iter().filter(|span| span.name == name);
            let found = named.next();
            found.unwrap_or_else(|| panic!("no {name} in {trace:?}"))
        };
        let commit = below("TxnCommit");
        assert_eq!(commit.end_ns, root.end_ns);
        assert_eq!(commit.attributes["ckb_probe.calls"], 1);
        if line["height"].as_u64() > Some(1000) {
            assert_eq!(below("TxnGet").attributes["ckb_probe.calls"], 7);
            let off_cpu = below("offCpu");
            assert_eq!(line["offCpuNanoseconds"], off_cpu.end_ns - off_cpu.start_ns);
        }
    }
}

#[test]
fn each_slow_call_is_a_span_that_says_who_called() {
    let collector = Collector::start();
    let folder = Folder::new();
    // It is killed as it is dropped, whatever becomes of this.
    let mut node = Fixture::run(Command::new(folder.compile_optimised("callers")).arg("signals"));
    assert_eq!(node.answer(), "runs");
    let endpoint = collector.grpc();
    let asked = [
        "functions",
        "--match",
        "slow_call",
        "--threshold",
        "1ms",
        "--stacks",
    ];
    let asked = [
        &asked[..],
        &["--include-single-stepped", "--events", "--otlp", &endpoint],
    ]
    .concat();
    // As whoever has set it for other programs has.
    let mut probe = Probe::start_with(
        node.pid(),
        &asked,
        &[("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
    );
    let pid = Pid::from_raw(node.pid() as i32).unwrap();
    let first = probe.line_while(
        |_| true,
        || {
            kill_process(pid, Signal::USR1).unwrap();
            sleep(Duration::from_millis(300));
        },
    );
    let (lines, said) = probe.events();
    drop(node);
    let lines: Vec<Value> = [first].into_iter().chain(lines).collect();
    let spans = all_exported(&collector, &said);
    assert_eq!(traces(&spans).len(), lines.len(), "a trace for each call");
    let times = |all: &mut Vec<u64>| {
        all.sort_unstable();
        all.clone()
    };
    let mut told = lines
        .iter()
        .map(|line| line["durationNanoseconds"].as_u64().unwrap())
        .collect();
    let mut arrived = spans
        .iter()
        .map(|span| span.end_ns - span.start_ns)
        .collect();
    assert_eq!(times(&mut told), times(&mut arrived));
    for span in &spans {
        assert_eq!(span.name, "functions slow_call");
        assert_eq!(span.attributes["ckb_probe.kind"], "functions");
    }
    let with_stacks = spans
        .iter()
        .filter(|span| span.attributes.contains_key("code.stacktrace"));
    let stacks = lines.iter().filter(|line| line.get("stack").is_some());
    assert_eq!(with_stacks.count(), stacks.count());
}

#[test]
fn what_is_called_within_a_slow_call_of_its_thread_is_a_part_of_its_trace() {
    let collector = Collector::start();
    let folder = Folder::new();
    let mut node = Fixture::run(Command::new(folder.compile_optimised("callers")).arg("signals"));
    assert_eq!(node.answer(), "runs");
    let endpoint = collector.http();
    let asked = ["functions", "--match", "*_call*", "--threshold", "1ms"];
    let asked = [
        &asked[..],
        &["--include-single-stepped", "--events", "--otlp", &endpoint],
    ]
    .concat();
    let mut probe = Probe::start(node.pid(), &asked);
    let pid = Pid::from_raw(node.pid() as i32).unwrap();
    // Each signal is for twenty calls by the one and ten by the other. Those that were called before it was attached to all of them are known in part,
    // which are no more than the first ten; twenty, however long they take, are ten that are known whole.
    let mut outermost = 0;
    while outermost < 20 {
        let line = probe.line_while(|_| true, || kill_process(pid, Signal::USR1).unwrap());
        outermost += u32::from(line["function"] == "callers_caller");
    }
    let (_, said) = probe.events();
    drop(node);
    let spans = all_exported(&collector, &said);
    let by_id: BTreeMap<&str, &CollectedSpan> =
        spans.iter().map(|span| (span.id.as_str(), span)).collect();
    let named = |name: &str| {
        let name = format!("functions {name}");
        spans.iter().filter(move |span| span.name == name)
    };
    let (mut below_first, mut below_second, mut in_part) = (0, 0, 0);
    for call in named("slow_call") {
        let above = |span: &CollectedSpan| by_id.get(span.parent.as_str()).copied();
        let caller = above(call);
        let outermost = caller.and_then(above);
        for one in [caller, outermost].into_iter().flatten() {
            assert_eq!(call.trace, one.trace);
        }
        let names = [caller, outermost].map(|one| one.map(|one| one.name.as_str()));
        match names {
            [Some("functions first_caller"), None] => below_first += 1,
            [
                Some("functions second_caller"),
                Some("functions callers_caller"),
            ] => below_second += 1,
            [
                None | Some("functions second_caller" | "functions callers_caller"),
                None,
            ] => {
                in_part += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(
        below_first >= 20 && below_second >= 10,
        "{below_first} {below_second}"
    );
    // Attaching takes a few milliseconds, which are a few calls; and one may be under way in the end.
    assert!(in_part <= 15, "{in_part}");
}

/// Slow times between USDT probes of a program that is told the one order until something is told of it, and then the other: the lines
/// that were printed, the spans that arrived, and what was said in the end.
fn slow_times(
    between: &[&str],
    [first, then]: [&str; 2],
) -> (Vec<Value>, Vec<CollectedSpan>, String) {
    let collector = Collector::start();
    let mut fixture = Fixture::named("usdt-arguments", &[]);
    let endpoint = collector.http();
    let asked = [
        &["usdt", "--provider", "arguments"],
        between,
        &["--threshold", "1ms", "--events", "--otlp", &endpoint],
    ]
    .concat();
    let mut probe = Probe::start(fixture.pid(), &asked);
    let first = probe.line_while(
        |_| true,
        || {
            fixture.tell(first);
        },
    );
    fixture.tell(then);
    let (lines, said) = probe.events();
    let lines = [first].into_iter().chain(lines);
    let spans = all_exported(&collector, &said);
    (lines.collect(), spans, said)
}

#[test]
fn slow_times_from_one_usdt_probe_to_another_are_spans() {
    let (lines, spans, _) = slow_times(
        &["--from", "begin", "--to", "end,failed"],
        ["spans 5", "spans 40"],
    );
    let mut told: Vec<u64> = lines
        .iter()
        .map(|line| line["durationNanoseconds"].as_u64().unwrap())
        .collect();
    let mut arrived: Vec<u64> = spans
        .iter()
        .map(|span| span.end_ns - span.start_ns)
        .collect();
    told.sort_unstable();
    arrived.sort_unstable();
    assert!(told.len() >= 40);
    assert_eq!(told, arrived);
    assert!(
        spans
            .iter()
            .all(|span| span.name == "usdt begin to end or failed")
    );
}

#[test]
fn what_callers_asked_for_arrives_in_their_traces() {
    let (lines, spans, said) = slow_times(
        &[
            "--from",
            "requested",
            "--to",
            "answered",
            "--key-argument",
            "1",
            "--traceparent-argument",
            "2",
        ],
        ["traced 1", "traced 22"],
    );
    let told: Vec<Value> = lines
        .iter()
        .map(|line| line["traceparent"].clone())
        .collect();
    for (trace, parent, flags) in [
        ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "01"),
        ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00"),
        ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b8", "01"),
    ] {
        let as_told = json!(format!("00-{trace}-{parent}-{flags}"));
        let told = told.iter().filter(|told| **told == as_told).count();
        let arrived = spans
            .iter()
            .filter(|span| (span.trace.as_str(), span.parent.as_str()) == (trace, parent));
        assert_eq!(arrived.count(), told);
        assert!(told >= 2, "{told}");
    }
    // Each of the others is a trace of its own.
    let alone: Vec<_> = spans
        .iter()
        .filter(|span| span.parent.is_empty())
        .cloned()
        .collect();
    assert_eq!(traces(&alone).len(), alone.len());
    let nothing = told.iter().filter(|told| told.is_null()).count();
    assert_eq!((alone.len(), nothing >= 16), (nothing, true));
    assert!(
        said.contains("lost 2 arguments, 10 traceparents ("),
        "{said}"
    );
}

/// Two programs emit texts of many spans at a time, and each is exported once, as it was written.
#[test]
fn spans_that_programs_emit_arrive_as_they_were_written() {
    let collector = Collector::start();
    let endpoint = collector.http();
    let asked = ["usdt", "--provider", "payloads", "--payload-argument", "2"];
    let asked = [&asked[..], &["--events", "--otlp", &endpoint]].concat();
    let mut programs = ["usdt-payloads", "usdt-emitter"].map(|name| {
        let mut program = Fixture::named(name, &[]);
        let mut probe = Probe::start(program.pid(), &asked);
        let first = probe.line_while(
            |_| true,
            || {
                program.tell("alone 1");
            },
        );
        assert_eq!(first["spans"].as_array().unwrap().len(), 1);
        (name, program, probe)
    });
    for (_, program, _) in &mut programs {
        program.tell("several 100 9");
        program.tell("length 100 2048");
        program.tell("length 10 2049");
        program.tell("malformed 1");
    }
    let mut exported = 0;
    let ended = programs.map(|(name, _program, probe)| {
        let (_, said) = probe.events();
        let sentence = said.split("of ").nth(1).unwrap();
        let count: usize = sentence.split(' ').next().unwrap().parse().unwrap();
        assert!(
            said.contains(&format!("of {count} spans {count} were exported to ")),
            "{said}"
        );
        assert!(
            said.contains("lost 10 longPayloads, 7 malformedPayloads ("),
            "{said}"
        );
        exported += count;
        (name, count)
    });
    let spans = collector.wait_for_spans(exported);
    assert_eq!(spans.len(), exported);
    for (name, count) in ended {
        let own: BTreeMap<u64, &CollectedSpan> = spans
            .iter()
            .filter(|span| span.resource["service.name"] == name)
            .map(|span| (u64::from_str_radix(&span.id, 16).unwrap(), span))
            .collect();
        assert_eq!(own.len(), count, "each once");
        // Before it was attached, there may have been some; what came then is all there, and so are those that are too long.
        let last = *own.last_key_value().unwrap().0;
        let whole = own.range(last - 99..).count();
        let nine = own.range(last - 999..last - 99).count();
        assert_eq!((whole, nine), (100, 900));
        for (number, span) in own {
            assert_eq!(span.trace, format!("{number:032x}"));
            assert_eq!((span.kind, span.start_ns), (2, 1_700_000_000_000_000_000));
            assert_eq!(span.end_ns - span.start_ns, number * 1000);
            assert_eq!(span.attributes["number"], number.to_string());
            assert_eq!(span.attributes["ckb_probe.usdt_probe"], "span_emit");
            if number > last - 100 {
                assert_eq!((span.name.len() > 1500, span.parent.as_str()), (true, ""));
            } else if number > last - 1000 {
                let is_first = (last - 100 - number) % 9 == 8;
                let parent = if is_first {
                    String::new()
                } else {
                    format!("{:016x}", number - 1)
                };
                assert_eq!(span.parent, parent);
            }
        }
    }
}

/// One that emits more than the budget lets be read: each text of a slice is exported once or counted as lost, and it is said that there were
/// others.
#[test]
fn of_a_program_that_emits_more_than_the_budget_has_room_for_slices_are_exported_and_the_rest_is_told_of()
 {
    let collector = Collector::start();
    let endpoint = collector.http();
    let mut program = Fixture::named("usdt-payloads", &[]);
    let asked = ["usdt", "--provider", "payloads", "--payload-argument", "2"];
    let more = ["--events", "--otlp", &endpoint, "--on-breach", "sample"];
    let asked = [&asked[..], &more].concat();
    let mut probe = Probe::start(program.pid(), &asked);
    let mut alone = 0;
    probe.line_while(
        |_| true,
        || {
            alone += 1;
            program.tell("alone 1");
        },
    );
    let bursts = 40;
    for _ in 0..bursts {
        program.tell("alone 50000");
        sleep(Duration::from_millis(50));
    }
    let (lines, said) = probe.events();
    assert!(
        said.contains("for a part of the time these were not watched, and what came then is not listed: span_emit\n"),
        "{said}"
    );
    let spans = all_exported(&collector, &said);
    assert_eq!(spans.len(), lines.len() + 1);
    let numbers: BTreeSet<u64> = spans
        .iter()
        .map(|span| u64::from_str_radix(&span.id, 16).unwrap())
        .collect();
    assert_eq!(numbers.len(), spans.len(), "each once");
    let lost = said
        .split("lost ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let lost: usize = lost.map_or(0, |lost| lost.parse().unwrap());
    println!(
        "{} exported, {lost} lost of {}",
        spans.len(),
        bursts * 50_000
    );
    assert!(spans.len() + lost < bursts * 50_000 / 2, "sampled");
    assert!(
        numbers
            .last()
            .is_some_and(|last| *last <= (bursts * 50_000) as u64)
    );
}

#[test]
fn a_receiver_that_is_away_is_told_of_and_keeps_nobody_from_measuring() {
    let mut collector = Collector::start();
    let endpoint = collector.http();
    collector.end();
    let mut node = Fixture::named("blocks", &[]);
    let mut height = 0;
    let asked = every_block(&endpoint);
    let mut probe = Probe::start(node.pid(), &asked);
    probe.line_while(
        |_| true,
        || {
            height += 1;
            node.tell(&format!("accept {height} {height} 3"));
        },
    );
    node.tell("accept 1001 1100 7");
    let (lines, said) = probe.events();
    assert!(lines.len() >= 100, "{}", lines.len());
    assert!(
        said.contains(" spans 0 were exported to 127.0.0.1:"),
        "{said}"
    );
    assert!(said.contains(" that still waited at the end ("), "{said}");
    assert!(said.contains("refused"), "{said}");
}

#[test]
fn figures_that_are_exported_are_those_that_are_printed_as_json() {
    let collector = Collector::start();
    let mut node = Fixture::named("blocks", &[]);
    let endpoint = collector.http();
    let asked = ["chain", "--json", "--otlp", &endpoint];
    let set = [
        ("OTEL_METRICS_EXPORTER", "otlp"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
    ];
    let mut probe = Probe::start_with(node.pid(), &asked, &set);
    let mut height = 0;
    probe.line_while(
        |line| line["total"]["distributions"]["duration"]["sum"].as_u64() > Some(0),
        || {
            height += 1;
            node.tell(&format!("accept {height} {height} 3"));
        },
    );
    node.tell("accept 1001 1100 7");
    // More than one export.
    sleep(Duration::from_millis(1500));
    let (lines, said) = probe.events();
    let points = collector.wait_for_points(1);
    let sentence = format!(
        "of {0} points of metrics {0} were exported to",
        points.len()
    );
    assert!(said.contains(&sentence), "{said}");
    let accepted = lines
        .iter()
        .rfind(|line| line["row"] == "accepted")
        .unwrap();
    let told = &accepted["total"]["distributions"]["duration"];
    let histogram: Histogram = told["histogram"].as_str().unwrap().parse().unwrap();
    let counted: Vec<u64> = histogram.iter().map(|(_, count)| count).collect();
    let of_blocks = points.iter().filter(|point| {
        point.name == "ckb_probe_block_duration_seconds"
            && point.attributes["outcome"] == "accepted"
    });
    let of_blocks: Vec<_> = of_blocks.collect();
    assert!(of_blocks.len() > 1, "{of_blocks:?}");
    let last = of_blocks.iter().max_by_key(|point| point.time_ns).unwrap();
    let arrived: Vec<u64> = last.buckets.iter().map(|(_, count)| *count).collect();
    assert_eq!((last.count, arrived), (histogram.count(), counted));
    assert_eq!(last.value, told["sum"].as_u64().unwrap() as f64 / 1e9);
    assert_eq!(last.resource["service.name"], "blocks");
    assert_eq!(last.resource["process.pid"], node.pid());
}

#[test]
fn what_is_set_wrong_for_others_keeps_nobody_from_measuring() {
    let mut node = Fixture::named("blocks", &[]);
    let set = [("OTEL_TRACES_EXPORTER", "console")];
    let asked = ["chain", "--threshold", "0s", "--events"];
    let mut probe = Probe::start_with(node.pid(), &asked, &set);
    let mut height = 0;
    probe.line_while(
        |_| true,
        || {
            height += 1;
            node.tell(&format!("accept {height} {height} 3"));
        },
    );
    let (_, said) = probe.events();
    assert!(
        said.contains("no traces are exported: OTEL_TRACES_EXPORTER: there is no console here"),
        "{said}"
    );
    assert!(!said.contains("were exported to"), "{said}");
}

#[test]
fn what_cannot_be_a_receiver_is_refused_before_anything_is_attached() {
    let pid = std::process::id().to_string();
    let output = Command::new(ckb_probe())
        .args(["syscalls", "--pid", &pid, "--otlp", "127.0.0.1:4318"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said.trim_end(),
        "ckb-probe: --otlp: 127.0.0.1:4318 is no address of a receiver: write http://HOST:PORT or https://HOST:PORT"
    );
    assert_eq!(json!(output.stdout.len()), json!(0));
}
