//! The operator beside a large cluster: 1,000 nodes and 5,000 targets that exist in the API alone. docs/scale.md explains
//! the method.
//!
//! What is measured is the operator as it is released, as a process of its own, against a real API server. Nodes, pods and
//! agents are made up: nothing of the operator is linked in here.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use kube::{Client, api::ListParams};
use tokio::time::sleep;

use crate::{
    bench::{report::Report, statistics::summary},
    failure::{Failure, Result, expect},
    metrics::Metrics,
    report::Bound,
};

mod agents;
mod fleet;
mod operator;
mod orders;
mod requests;

use agents::{Agents, Say};
use fleet::{Fleet, Health};
use operator::Operator;
use orders::Orders;

/// How large, and what with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nodes.
    pub nodes: usize,
    /// Pods, each a target of one CkbProbe; one namespace for each fifty.
    pub pods: usize,
    /// How many changes of one pod are measured.
    pub changes: usize,
    /// For how many seconds it is looked at rest, and then under reports.
    pub seconds: u64,
    /// The operator's executable.
    pub operator: PathBuf,
    /// Where to write to.
    pub folder: PathBuf,
}

/// Targets of a CkbProbe, and of the small cluster that the large one is compared with.
pub const TARGETS: usize = 50;

/// Pods of a node.
pub const PODS_OF_A_NODE: usize = 5;

/// How often an agent reports.
pub const REPORT: Duration = Duration::from_secs(10);

/// Until every order is written.
const ORDERED: Duration = Duration::from_secs(600);

/// From the last change until nothing is in flight any more.
const SETTLE: Duration = Duration::from_secs(15);

/// All of it, one phase after the other. What was measured is in the report even where it fails.
pub async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let client = client().await?;
    alone(&client).await?;
    let mut fleet = Fleet::new(client.clone(), settings).await?;
    let mut operator = Operator::start(settings).await?;
    let orders = Orders::watch(client.clone());
    let agents = Agents::start(client.clone(), orders.clone());

    fleet.grow(TARGETS.min(settings.pods)).await?;
    fleet.ordered(&orders, ORDERED).await?;
    let small = changes(&operator, &fleet, &orders, &agents, settings).await?;
    let name = format!(
        "operator: CPU of a change of one pod, of {} targets",
        fleet.pods()
    );
    report.figure(name, small, "ms", None);

    growth(&operator, &mut fleet, &orders, settings, report).await?;
    rest(&operator, &client, &agents, settings, report).await?;

    let large = changes(&operator, &fleet, &orders, &agents, settings).await?;
    let name = format!(
        "operator: CPU of a change of one pod, of {} targets",
        fleet.pods()
    );
    report.figure(name, large, "ms", None);
    let ratio = one(large.median / small.median)?;
    let name = "operator: the second by the first".to_string();
    report.figure(name, ratio, "", Some(Bound::AtMost(1.25)));

    reports(&operator, &agents, settings, report).await?;
    agents.say(Say::Nothing);
    operator.expect_alive()?;
    report.figure(
        "operator: RSS at its highest".to_string(),
        one(operator.highest_mb()?)?,
        "MB",
        Some(Bound::AtMost(48.0)),
    );
    told(&mut operator, report).await
}

/// A client with the rights of an administrator.
async fn client() -> Result<Client> {
    let config = kube::Config::infer()
        .await
        .map_err(Failure::format("KUBECONFIG"))?;
    Ok(config.try_into()?)
}

/// Nodes of another's would be measured too, and ours would not be left alone by its controllers.
async fn alone(client: &Client) -> Result<()> {
    let nodes: kube::Api<k8s_openapi::api::core::v1::Node> = kube::Api::all(client.clone());
    let nodes = nodes.list_metadata(&ListParams::default()).await?.items;
    expect(nodes.is_empty(), "an API server without nodes", || {
        format!("{} of them", nodes.len())
    })
}

/// CPU milliseconds of changes of one pod, one after the other: a container restarts, and the order of its node has the new
/// one's id. The agents are silent meanwhile.
async fn changes(
    operator: &Operator,
    fleet: &Fleet,
    orders: &Orders,
    agents: &Agents,
    settings: &Settings,
) -> Result<crate::bench::statistics::Summary> {
    agents.say(Say::TheSame);
    sleep(REPORT + SETTLE).await;
    agents.say(Say::Nothing);
    sleep(Duration::from_secs(2)).await;
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
    let seconds = |time: Duration| one(time.as_secs_f64());
    let size = format!("{} nodes with {} targets", fleet.nodes(), fleet.pods());
    let name = |what: &str| format!("operator: {what}");
    report.figure(format!("{size}: made, by us"), seconds(made)?, "s", None);
    report.figure(
        name("from the first of them to the last order"),
        seconds(start.elapsed())?,
        "s",
        None,
    );
    let used = || Ok::<_, Failure>(operator.cpu_time()?.saturating_sub(before));
    report.figure(name("CPU until then"), seconds(used()?)?, "s", None);
    let sick = Instant::now();
    fleet.turn(Health::NotReady).await?;
    sleep(SETTLE).await;
    report.figure(
        name("CPU while nodes and pods were made, turned NotReady and changed"),
        seconds(used()?)?,
        "s",
        Some(Bound::AtMost(20.0)),
    );
    report.figure(
        format!("{size}: turned NotReady and changed"),
        seconds(sick.elapsed().saturating_sub(SETTLE))?,
        "s",
        None,
    );
    report.figure(name("RSS then"), one(operator.rss_mb()?)?, "MB", None);
    fleet.turn(Health::Ready).await?;
    sleep(SETTLE).await;
    report.figure(
        name("CPU with their recovery"),
        seconds(used()?)?,
        "s",
        None,
    );
    Ok(())
}

/// Every agent says the same again and again: the operator has nothing to write.
async fn rest(
    operator: &Operator,
    client: &Client,
    agents: &Agents,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    agents.say(Say::TheSame);
    sleep(REPORT * 6).await;
    let (start, cpu, said) = (Instant::now(), operator.cpu_time()?, agents.said());
    let before = requests::writes(client).await?;
    sleep(Duration::from_secs(settings.seconds)).await;
    let after = requests::writes(client).await?;
    let cores =
        operator.cpu_time()?.saturating_sub(cpu).as_secs_f64() / start.elapsed().as_secs_f64();
    let said = agents.said() - said;
    let written = requests::since(&before, &after);
    let total: f64 = written.values().sum();
    let name = format!("operator: writes at rest, while {said} reports say the same");
    report.figure(name, one(total)?, "", Some(Bound::Exactly(0.0)));
    for (what, count) in written.iter().filter(|(_, count)| **count > 0.0) {
        println!("                   {count} {what}");
    }
    report.figure(
        "operator: CPU at rest".to_string(),
        one(cores)?,
        "cores",
        None,
    );
    Ok(())
}

/// Every agent reports new figures.
async fn reports(
    operator: &Operator,
    agents: &Agents,
    settings: &Settings,
    report: &mut Report,
) -> Result<()> {
    agents.say(Say::More);
    sleep(REPORT * 2).await;
    let before = operator.scrape().await?;
    let (start, cpu, said) = (Instant::now(), operator.cpu_time()?, agents.said());
    sleep(Duration::from_secs(settings.seconds) * 2).await;
    let took = start.elapsed().as_secs_f64();
    let cores = operator.cpu_time()?.saturating_sub(cpu).as_secs_f64() / took;
    let said = (agents.said() - said) as f64 / took;
    let after = operator.scrape().await?;
    // Fewer than they have to say are an API server's that does not take them in time.
    let name = format!(
        "agents: reports that the API server took, of {} a second",
        settings.nodes as u64 / REPORT.as_secs()
    );
    report.figure(name, one(said)?, "a second", None);
    report.figure(
        "agents: bytes of a report".to_string(),
        one(agents.bytes() as f64)?,
        "",
        None,
    );
    let count = |metrics: &Metrics| {
        let kind = [("kind", "probe")];
        metrics
            .sum("ckb_probe_reconcile_duration_seconds_count", &kind)
            .unwrap_or_default()
    };
    let merged = (count(&after) - count(&before)) / took;
    report.figure(
        "operator: statuses written".to_string(),
        one(merged)?,
        "a second",
        None,
    );
    let rows = [
        (operator::MADE, "merging reports into a status"),
        (
            operator::WRITTEN,
            "the same with writing it and the API server's answer",
        ),
    ];
    for (metric, what) in rows {
        let Some(p99) = operator::quantile(metric, &before, &after, 0.99) else {
            report.failure(format!("operator: {what}"), "none was written".to_string());
            continue;
        };
        let name = format!("operator: {what}, p99");
        let bound = Some(Bound::AtMost(100.0));
        report.figure(name, one(p99 * 1000.0)?, "ms", bound);
    }
    report.figure(
        "operator: CPU while agents report".to_string(),
        one(cores)?,
        "cores",
        Some(Bound::AtMost(0.3)),
    );
    Ok(())
}

/// What the operator told of all that: nothing was wrong.
async fn told(operator: &mut Operator, report: &mut Report) -> Result<()> {
    let errors = operator
        .scrape()
        .await?
        .sum("ckb_probe_reconcile_errors_total", &[])
        .unwrap_or_default();
    let complaints = operator.stop().await?;
    for line in complaints.iter().take(10) {
        println!("                   {line}");
    }
    report.figure(
        "operator: warnings in its log".to_string(),
        one(complaints.len() as f64)?,
        "",
        Some(Bound::Exactly(0.0)),
    );
    report.figure(
        "operator: errors in its metrics".to_string(),
        one(errors)?,
        "",
        Some(Bound::Exactly(0.0)),
    );
    Ok(())
}

fn one(value: f64) -> Result<crate::bench::statistics::Summary> {
    summary([value]).ok_or_else(|| Failure::format("a figure")("there is no value"))
}
