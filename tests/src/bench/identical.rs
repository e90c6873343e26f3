//! One CkbProbe on a process against a hundred that ask the same of it.
//!
//! The order is what the operator's own functions make of them; everything from there on is the agent.

use ckb_probe_crds::{Assignment, Container as Named, PodReference};
use ckb_probe_operator::{
    desired::{View, orders},
    limits::Limits,
    world::{Change, CkbProbeEntry, Node, Raw, TargetPod, World},
};
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;
use serde_json::json;

use super::{api::NODE, prelude::*, ticker::EXECUTABLE};

/// Calls a second.
const RATE: u32 = 10_000;

/// Until the agent has attached.
const ATTACH: Duration = Duration::from_secs(60);

const ROWS: [Row; 8] = table! {
    "programs in the target, of one CkbProbe" = "one.programs" in "ns a second";
    "programs in the target, of 100 that ask the same, against one" = "many.programs / one.programs" in "x", AtMost(1.2);
    "RSS of the agent, of one CkbProbe" = "one.rss" in "MB";
    "RSS of the agent, of 100 that ask the same, against one" = "many.rss / one.rss" in "x", AtMost(1.2);
    "the NodeProbe, of one CkbProbe" = "one.bytes" in "bytes";
    "the NodeProbe, of 100 that ask the same, against one" = "many.bytes / one.bytes" in "x", AtMost(1.2);
    "reports, of one CkbProbe" = "one.writes" in "a second";
    "reports, of 100 that ask the same, against one" = "many.writes / one.writes" in "x", AtMost(1.2);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut series = Series::default();
    for _ in 0..bench.settings.rounds {
        for (of, probes) in [("one", 1), ("many", 100)] {
            series.extend(of, measure(bench, probes).await?);
        }
    }
    bench.tell("identical: ", &series, &ROWS);
    Ok(())
}

/// Nanoseconds that programs ran for the target in a second, MB of the agent, bytes of the NodeProbe (the order, and the report),
/// and reports that were written in a second.
async fn measure(bench: &Bench, probes: usize) -> Result<Found> {
    let container = Container::new(6);
    let _target = Ticker::start(&container, RATE)?;
    let order = order(&container, probes)?;
    let agent = Agent::watching(&bench.settings, order.clone(), ATTACH).await?;
    let window = Duration::from_secs(bench.settings.seconds.div_ceil(3));
    sleep(window).await;
    let _account = Account::open()?;
    let (before, reports) = (account::runs(agent.process).await?, agent.reports().len());
    let begun = std::time::Instant::now();
    sleep(window).await;
    let seconds = begun.elapsed().as_secs_f64();
    let ran = account::all(&before, &account::runs(agent.process).await?);
    let (written, rss) = (agent.reports(), agent.rss_mb()?);
    let report = serde_json::to_string(&written.last()).map_err(Failure::format("a report"))?;
    let order = serde_json::to_string(&order).map_err(Failure::format("an order"))?;
    agent.stop().await?;
    Ok(vec![
        ("programs", ran.nanoseconds as f64 / seconds),
        ("rss", rss),
        ("bytes", (order.len() + report.len()) as f64),
        ("writes", (written.len() - reports) as f64 / seconds),
    ])
}

/// What the operator orders of the agent's node when so many CkbProbes ask the same of the pod of this container.
fn order(container: &Container, probes: usize) -> Result<Vec<Assignment>> {
    let mut world = World::default();
    let now = Timestamp::now();
    let node = Node {
        name: NODE.to_string(),
        ready: true,
    };
    world.apply(Change::Node(Event::Apply(node)), now);
    let pod = TargetPod {
        reference: PodReference {
            namespace: "bench".to_string(),
            name: "ckb-0".to_string(),
            uid: "uid".to_string(),
        },
        labels: BTreeMap::from([("app".to_string(), "ckb".to_string())]).into(),
        node: Some(NODE.to_string()),
        containers: vec![Named {
            name: "ckb".to_string(),
            id: Some(container.id.clone()),
        }],
        ..TargetPod::default()
    };
    world.apply(Change::Pod(Event::Apply(pod)), now);
    for number in 0..probes {
        let raw: Raw = serde_json::from_value(json!({
            "metadata": { "namespace": "bench", "name": format!("probe-{number}"), "uid": format!("uid-{number}") },
            "spec": {
                "target": { "selector": { "matchLabels": { "app": "ckb" } }, "executable": EXECUTABLE },
                "reportInterval": "1s",
                // All of the calls: which of them fall into slices would decide otherwise.
                "overhead": { "onBreach": "Report" },
                "probes": [{ "name": "storage", "rocksdb": {} }],
            },
        }))
        .map_err(Failure::format("a CkbProbe"))?;
        world.apply(Change::Probe(Event::Apply(CkbProbeEntry::from(raw))), now);
    }
    let view = View {
        world: &world,
        limits: &Limits::default(),
        now,
    };
    let order = orders(view).remove(NODE).unwrap_or_default();
    Ok(order.assignments)
}
