//! Slow calls as traces, of those orders alone that ask for it, and what became of each target's.

use ckb_probe_agent::export::exposition::Format;
use ckb_probe_crds::{SpanCounts, Traces};
use ckb_probe_testkit::{Collector, Prometheus};

use ckb_probe_crds::kinds::functions::FunctionsProbe;
use ckb_probe_testkit::CollectedSpan;
use serde_json::json;

use super::{
    slow_calls::{FIRST, SECOND, attached, order, program, run},
    *,
};

/// Those that a target makes when it is told to.
const CALLS: u64 = FIRST + SECOND;

fn traced(of: &Container, asked: bool) -> Assignment {
    Assignment {
        traces: asked.then(Traces::default),
        ..without_budget(order(of, false))
    }
}

async fn calls(agent: &mut Agent, of: &[&Container]) {
    for one in of {
        kill_process(Pid::from_raw(one.pid() as i32).unwrap(), Signal::USR1).unwrap();
    }
    let (mut lines, expected) = (0, of.len() as u64 * CALLS);
    agent
        .until(PATIENCE, |agent| {
            lines += agent.events().len() as u64;
            lines >= expected
        })
        .await;
}

fn spans(agent: &mut Agent, of: &Container) -> Option<SpanCounts> {
    agent.report_to("one", of).and_then(|report| report.spans)
}

/// Two targets that have made their calls, which are exported of the first alone.
async fn both_call(
    folder: &Folder,
    collector: &Collector,
    number: u32,
) -> (Agent, Container, Container) {
    let program = program(folder);
    let (asking, other) = (run(&program, number), run(&program, number + 1));
    let mut agent = Agent::start().exporting(&collector.http());
    agent.assign(vec![traced(&asking, true), traced(&other, false)]);
    attached(&mut agent, &asking).await;
    attached(&mut agent, &other).await;
    calls(&mut agent, &[&asking, &other]).await;
    (agent, asking, other)
}

#[tokio::test]
async fn what_an_order_asks_for_is_exported_and_told_and_nothing_else() {
    let folder = Folder::new();
    let collector = Collector::start();
    let (mut agent, asking, other) = both_call(&folder, &collector, 81).await;
    agent
        .until(PATIENCE, |agent| {
            agent.events();
            agent.span_counts().queued == 0
        })
        .await;
    let told = spans(&mut agent, &asking).unwrap();
    let expected = SpanCounts {
        started: CALLS,
        exported: CALLS,
        ..SpanCounts::default()
    };
    assert_eq!(told, expected);
    assert_eq!(spans(&mut agent, &other), None);
    let arrived = collector.wait_for_spans(CALLS as usize);
    assert_eq!(arrived.len() as u64, CALLS);
    for span in &arrived {
        assert_eq!(span.resource["k8s.pod.name"], asking.id);
        assert_eq!(span.resource["k8s.namespace.name"], "tests");
        assert_eq!(span.resource["k8s.container.name"], "target");
        assert_eq!(span.resource["k8s.node.name"], "node0");
        assert_eq!(span.resource["ckb_probe.ckbprobe"], "one");
    }
}

#[tokio::test]
async fn whoever_asks_where_nobody_takes_them_is_told() {
    let folder = Folder::new();
    let target = run(&program(&folder), 83);
    let mut agent = Agent::start();
    agent.assign(vec![traced(&target, true)]);
    attached(&mut agent, &target).await;
    let told = spans(&mut agent, &target).unwrap();
    assert_eq!(told.started, 0);
    assert!(told.message.contains("otlp.endpoint"), "{}", told.message);

    let mut collector = Collector::start();
    let endpoint = collector.http();
    collector.end();
    let mut agent = Agent::start().exporting(&endpoint);
    agent.assign(vec![traced(&target, true)]);
    attached(&mut agent, &target).await;
    calls(&mut agent, &[&target]).await;
    agent
        .until(PATIENCE, |agent| {
            agent.events();
            agent.span_counts().failures > 0
        })
        .await;
    let told = spans(&mut agent, &target).unwrap();
    assert_eq!((told.started, told.queued), (CALLS, CALLS));
    assert_eq!(
        told.message,
        "the receiver takes no spans at present: see the agent's log"
    );
}

/// What each exporter has arrives at its own receiver, and nowhere else; one that is away keeps the other's from nobody.
#[tokio::test]
async fn each_order_exports_by_the_exporter_that_it_names_and_each_has_books_of_its_own() {
    let folder = Folder::new();
    let collector = Collector::start();
    let mut away = Collector::start();
    let (here, there) = (collector.http(), away.http());
    away.end();
    let program = program(&folder);
    let (one, other) = (run(&program, 85), run(&program, 86));
    let mut agent = Agent::start().exporting_by(&[("here", &here), ("there", &there)]);
    let by = |of: &Container, exporter: &str| Assignment {
        traces: Some(Traces {
            exporter: exporter.to_string(),
        }),
        ..traced(of, true)
    };
    agent.assign(vec![by(&one, "here"), by(&other, "there")]);
    attached(&mut agent, &one).await;
    attached(&mut agent, &other).await;
    calls(&mut agent, &[&one, &other]).await;
    agent
        .until(PATIENCE, |agent| {
            agent.events();
            let (here, there) = (agent.span_counts_by("here"), agent.span_counts_by("there"));
            here.queued == 0 && here.started > 0 && there.failures > 0
        })
        .await;

    let taken = agent.span_counts_by("here");
    assert_eq!((taken.started, taken.exported), (CALLS, CALLS));
    let waiting = agent.span_counts_by("there");
    assert_eq!((waiting.started, waiting.queued), (CALLS, CALLS));
    assert!(taken.add_up() && waiting.add_up());
    let told = spans(&mut agent, &one).unwrap();
    let expected = SpanCounts {
        started: CALLS,
        exported: CALLS,
        ..SpanCounts::default()
    };
    assert_eq!(told, expected);
    let told = spans(&mut agent, &other).unwrap();
    assert_eq!((told.started, told.queued), (CALLS, CALLS));
    for span in collector.wait_for_spans(CALLS as usize) {
        assert_eq!(span.resource["k8s.pod.name"], one.id);
    }

    // Who names another is counted anew there, and by none that is not there.
    agent.assign(vec![by(&one, "nowhere"), by(&other, "here")]);
    agent
        .until(PATIENCE, |agent| {
            let told = spans(agent, &one).unwrap();
            told.message.contains("by the exporter nowhere")
        })
        .await;
    assert_eq!(spans(&mut agent, &one).unwrap().started, 0);
    agent
        .until(PATIENCE, |agent| {
            spans(agent, &other) == Some(SpanCounts::default())
        })
        .await;
    // What waited elsewhere is not forgotten for it.
    assert_eq!(agent.span_counts_by("there").queued, CALLS);
}

#[tokio::test]
async fn slow_calls_are_linked_from_the_metrics_that_a_real_prometheus_reads() {
    let folder = Folder::new();
    let collector = Collector::start();
    let (mut agent, asking, _other) = both_call(&folder, &collector, 87).await;
    agent
        .until(PATIENCE, |agent| {
            agent.events();
            agent.span_counts().exported == CALLS
        })
        .await;
    let spans = collector.wait_for_spans(CALLS as usize);

    let page = agent.page(Format::OpenMetrics);
    let prometheus = Prometheus::of_page(page, Format::OpenMetrics.media_type());
    let of_buckets = prometheus.exemplars("ckb_probe_function_duration_seconds_bucket");
    let slow = prometheus.exemplars("ckb_probe_slow_function_calls_total");
    assert!(!of_buckets.is_empty());
    assert_eq!(slow.len(), 1, "{slow:?}");
    for (series, exemplar) in of_buckets.iter().chain(&slow) {
        // Whoever has no traces has no links.
        assert_eq!(series["pod"], asking.id, "{series}");
        let (labels, text) = (&exemplar["labels"], exemplar["value"].as_str().unwrap());
        let seconds: f64 = text.parse().unwrap();
        let span = spans
            .iter()
            .find(|span| labels["span_id"] == span.id.as_str());
        let span = span.unwrap_or_else(|| panic!("{exemplar} is at no receiver"));
        assert_eq!(labels["trace_id"], span.trace.as_str());
        assert_eq!(seconds, (span.end_ns - span.start_ns) as f64 / 1e9);
        let ended = exemplar["timestamp"].as_f64().unwrap();
        assert!(
            (ended - span.end_ns as f64 / 1e9).abs() < 0.002,
            "{exemplar}"
        );
        if let Some(bound) = series["le"].as_str() {
            let bound = bound.parse().unwrap_or(f64::INFINITY);
            assert!(seconds < bound && (bound.is_infinite() || seconds >= bound / 2.0));
        }
    }
    // The text format has no room for any.
    assert!(!agent.page(Format::Text).contains("trace_id"));
}

/// How many the fixture has for each signal.
const REQUESTS: u64 = 6;

/// Of a request three calls of a function, and times from one function to another: of itself, of what is looked up, and of what is written of it.
const OF_A_REQUEST: u64 = 6;

#[tokio::test]
async fn what_has_the_key_of_something_under_way_on_another_thread_is_a_part_of_its_trace() {
    let folder = Folder::new();
    let collector = Collector::start();
    let program = folder.compile("cc", "requests.c", "requests", &["-pthread"]);
    let server = Container::run(89, &program);
    let between = |from: &str, to: &str| {
        let asked = json!({
            "match": from, "to": [to], "keyArgument": 1, "keyName": "request", "threshold": "1ms",
        });
        let asked: FunctionsProbe = serde_json::from_value(asked).unwrap();
        Probe::new(from, asked.into())
    };
    let calls = json!({"match": "sleep_a_little", "threshold": "1ms"});
    let calls: FunctionsProbe = serde_json::from_value(calls).unwrap();
    let probes = vec![
        between("serve_request", "answer_request"),
        between("look_up", "looked_up"),
        between("log_request", "logged_request"),
        Probe::new("calls", calls.into()),
    ];
    let mut agent = Agent::start().exporting(&collector.http());
    agent.assign(vec![Assignment {
        traces: Some(Traces::default()),
        ..without_budget(order_of("one", &server.id, &server.executable, probes))
    }]);
    attached(&mut agent, &server).await;
    kill_process(Pid::from_raw(server.pid() as i32).unwrap(), Signal::USR1).unwrap();
    let expected = REQUESTS * OF_A_REQUEST;
    agent
        .until(PATIENCE, |agent| {
            agent.events();
            agent.span_counts().exported == expected
        })
        .await;
    assert_eq!(
        (agent.span_counts().started, agent.span_counts().hurried),
        (expected, 0)
    );
    let spans = collector.wait_for_spans(expected as usize);

    let of = |probe: &str, number: u64| -> &CollectedSpan {
        let key = format!("request {number}");
        let mut found = spans.iter().filter(|span| {
            span.attributes["ckb_probe.probe"] == probe
                && span
                    .attributes
                    .get("ckb_probe.key")
                    .is_some_and(|told| *told == key)
        });
        let one = found.next().unwrap();
        assert_eq!(found.count(), 0);
        one
    };
    let calls_below = |parent: &CollectedSpan| {
        let calls = spans.iter().filter(|span| {
            span.attributes["ckb_probe.probe"] == "calls" && span.parent == parent.id
        });
        let threads: Vec<_> = calls
            .map(|call| {
                assert_eq!(call.trace, parent.trace);
                &call.attributes["thread.id"]
            })
            .collect();
        assert_eq!(threads, [&parent.attributes["thread.id"]]);
    };
    for number in 1..=REQUESTS {
        let request = of("serve_request", number);
        assert_eq!(request.parent, "");
        calls_below(request);

        let is_odd = number % 2 == 1;
        let looked_up = of("look_up", if is_odd { number + 1000 } else { number });
        assert_ne!(
            looked_up.attributes["thread.id"],
            request.attributes["thread.id"]
        );
        match is_odd {
            false => assert_eq!(
                (&looked_up.trace, &looked_up.parent),
                (&request.trace, &request.id)
            ),
            true => assert_eq!(
                (looked_up.trace == request.trace, looked_up.parent.as_str()),
                (false, "")
            ),
        }
        calls_below(looked_up);

        // It began while the request was under way, and ended after it, on another thread than it began.
        let logged = of("log_request", number);
        assert_eq!(
            (&logged.trace, &logged.parent),
            (&request.trace, &request.id)
        );
        assert!(logged.end_ns > request.end_ns);
        assert!(spans.iter().all(|span| span.parent != logged.id));
    }
    let alone = spans.iter().filter(|span| span.parent.is_empty());
    let mut alone: Vec<&str> = alone
        .map(|span| span.attributes["ckb_probe.probe"].as_str().unwrap())
        .collect();
    alone.sort_unstable();
    let expected = [("calls", 6), ("look_up", 3), ("serve_request", 6)];
    let expected: Vec<&str> = expected
        .into_iter()
        .flat_map(|(probe, times)| vec![probe; times])
        .collect();
    assert_eq!(alone, expected);
}
