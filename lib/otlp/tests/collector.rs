//! Exporting to the real OpenTelemetry Collector: over HTTP, gRPC and TLS, and while it ends and comes back.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod made;
#[path = "collector/tls.rs"]
mod tls;

use std::{
    collections::BTreeSet,
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

use ckb_probe_otlp::Exporter;
use ckb_probe_testkit::{CollectedSpan, Collector};
use ckb_probe_traces::{Cause, Limits, Settings};
use made::{group, limits, scope};

const LONG: Duration = Duration::from_secs(60);

fn settings(endpoint: &str, set: &[(&str, &str)]) -> Settings {
    let settings = Settings::new(Some(endpoint), &|name| {
        let mut set = set.iter();
        set.find(|(one, _)| *one == name)
            .map(|(_, value)| (*value).to_string())
    });
    settings.unwrap().unwrap()
}

fn numbers(spans: &[CollectedSpan]) -> BTreeSet<&str> {
    let numbers: BTreeSet<&str> = spans.iter().map(|span| span.id.as_str()).collect();
    assert_eq!(numbers.len(), spans.len(), "none came twice");
    numbers
}

/// Exports 3,000 spans, and looks at what arrived.
fn all_arrive(collector: &Collector, endpoint: &str, set: &[(&str, &str)], first: u64) {
    let before = collector.spans().len();
    let exporter = Exporter::start(settings(endpoint, set), scope(), limits()).unwrap();
    for number in first..first + 1000 {
        exporter.offer(group(number, 3));
    }
    let (counts, problem) = exporter.end(LONG);
    assert_eq!(
        (counts.exported, problem),
        (3000, None),
        "{set:?}: {counts:?}"
    );
    let spans = collector.wait_for_spans(before + 3000);
    assert_eq!(spans.len(), before + 3000, "{set:?}");
    numbers(&spans);
    let span = spans.last().unwrap();
    assert_eq!(span.name, "chain accepted");
    assert_eq!(span.end_ns - span.start_ns, 1_000_000);
    assert_eq!(span.attributes["ckb_probe.height"], first + 999);
    assert_eq!(span.attributes["thread.name"], "verify_blocks");
    assert_eq!(span.resource["service.name"], "ckb");
    assert_eq!((span.scope.as_str(), span.trace.len()), ("test", 32));
}

const GRPC: (&str, &str) = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
const GZIP: (&str, &str) = ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip");

#[test]
fn spans_arrive_over_http_and_grpc_as_they_are_and_compressed() {
    let collector = Collector::start();
    all_arrive(&collector, &collector.http(), &[], 0);
    all_arrive(&collector, &collector.grpc(), &[GRPC], 10_000);
    all_arrive(&collector, &collector.http(), &[GZIP], 20_000);
    all_arrive(&collector, &collector.grpc(), &[GRPC, GZIP], 30_000);
}

/// A Collector that ends, in good order or not, is away for a while, and comes back, twice.
fn restarted(protocol: &[(&str, &str)], ends: fn(&mut Collector)) -> (Collector, u64, u64) {
    let mut collector = Collector::start();
    let endpoint = match protocol.is_empty() {
        true => collector.http(),
        false => collector.grpc(),
    };
    let exporter = Exporter::start(settings(&endpoint, protocol), scope(), limits()).unwrap();
    let mut number = 0;
    let mut offer_for = |time: Duration| {
        let until = Instant::now() + time;
        while Instant::now() < until {
            exporter.offer(group(number, 2));
            number += 1;
            let counts = exporter.counts();
            assert!(counts.add_up(), "{counts:?}");
            sleep(Duration::from_micros(500));
        }
    };
    for _ in 0..2 {
        offer_for(Duration::from_millis(400));
        ends(&mut collector);
        offer_for(Duration::from_millis(400));
        collector.begin();
    }
    offer_for(Duration::from_millis(400));
    let (counts, problem) = exporter.end(LONG);
    assert!(counts.add_up(), "{counts:?}");
    assert_eq!((counts.queued, problem), (0, None), "{counts:?}");
    assert_eq!(counts.started, number * 2);
    assert!(counts.failures > 0, "it was away: {counts:?}");
    // Nothing was dropped but what was under way as it ended.
    let unanswered = counts.dropped_for(Cause::Unanswered);
    assert_eq!(counts.dropped_in_all(), unanswered, "{counts:?}");
    (collector, counts.exported, unanswered)
}

#[test]
fn a_receiver_that_restarts_in_good_order_has_what_it_took_and_nothing_twice() {
    for protocol in [&[][..], &[GRPC]] {
        let (mut collector, exported, unanswered) = restarted(protocol, Collector::end);
        collector.end();
        let spans = collector.spans();
        let arrived = numbers(&spans).len() as u64;
        assert!(
            (exported..=exported + unanswered).contains(&arrived),
            "{arrived} arrived, {exported} exported, {unanswered} unanswered"
        );
    }
}

#[test]
fn a_receiver_that_is_killed_loses_nothing_that_is_not_told_and_has_nothing_twice() {
    for protocol in [&[][..], &[GRPC]] {
        let (mut collector, exported, unanswered) = restarted(protocol, Collector::kill);
        collector.end();
        let spans = collector.spans();
        let arrived = numbers(&spans).len() as u64;
        // What it took and had not written when it was killed is its own loss.
        assert!(arrived <= exported + unanswered);
        assert!(arrived > exported / 2, "{arrived} of {exported}");
    }
}

/// CPU time of this process, by its stat (proc(5)): what follows its name begins with the state, and utime and stime are the twelfth and the
/// one after it.
fn cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks = |place: usize| fields[place].parse::<u64>().unwrap();
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}

/// 10,000 spans a second for a minute: none is lost uncounted, for at most 5 % of a core. Run by `make test-traces`.
#[test]
#[ignore = "takes a minute for each way"]
fn ten_thousand_spans_a_second_cost_no_more_than_a_twentieth_of_a_core() {
    let seconds: u64 = std::env::var("SECONDS_OF_SPANS").map_or(60, |text| text.parse().unwrap());
    for set in [&[][..], &[GZIP], &[GRPC], &[GRPC, GZIP]] {
        let mut collector = Collector::start();
        let endpoint = match set.contains(&GRPC) {
            true => collector.grpc(),
            false => collector.http(),
        };
        let exporter =
            Exporter::start(settings(&endpoint, set), scope(), Limits::default()).unwrap();
        let (begun, before) = (Instant::now(), cpu());
        for tick in 0..seconds * 100 {
            let due = Duration::from_millis(tick * 10);
            sleep(due.saturating_sub(begun.elapsed()));
            for one in 0..10 {
                exporter.offer(group(tick * 10 + one, 10));
            }
        }
        let took = begun.elapsed();
        let used = cpu() - before;
        let (counts, problem) = exporter.end(LONG);
        assert_eq!((counts.started, problem), (seconds * 10_000, None));
        assert!(counts.add_up() && counts.queued == 0, "{counts:?}");
        collector.end();
        let arrived = collector.spans().len() as u64;
        let percent = used.as_secs_f64() / took.as_secs_f64() * 100.0;
        println!(
            "{set:?}: {} spans in {:.1} s: {} exported, {} dropped, {arrived} arrived; {percent:.2} % of a core to make, queue and send them",
            counts.started,
            took.as_secs_f64(),
            counts.exported,
            counts.dropped_in_all(),
        );
        assert_eq!(arrived, counts.exported);
        assert_eq!(counts.dropped_in_all(), 0, "{counts:?}");
        assert!(percent <= 5.0, "{set:?}");
    }
}
