//! No operator for an hour, while agents measure on: what they leave in the API server's store has an end, and an operator that
//! comes back clears it away.

use std::time::{Duration, Instant};

use ckb_probe_crds::{PART_SLOTS, ProfileMode, ProfilePart};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::ByteString;
use kube::{Api, Client, api::ListParams};
use serde_json::json;
use tokio::time::sleep;

use super::{
    MEMORY_MB, ORDERED, REPORT, Settings,
    agents::{Agents, OPERATIONS, Say},
    fleet::Fleet,
    operator::Operator,
    orders::Orders,
    parts::{MODES, Slots, part, pprof, windows},
    requests, told,
};
use crate::{
    bench::report::Report,
    cluster::SYSTEM,
    failure::{Failure, Result, expect},
    report::Bound,
    wait,
};

const NODES: usize = 20;

/// Each with a target of a CkbProbe.
const PODS: usize = 100;

/// Windows of an hour that begin every ten minutes.
const WINDOWS: u64 = 6;
const EVERY: Duration = Duration::from_secs(600);

/// Bytes of a part of a profile.
const BYTES: usize = 60_000;

/// The API server lets go of versions that are older than five minutes, and looks every five minutes: its store holds no more than
/// the reports of ten. That is so many of each agent, which are written here one soon after the other.
const REPORTS: u32 = 60;
const SOON: Duration = Duration::from_millis(1_000);

/// Until parts and statuses are as they should be again.
const BACK: Duration = Duration::from_secs(600);

pub async fn measure(client: &Client, settings: &Settings, report: &mut Report) -> Result<()> {
    let probes = json!([
        { "name": "storage", "rocksdb": { "operations": OPERATIONS } },
        { "name": "flames", "profile": { "modes": MODES, "every": "10m" } },
    ]);
    let mut fleet = Fleet::of(client.clone(), NODES, probes).await?;
    let mut operator = Operator::start(settings).await?;
    let orders = Orders::watch(client.clone());
    let agents = Agents::start(client.clone(), orders.clone(), 0);
    fleet.grow(PODS).await?;
    fleet.ordered(&orders, ORDERED).await?;
    agents.say(Say::More(REPORT));
    sleep(REPORT * 3).await;
    told("away, before", &mut operator, report).await?;
    drop(operator);

    let before = requests::store_mb(client).await?;
    let stacks: Vec<_> = MODES.map(|mode| (mode, pprof(mode, BYTES))).into();
    agents.say(Say::Nothing);
    let written = parts(client, &orders, &stacks).await?;
    let name = format!("away: parts written by {NODES} agents, each of {BYTES} bytes");
    let most = NODES * usize::from(PART_SLOTS);
    report.value(name, written, "", Some(Bound::AtMost(most as f64)));
    let name = "away: what etcd's file grew by for parts";
    let of_parts = requests::store_mb(client).await?;
    report.value(name, of_parts - before, "MB", Some(Bound::AtMost(50.0)));
    agents.took();
    agents.say(Say::More(SOON));
    let reports = NODES * REPORTS as usize;
    let mut said = 0;
    let all = wait::until("the reports", ORDERED, async || {
        said += agents.took().len();
        expect(said >= reports, format!("{reports} reports"), || said)
    });
    all.await?;
    agents.say(Say::More(REPORT));
    let name = format!(
        "away: and for {said} reports of {} bytes, as it does with an operator",
        agents.bytes()
    );
    let of_reports = requests::store_mb(client).await? - of_parts;
    report.value(name, of_reports, "MB", None);

    let start = Instant::now();
    let mut operator = Operator::start(settings).await?;
    let left: Api<ProfilePart> = Api::namespaced(client.clone(), SYSTEM);
    wait::until("the parts to go", BACK, async || {
        let left = left
            .list_metadata(&ListParams::default())
            .await?
            .items
            .len();
        expect(left == 0, "no parts", || left)
    })
    .await?;
    let name = "away: until the next operator has taken them all";
    let bound = Some(Bound::AtMost(BACK.as_secs_f64()));
    report.value(name, start.elapsed(), "s", bound);
    let (name, highest) = (
        "away: RSS of the next operator at its highest",
        operator.highest_mb()?,
    );
    report.value(name, highest, "MB", Some(Bound::AtMost(MEMORY_MB)));
    told("away, after", &mut operator, report).await
}

/// What agents write of an hour's windows, until they find no name free. Returns how many.
async fn parts(
    client: &Client,
    orders: &Orders,
    stacks: &[(ProfileMode, ByteString)],
) -> Result<usize> {
    let of_node = |node: String| async move {
        let (_, order) = orders
            .of(&node)
            .ok_or_else(|| Failure::missing("an order"))?;
        let mut slots = Slots::of(client, &node);
        let mut written = 0;
        let mut due = Vec::new();
        for number in windows(EVERY, WINDOWS) {
            for order in &order.assignments {
                for (mode, pprof) in stacks {
                    due.push(part(order, "flames", *mode, number, pprof));
                }
            }
        }
        for part in &due {
            // The next is tried again later, and finds none free either.
            if !slots.write(part).await? {
                break;
            }
            written += 1;
        }
        Ok::<_, Failure>(written)
    };
    let all = stream::iter(orders.nodes())
        .map(of_node)
        .buffer_unordered(4);
    all.try_fold(0, async |sum, written| Ok(sum + written))
        .await
}
