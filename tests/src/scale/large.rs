//! 1,000 nodes and 5,000 targets: what changes, reports and statuses take.

use std::time::{Duration, Instant};

use kube::Client;
use tokio::time::sleep;

use super::{
    ORDERED, REPORT, Settings, TARGETS,
    agents::{Agents, Say},
    fleet::{Fleet, Health},
    operator::{self, Operator},
    orders::Orders,
    requests, told,
};
use crate::{
    bench::{
        report::Report,
        statistics::{Summary, summary},
    },
    failure::{Failure, Result},
    metrics::Metrics,
    report::Bound,
};

/// An agent that says that it will report no sooner again leaves the operator alone for so long, and is not silent meanwhile.
const LULL: Duration = Duration::from_secs(180);

/// An API server takes reports in time that takes nearly all of them, 99 in 100 within this.
const IN_TIME: Duration = Duration::from_secs(1);

/// What a status may take, on the average, that is not the API server's, in milliseconds.
const OWN_MS: f64 = 100.0;

/// From the last change until nothing is in flight any more.
const SETTLE: Duration = Duration::from_secs(15);

/// All of it, one phase after the other. What was measured is in the report even where it fails.
pub async fn measure(client: &Client, settings: &Settings, report: &mut Report) -> Result<()> {
    let name = |fleet: &Fleet| {
        let targets = fleet.pods();
        format!("operator: CPU of a change of one pod, of {targets} targets")
    };
    let mut fleet = Fleet::large(client.clone(), settings.nodes).await?;
    let mut operator = Operator::start(settings).await?;
    let orders = Orders::watch(client.clone());
    let agents = Agents::start(client.clone(), orders.clone(), 0);

    fleet.grow(TARGETS.min(settings.pods)).await?;
    fleet.ordered(&orders, ORDERED).await?;
    let small = changes(&operator, &fleet, &orders, &agents, settings).await?;
    report.figure(name(&fleet), small, "ms", None);

    growth(&operator, &mut fleet, &orders, settings, report).await?;
    let all = All {
        operator: &operator,
        client,
        agents: &agents,
        settings,
    };
    rest(&all, report).await?;

    let large = changes(&operator, &fleet, &orders, &agents, settings).await?;
    report.figure(name(&fleet), large, "ms", None);
    let (name, ratio) = (
        "operator: the second by the first",
        large.median / small.median,
    );
    report.value(name, ratio, "", Some(Bound::AtMost(1.25)));

    reports(&all, report).await?;
    agents.say(Say::Nothing);
    operator.expect_alive()?;
    let (name, highest) = ("operator: RSS at its highest", operator.highest_mb()?);
    report.value(name, highest, "MB", Some(Bound::AtMost(48.0)));
    told("operator", &mut operator, report).await
}

/// Who plays when reports come.
struct All<'a> {
    operator: &'a Operator,
    client: &'a Client,
    agents: &'a Agents,
    settings: &'a Settings,
}

/// CPU milliseconds of changes of one pod, one after the other: a container restarts, and the order of its node has the new
/// one's id. Agents report nothing meanwhile, and nobody waits for them.
async fn changes(
    operator: &Operator,
    fleet: &Fleet,
    orders: &Orders,
    agents: &Agents,
    settings: &Settings,
) -> Result<Summary> {
    agents.say(Say::TheSame(LULL));
    // Each has said so by then, unless it is still at it.
    sleep(REPORT + Duration::from_secs(1)).await;
    let begun = Instant::now();
    while agents.under_way() > 0 && begun.elapsed() < LULL / 3 {
        sleep(Duration::from_millis(100)).await;
    }
    operator.calm().await?;
    let mut costs = Vec::new();
    for round in 0..5 {
        let before = operator.cpu_time()?;
        let each = settings.changes.div_ceil(5);
        for change in 0..each {
            let id = fleet
                .restart(change % TARGETS.min(settings.pods), round)
                .await?;
            orders.hold(&id, Duration::from_secs(60)).await?;
        }
        // The status follows.
        sleep(Duration::from_millis(1500)).await;
        let used = operator.cpu_time()?.saturating_sub(before);
        costs.push(used.as_secs_f64() * 1000.0 / each as f64);
    }
    summary(costs).ok_or_else(|| Failure::format("changes")("none"))
}

/// All nodes and pods are made, turn unready, change, and recover.
async fn growth(
    operator: &Operator,
    fleet: &mut Fleet,
    orders: &Orders,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    let (start, before) = (Instant::now(), operator.cpu_time()?);
    fleet.grow(settings.pods).await?;
    let made = start.elapsed();
    fleet.ordered(orders, ORDERED).await?;
    let size = format!("{} nodes with {} targets", fleet.nodes(), fleet.pods());
    let used = || Ok::<_, Failure>(operator.cpu_time()?.saturating_sub(before));
    report.value(format!("{size}: made, by us"), made, "s", None);
    let name = "operator: from the first of them to the last order";
    report.value(name, start.elapsed(), "s", None);
    report.value("operator: CPU until then", used()?, "s", None);
    let sick = Instant::now();
    fleet.turn(Health::NotReady).await?;
    sleep(SETTLE).await;
    let name = "operator: CPU while nodes and pods were made, turned NotReady and changed";
    report.value(name, used()?, "s", Some(Bound::AtMost(20.0)));
    let name = format!("{size}: turned NotReady and changed");
    let turned = sick.elapsed().saturating_sub(SETTLE);
    report.value(name, turned, "s", None);
    report.value("operator: RSS then", operator.rss_mb()?, "MB", None);
    fleet.turn(Health::Ready).await?;
    sleep(SETTLE).await;
    report.value("operator: CPU with their recovery", used()?, "s", None);
    Ok(())
}

/// Every agent says the same again and again: the operator has nothing to write.
async fn rest(all: &All<'_>, report: &mut Report) -> Result<()> {
    all.agents.say(Say::TheSame(REPORT));
    sleep(REPORT * 6).await;
    all.agents.took();
    let (start, cpu) = (Instant::now(), all.operator.cpu_time()?);
    let before = requests::writes(all.client).await?;
    sleep(Duration::from_secs(all.settings.seconds)).await;
    let after = requests::writes(all.client).await?;
    let cores =
        all.operator.cpu_time()?.saturating_sub(cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    let said = all.agents.took().len();
    let written = requests::since(&before, &after);
    let total: f64 = written.values().sum();
    let name = format!("operator: writes at rest, while {said} reports say the same");
    report.value(name, total, "", Some(Bound::Exactly(0.0)));
    for (what, count) in written.iter().filter(|(_, count)| **count > 0.0) {
        println!("                   {count} {what}");
    }
    report.value("operator: CPU at rest", cores, "cores", None);
    Ok(())
}

/// Every agent reports new figures: as often as is asked of it, and where the API server does not take that in time, as often as it
/// does.
async fn reports(all: &All<'_>, report: &mut Report) -> Result<()> {
    report.value("agents: bytes of a report", all.agents.bytes(), "", None);
    let every = &all.settings.every;
    for (place, seconds) in every.iter().enumerate() {
        let load = load(all, Duration::from_secs(*seconds)).await?;
        let last = load.in_time || place + 1 == every.len();
        if place == 0 || last {
            load.tell(report, place == 0);
        }
        if last {
            return Ok(());
        }
    }
    Ok(())
}

/// What was measured while reports came so often.
struct Load {
    /// Reports a second: asked for, and taken.
    asked: f64,
    taken: f64,
    /// Whether the API server took them in time.
    in_time: bool,
    /// Seconds that 99 in 100 took at the most.
    took: f64,
    /// Statuses a second.
    statuses: f64,
    /// Milliseconds, p99, where any was written.
    made: Option<f64>,
    written: Option<f64>,
    /// What writing one takes, on the average.
    split: Option<Split>,
    cores: f64,
}

/// Milliseconds of a status, from when it is begun until it is answered.
#[derive(Clone, Copy)]
struct Split {
    /// All of it.
    all: f64,
    /// From when its request is there until its answer is sent, by the API server's own count.
    server: f64,
}

async fn load(all: &All<'_>, every: Duration) -> Result<Load> {
    all.agents.say(Say::More(every));
    // Until agents have found what the API server takes.
    sleep(every * 3).await;
    all.agents.took();
    let requests = requests::statuses(all.client).await?;
    let before = all.operator.scrape().await?;
    let (start, cpu) = (Instant::now(), all.operator.cpu_time()?);
    sleep(Duration::from_secs(all.settings.seconds) * 2).await;
    let elapsed = start.elapsed().as_secs_f64();
    let cores = all.operator.cpu_time()?.saturating_sub(cpu).as_secs_f64() / elapsed;
    let mut took = all.agents.took();
    let after = all.operator.scrape().await?;
    let requests = requests::statuses(all.client).await?.since(requests);
    took.sort();
    let slowest = took.get(took.len() * 99 / 100).copied().unwrap_or_default();
    let asked = all.settings.nodes as f64 / every.as_secs_f64();
    let taken = took.len() as f64 / elapsed;
    let count = |metrics: &Metrics| {
        let (name, kind) = (
            "ckb_probe_reconcile_duration_seconds_count",
            [("kind", "probe")],
        );
        metrics.sum(name, &kind).unwrap_or_default()
    };
    let p99 = |metric: &str| {
        let seconds = operator::quantile(metric, &before, &after, 0.99);
        seconds.map(|seconds| seconds * 1000.0)
    };
    Ok(Load {
        asked,
        taken,
        in_time: slowest <= IN_TIME && taken >= 0.95 * asked,
        took: slowest.as_secs_f64(),
        statuses: (count(&after) - count(&before)) / elapsed,
        made: p99(operator::MADE),
        written: p99(operator::WRITTEN),
        split: operator::mean(operator::WRITTEN, &before, &after)
            .zip(requests.mean_ms())
            .map(|(seconds, server)| Split {
                all: seconds * 1000.0,
                server,
            }),
        cores,
    })
}

impl Load {
    /// `full` where it is all that is asked for.
    fn tell(&self, report: &mut Report, full: bool) {
        let Self {
            asked,
            taken,
            in_time,
            took,
            statuses,
            made,
            written,
            split,
            cores,
        } = self;
        let of = match in_time {
            true => format!("of {asked:.0} reports a second"),
            false => format!("of {asked:.0} reports a second, too many for this API server"),
        };
        let name = |what: &str| format!("{what}, {of}");
        for (what, value, unit) in [
            ("agents: taken by the API server", taken, "a second"),
            ("agents: writing a report, p99", took, "s"),
            ("operator: statuses written", statuses, "a second"),
        ] {
            report.value(name(what), *value, unit, None);
        }
        let at_most = |bound: f64, so: bool| so.then_some(Bound::AtMost(bound));
        let rows = [
            (made, "operator: merging reports into a status, p99", full),
            // Of the API server that is short of time nothing is asked.
            (
                written,
                "operator: the same with writing it and the API server's answer, p99",
                *in_time,
            ),
        ];
        for (p99, what, bound) in rows {
            match p99 {
                Some(p99) => report.value(name(what), *p99, "ms", at_most(100.0, bound)),
                None => report.failure(name(what), "none was written"),
            }
        }
        let what = "operator: CPU while agents report";
        report.value(name(what), *cores, "cores", at_most(0.3, full));
        let what = "operator: a status, from its beginning to its answer, mean";
        let Some(Split { all, server }) = split else {
            return report.failure(name(what), "none was written");
        };
        let own = all - server;
        for (what, value, bound) in [
            (what, *all, None),
            (
                "operator: of that, the API server's by its own count",
                *server,
                None,
            ),
            // However short of time the API server is.
            (
                "operator: of that, all else: its own, and the way there and back",
                own,
                Some(Bound::AtMost(OWN_MS)),
            ),
        ] {
            report.value(name(what), value, "ms", bound);
        }
    }
}
