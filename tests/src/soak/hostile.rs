//! Those who take all that they can get: a tenant by what it asks for, and a target by what it does.

use std::{
    fs,
    time::{Duration, Instant},
};

use ckb_probe_crds::{CkbProbe, Reason};
use futures::{TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::stage::Stage;
use crate::{
    cluster::Cluster,
    failure::{Failure, Result, expect},
    operations,
    process::Process,
    scene::{ATTACH, probe},
    wait,
    workload::{FixturePod, fixture_target},
};

/// The name of its pod, and the label of that.
const NAME: &str = "hostile";

/// How long a tenant goes on editing, and how often a second it does.
const EDITING: Duration = Duration::from_secs(6);
const EDITS_A_SECOND: u32 = 5;
const ALL_EDITS: u32 = EDITING.as_secs() as u32 * EDITS_A_SECOND;

/// CkbProbes of one pod: more than are measured, of which the rest are told so; and paused copies.
const ACTIVE: u32 = 140;
const PAUSED: u32 = 60;

/// Requests at a time.
const CONCURRENCY: usize = 8;

/// One who may edit a namespace, and has a pod in it.
struct Tenant<'a> {
    cluster: &'a Cluster,
    namespace: String,
    probes: Api<CkbProbe>,
}

/// A CkbProbe is edited five times a second, while more are made than are measured, and paused ones; then all of them go at once.
pub async fn tenant(stage: &mut Stage, dice: &mut fastrand::Rng) -> Result<()> {
    let namespace = format!("{}-{}", stage.namespace, dice.u32(..));
    let tenant = Tenant {
        cluster: &stage.cluster,
        probes: stage.cluster.api(&namespace),
        namespace,
    };
    let struck = tenant.strike(dice).await;
    // Whatever happened: nothing of its stays.
    let cleared = tenant.leave().await;
    struck.and(cleared)
}

impl Tenant<'_> {
    async fn strike(&self, dice: &mut fastrand::Rng) -> Result<()> {
        let all = Api::<Namespace>::all(self.cluster.client.clone());
        let namespace = json!({ "metadata": { "name": self.namespace } });
        let namespace =
            serde_json::from_value(namespace).map_err(Failure::format("a namespace"))?;
        all.create(&PostParams::default(), &namespace).await?;
        self.cluster.has_account(&self.namespace).await?;
        let pod = FixturePod {
            name: NAME,
            app: NAME,
            variant: "ground-truth",
            arguments: &["rocksdb_write 1 constant:0"],
        };
        self.make("edited", false).await?;
        pod.run(self.cluster, &self.namespace).await?;
        wait::until("the tenant's pod to be measured", ATTACH, async || {
            let status = self.cluster.status(&self.namespace, "edited").await?;
            expect(status.targets.attached == 1, "an attached target", || {
                format!("{:?}", status.targets)
            })
        })
        .await?;
        let seed = dice.u64(..);
        let (edits, ()) = futures::try_join!(self.edits(seed), self.crowds())?;
        expect(
            edits > ALL_EDITS / 2,
            format!("more than half of {ALL_EDITS} edits"),
            || edits,
        )?;
        wait::until("somebody to be told of the limit", ATTACH, async || {
            let all = self.probes.list(&ListParams::default()).await?;
            let beyond = all.items.iter().filter(|one| is_beyond(one)).count();
            expect(beyond > 0, "one beyond the limit", || beyond)
        })
        .await
    }

    /// Edits one CkbProbe over and over. Returns how many edits were taken.
    async fn edits(&self, seed: u64) -> Result<u32> {
        let mut dice = fastrand::Rng::with_seed(seed);
        let mut ticks = interval(Duration::from_secs(1) / EDITS_A_SECOND);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let begun = Instant::now();
        // None waits for the one before: an API server that is busy answers late.
        let mut edits = Vec::new();
        // On a machine that has no time for them ticks are skipped: it goes on until there were enough.
        let enough = ALL_EDITS as usize * 3 / 4;
        while begun.elapsed() < EDITING || edits.len() < enough {
            ticks.tick().await;
            let mut names = operations::names().to_vec();
            dice.shuffle(&mut names);
            names.truncate(dice.usize(1..names.len()));
            let rocksdb = json!({
                "operations": names,
                "byColumnFamily": dice.bool(),
                "slowThreshold": format!("{}us", dice.u32(1..1000)),
                "stacks": dice.bool(),
            });
            let probes = json!([{ "name": format!("p-{}", dice.u8(..)), "rocksdb": rocksdb }]);
            let patch = Patch::Merge(json!({ "spec": { "probes": probes } }));
            let all = self.probes.clone();
            edits.push(tokio::spawn(async move {
                all.patch("edited", &PatchParams::default(), &patch).await
            }));
        }
        let mut taken = 0;
        for edit in edits {
            taken += u32::from(edit.await.is_ok_and(|answer| answer.is_ok()));
        }
        Ok(taken)
    }

    /// Makes CkbProbes beyond what is measured, and paused ones.
    async fn crowds(&self) -> Result<()> {
        let active = (0..ACTIVE).map(|number| (format!("active-{number}"), false));
        let paused = (0..PAUSED).map(|number| (format!("paused-{number}"), true));
        stream::iter(active.chain(paused).map(Ok))
            .try_for_each_concurrent(CONCURRENCY, |(name, paused)| async move {
                self.make(&name, paused).await
            })
            .await
    }

    async fn make(&self, name: &str, paused: bool) -> Result<()> {
        let target = fixture_target(NAME, "ground-truth");
        let mut object = probe(&self.namespace, name, target, &operations::names(), "2s");
        object["spec"]["paused"] = json!(paused);
        let object = serde_json::from_value(object).map_err(Failure::format("a CkbProbe"))?;
        self.probes.create(&PostParams::default(), &object).await?;
        Ok(())
    }

    async fn leave(&self) -> Result<()> {
        self.cluster.release(&self.namespace).await?;
        let all = Api::<Namespace>::all(self.cluster.client.clone());
        all.delete(&self.namespace, &DeleteParams::background())
            .await?;
        Ok(())
    }
}

fn is_beyond(probe: &CkbProbe) -> bool {
    let conditions = probe.status.iter().flat_map(|status| &status.conditions);
    let mut reasons = conditions.map(|condition| &*condition.reason);
    reasons.any(|reason| reason == Reason::LimitExceeded.as_str())
}

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

/// A target forks, executes, maps, and makes threads as fast as it can, has thousands of descriptors, and is asked all that there is
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
