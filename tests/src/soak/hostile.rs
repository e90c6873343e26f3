//! A target that takes all that it can get, by what it does.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde::Deserialize;
use serde_json::{Value, json};

use super::stage::Stage;
use crate::{
    failure::{Failure, Result, expect},
    process::Process,
    scene::ATTACH,
    wait,
    workload::{FixturePod, fixture_target},
};

/// The name of its pod, and the label of that.
const NAME: &str = "hostile";

/// For how long a target is wild.
const WILD_SECONDS: &str = "6";

/// What it says that it did.
#[derive(Debug, Deserialize)]
struct Did {
    descriptors: u64,
    threads: u64,
    execs: u64,
    maps: u64,
    calls: u64,
}

/// A target forks, executes, maps, and makes threads as fast as it can, has ten thousands of descriptors, and is asked all that there is
/// to be asked about that.
pub async fn target(stage: &mut Stage, dice: &mut fastrand::Rng) -> Result<()> {
    let name = format!("{NAME}-{}", dice.u32(..));
    let agent = stage.cluster.agent().await?.process;
    let pod = FixturePod {
        name: &name,
        app: NAME,
        variant: "wild",
        arguments: &[WILD_SECONDS],
    };
    let mut manifest = pod.manifest(&stage.namespace);
    // What it takes is its own.
    let resources = json!({ "limits": { "cpu": "500m", "memory": "256Mi" } });
    manifest["spec"]["containers"][0]["resources"] = resources;
    stage.cluster.apply(&manifest).await?;
    stage.cluster.apply(&questions(&stage.namespace)).await?;
    let wild = pod.running(&stage.cluster, &stage.namespace, &name).await?;
    stage.attached(NAME, 1).await?;
    wild.begin()?;
    let result = wild.process.path("/out/truth.json");
    let did: Did = wait::until("a target that was wild", ATTACH, async || {
        let text = fs::read(&result).map_err(Failure::at(&result))?;
        serde_json::from_slice(&text).map_err(Failure::format("what it did"))
    })
    .await?;
    expect(
        did.descriptors > 1_000 && did.threads > 300 && did.execs > 10 && did.maps > 1_000,
        "thousands of descriptors and maps, hundreds of threads, and execs",
        || format!("{did:?}"),
    )?;
    expect(did.calls > 10_000, "ten thousands of calls", || did.calls)?;
    same(agent, stage.cluster.agent().await?.process)?;
    stage.unmeasure(NAME).await?;
    let pods = stage.cluster.api::<Pod>(&stage.namespace);
    pods.delete(&name, &DeleteParams::default()).await?;
    wait::until("the wild pod to go", ATTACH, async || {
        let pod = pods.get_opt(&name).await?;
        expect(pod.is_none(), "no pod", || name.clone())
    })
    .await
}

/// An agent that a target has ended is no matter of that target alone.
fn same(before: Process, now: Process) -> Result<()> {
    expect(before == now, "the agent of before", || {
        format!("{} in place of {}", now.pid, before.pid)
    })
}

/// All that looks at what such a target does, within a budget.
fn questions(namespace: &str) -> Value {
    json!({
        "apiVersion": "ckbprobe.dev/v1alpha1",
        "kind": "CkbProbe",
        "metadata": { "namespace": namespace, "name": NAME },
        "spec": {
            "target": fixture_target(NAME, "wild"),
            "overhead": { "maxPercent": 1, "onBreach": "Sample" },
            "reportInterval": "1s",
            "probes": [
                { "name": "calls", "functions": { "match": "wild_*", "threshold": "1us", "stacks": true } },
                { "name": "system", "syscalls": { "slowThreshold": "1ms" } },
                { "name": "sockets", "tcp": {} },
                { "name": "children", "processes": {} },
                { "name": "flames", "profile": { "modes": ["Cpu", "OffCpu", "Memory", "Threads"], "window": "2s", "every": "10s" } },
            ],
        },
    })
}
