//! A CkbProbe with as many profiles as it may ask for, beside thousands of paused copies of it: who is paused takes nothing from who
//! is measured, and has no profile itself.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use ckb_probe_crds::{CkbProfile, ProfileMode};
use k8s_openapi::ByteString;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use serde_json::json;
use tokio::time::sleep;

use super::{
    MEMORY_MB, ORDERED, Settings,
    fleet::{CKB_PROBE, Fleet, namespace_name},
    operator::Operator,
    orders::Orders,
    parts::{MODES, Slots, part, pprof, windows},
    told,
};
use crate::{
    bench::report::Report,
    failure::{Failure, Result, expect},
    report::Bound,
    wait,
};

/// Probes of the CkbProbe: as many as one may have.
const PROBES: usize = 16;

/// Windows that are published, one after the other.
const WINDOWS: u64 = 3;

/// From one window to the next. What was not published by then stands in the way of the next one.
const EVERY: Duration = Duration::from_secs(60);

/// Bytes of a part of a profile.
const BYTES: usize = 20_000;

/// Until the operator has told each of the copies that it is paused.
const TOLD: Duration = Duration::from_secs(300);

pub async fn measure(client: &Client, settings: &Settings, report: &mut Report) -> Result<()> {
    let probes: Vec<_> = (0..PROBES)
        .map(|index| {
            json!({
                "name": format!("flames-{index:02}"),
                "profile": { "modes": MODES, "window": "10s", "every": "1m", "keep": 50 },
            })
        })
        .collect();
    let mut fleet = Fleet::of(client.clone(), 1, json!(probes)).await?;
    let mut operator = Operator::start(settings).await?;
    let orders = Orders::watch(client.clone());
    fleet.grow(1).await?;
    fleet.ordered(&orders, ORDERED).await?;
    let copies = settings.copies;
    let start = Instant::now();
    fleet.paused_copies(copies).await?;
    let is_idle = operator.idle(TOLD).await?;
    expect(
        is_idle,
        "an operator with nothing to do",
        || "it was busy until the end",
    )?;
    let name = format!("paused: until {copies} copies are made and were told");
    report.value(name, start.elapsed(), "s", None);

    let profiles: Api<CkbProfile> = Api::namespaced(client.clone(), &namespace_name(0));
    let stacks: Vec<_> = MODES.map(|mode| (mode, pprof(mode, BYTES))).into();
    let cpu = operator.cpu_time()?;
    let mut slowest = Duration::ZERO;
    for number in windows(EVERY, WINDOWS) {
        let begun = Instant::now();
        window(client, &orders, &stacks, number).await?;
        let published = wait::until("the profiles of a window", EVERY * 3, async || {
            let there = of_window(&profiles, number).await?;
            let expected = PROBES * MODES.len();
            expect(there == expected, format!("{expected} profiles"), || there)
        });
        published.await?;
        slowest = slowest.max(begun.elapsed());
    }
    let used = operator.cpu_time()?.saturating_sub(cpu) / WINDOWS as u32;
    let name = format!(
        "paused: until all {} profiles of a window are published of the one that is active",
        PROBES * MODES.len()
    );
    let bound = Some(Bound::AtMost(EVERY.as_secs_f64()));
    report.value(name, slowest, "s", bound);
    report.value("paused: CPU of the operator for a window", used, "s", None);
    let of_others = list(&profiles).await?;
    let of_others = of_others.iter().filter(|(of, _)| of != CKB_PROBE).count();
    let none = Some(Bound::Exactly(0.0));
    report.value("paused: profiles of paused copies", of_others, "", none);
    operator.expect_alive()?;
    let (name, highest) = (
        "paused: RSS of the operator at its highest",
        operator.highest_mb()?,
    );
    report.value(name, highest, "MB", Some(Bound::AtMost(MEMORY_MB)));
    told("paused", &mut operator, report).await
}

/// The parts of a window, as the agent of the one node writes them: each as soon as a name is free.
async fn window(
    client: &Client,
    orders: &Orders,
    stacks: &[(ProfileMode, ByteString)],
    number: u64,
) -> Result<()> {
    let node = orders.nodes().pop().unwrap_or_default();
    let order = orders
        .of(&node)
        .and_then(|(_, order)| order.assignments.first().cloned());
    let order = order.ok_or_else(|| Failure::missing("an order"))?;
    let mut slots = Slots::of(client, &node);
    for probe in &order.probes {
        for (mode, pprof) in stacks {
            let part = part(&order, &probe.name, *mode, number, pprof);
            while !slots.write(&part).await? {
                sleep(Duration::from_millis(500)).await;
            }
        }
    }
    Ok(())
}

async fn of_window(profiles: &Api<CkbProfile>, number: u64) -> Result<usize> {
    let end = format!(".{number}");
    let all = list(profiles).await?;
    let own = all
        .iter()
        .filter(|(of, rest)| of == CKB_PROBE && rest.ends_with(&end));
    Ok(own.collect::<BTreeSet<_>>().len())
}

/// The CkbProbe of each profile, and the rest of its name. Names of CkbProbes have no dots.
async fn list(profiles: &Api<CkbProfile>) -> Result<Vec<(String, String)>> {
    let all = profiles.list_metadata(&ListParams::default()).await?;
    let names = all.items.iter().map(|one| one.name_any());
    let halves = names.map(|name| {
        let (of, rest) = name.split_once('.').unwrap_or((&name, ""));
        (of.to_string(), rest.to_string())
    });
    Ok(halves.collect())
}
