//! Every kind at once, on one target and under one budget: each answers or says why not, and none takes another down.

use std::time::Duration;

use ckb_probe_crds::{CkbProbeStatus, Kind, ProbeStatus, condition};
use serde_json::json;

use crate::{
    failure::{Failure, Result, expect},
    report::Bound,
    scene::{ATTACH, PROBE, Scene, workload_target},
    workload::{Load, Workload},
};

/// What a kernel without kprobes cannot give; whatever else is asked beside it goes on.
const MAY_BE_REFUSED: &str = "kernel";

/// What every workload does all the time. The others are well without.
const BUSY: [&str; 3] = ["storage", "library", "calls"];

const MAX_PERCENT: f64 = 5.0;

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let workload = scene.workload;
    workload
        .deploy(scene.cluster, &scene.namespace, Load::Steady)
        .await?;
    let library = match workload {
        Workload::Rocksdb => json!({ "match": "rocksdb_get_pinned_cf", "library": "librocksdb" }),
        Workload::Ckb => json!({ "match": "rocksdb_get_pinned_cf" }),
    };
    let probe = json!({
        "apiVersion": "ckbprobe.dev/v1alpha1",
        "kind": "CkbProbe",
        "metadata": { "name": PROBE, "namespace": scene.namespace },
        "spec": {
            "target": workload_target(),
            "overhead": { "maxPercent": MAX_PERCENT },
            "reportInterval": "2s",
            "probes": [
                { "name": "storage", "rocksdb": {} },
                { "name": "library", "functions": library },
                { "name": MAY_BE_REFUSED, "kernelFunctions": { "match": "vfs_read" } },
                { "name": "calls", "syscalls": {} },
                { "name": "disks", "blockIo": {} },
                { "name": "peers", "tcp": {} },
                { "name": "ends", "processes": {} },
            ],
        },
    });
    scene.apply_probe(probe).await?;
    let status = scene
        .status("an answer of every kind", ATTACH * 2, answered)
        .await?;
    scene.equal(
        "kinds that are asked at once",
        status.probes.len() as u64,
        "",
        Kind::ALL.len() as u64,
    );
    for probe in &status.probes {
        println!(
            "          {}: {} {}",
            probe.name, probe.headline, probe.message
        );
    }
    let refused = status
        .probes
        .iter()
        .filter(|probe| probe.targets.attached == 0)
        .map(|probe| probe.name.as_str());
    let others = refused.filter(|name| *name != MAY_BE_REFUSED);
    scene.equal(
        "kinds that are not attached, but for functions of a kernel that has no kprobes",
        others.count() as u64,
        "",
        0,
    );

    // One budget for all of them: held by sampling, if it takes that.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let status = scene
        .status("the budget to be kept", ATTACH * 2, |status| {
            let within = status
                .conditions
                .iter()
                .any(|one| one.type_ == condition::WITHIN_BUDGET && one.status == "True");
            expect(within, "WithinBudget", || {
                format!("{:?}", status.conditions)
            })
        })
        .await?;
    let estimate = status.overhead.estimated_percent.unwrap_or_default();
    let estimate: f64 = estimate.parse().map_err(Failure::format("the estimate"))?;
    scene.figure(
        "estimated overhead of all kinds together, as a part of maxPercent",
        estimate / MAX_PERCENT,
        "",
        Bound::AtMost(1.1),
    );
    Ok(())
}

/// Every probe is attached, or refused with a word; and what is busy has figures.
fn answered(status: &CkbProbeStatus) -> Result<()> {
    let told = |probe: &&ProbeStatus| probe.targets.attached == 1 || !probe.message.is_empty();
    let silent = status.probes.iter().find(|probe| !told(probe));
    expect(
        !status.probes.is_empty() && silent.is_none(),
        "every probe attached or refused",
        || format!("{silent:?}"),
    )?;
    for name in BUSY {
        let probe = status.probes.iter().find(|probe| probe.name == name);
        let counted = |probe: &ProbeStatus| {
            let mut rows = probe.rows.iter();
            rows.any(|row| row.figures.get("count").is_some_and(|count| count != "0"))
        };
        expect(
            probe.is_some_and(counted),
            format!("figures of {name}"),
            || format!("{probe:?}"),
        )?;
    }
    Ok(())
}
