//! A hundred agents whose reports are as long as they may be, and are asked for as often as they may be.

use std::time::Duration;

use kube::Client;
use serde_json::json;
use tokio::time::sleep;

use super::{
    MEMORY_MB, ORDERED, Settings,
    agents::{Agents, Say},
    fleet::Fleet,
    operator::Operator,
    orders::Orders,
    requests, told,
};
use crate::{
    bench::report::Report,
    failure::{Result, expect},
    report::Bound,
};

const NODES: usize = 100;

/// Probes of a CkbProbe, and rows of each: so many that a report is as long as one may be.
const PROBES: usize = 16;
const ROWS: usize = 80;

/// What agents fit a report into, and what is no full one.
const MOST_BYTES: u64 = 1_000_000;
const LEAST_BYTES: u64 = 800_000;

/// Nobody is reported on more often, by the operator's own default.
const SHORTEST: Duration = Duration::from_secs(5);

/// What an agent may write in a second.
const BYTES_PER_SECOND: f64 = 65_536.0;

/// Until agents have found what the API server takes.
const SETTLE: Duration = Duration::from_secs(60);

pub async fn measure(client: &Client, settings: &Settings, report: &mut Report) -> Result<()> {
    let probes: Vec<_> = (0..PROBES)
        .map(
            |index| json!({ "name": format!("calls-{index:02}"), "functions": { "match": format!("ckb_chain::verify::*step_{index}*") } }),
        )
        .collect();
    let fleet = Fleet::of(client.clone(), NODES, json!(probes)).await?;
    let mut fleet = fleet.impatient();
    let mut operator = Operator::start(settings).await?;
    let orders = Orders::watch(client.clone());
    let agents = Agents::start(client.clone(), orders.clone(), ROWS);
    fleet.grow(NODES).await?;
    fleet.ordered(&orders, ORDERED).await?;
    let before = requests::store_mb(client).await?;
    agents.say(Say::More(SHORTEST));
    sleep(SETTLE).await;
    agents.paces();
    agents.took();
    let (begun, cpu) = (std::time::Instant::now(), operator.cpu_time()?);
    sleep(Duration::from_secs(settings.seconds * 3)).await;
    let elapsed = begun.elapsed().as_secs_f64();
    let cores = operator.cpu_time()?.saturating_sub(cpu).as_secs_f64() / elapsed;
    let (bytes, paces, took) = (agents.bytes(), agents.paces(), agents.took());
    agents.say(Say::Nothing);
    expect(
        (LEAST_BYTES..=MOST_BYTES).contains(&bytes),
        format!("reports of {LEAST_BYTES} to {MOST_BYTES} bytes"),
        || bytes,
    )?;
    report.value("full: bytes of a report", bytes, "", None);
    let most = paces
        .iter()
        .map(|apart| bytes as f64 / apart)
        .fold(0.0, f64::max);
    let name = format!(
        "full: written by an agent in a second, the most of {}",
        paces.len()
    );
    report.value(name, most, "bytes", Some(Bound::AtMost(BYTES_PER_SECOND)));
    let name = "full: reports that the API server took";
    report.value(name, took.len() as f64 / elapsed, "a second", None);
    report.value("full: CPU of the operator", cores, "cores", None);
    let store = requests::store_mb(client).await? - before;
    report.value(
        "full: what etcd's file grew by meanwhile",
        store,
        "MB",
        None,
    );
    operator.expect_alive()?;
    let (name, highest) = (
        "full: RSS of the operator at its highest",
        operator.highest_mb()?,
    );
    report.value(name, highest, "MB", Some(Bound::AtMost(MEMORY_MB)));
    told("full", &mut operator, report).await
}
