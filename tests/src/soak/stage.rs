//! What is measured all the while, and whether it is measured rightly: a target that makes a known number of calls when it is
//! told to.

use std::time::{Duration, Instant};

use ckb_probe_crds::NodeProbe;
use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    jiff::Timestamp,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    bench::{report::Report, statistics::summary},
    cluster::{Cluster, NAMESPACE_PREFIX, SYSTEM},
    failure::{Result, expect},
    operations,
    process::Process,
    report::Bound,
    scene::{ATTACH, probe},
    wait,
    workload::{Fixture, FixturePod},
};

/// The name of the CkbProbe on what is measured all the while.
pub const STEADY: &str = "steady";

/// Calls a second, while it makes any.
pub(crate) const RATE: f64 = 500.0;

/// Of a stretch of time in which nothing is counted, calls at its very ends: one of each function.
pub(crate) const EDGES: f64 = 2.0;

/// A round has so many such stretches that are told at the most: for each change of what is asked of the target.
const STRETCHES: f64 = 6.0;

/// 2,500 calls in five seconds.
pub const FIVE_SECONDS: &[&str] = &[
    "rocksdb_get_pinned_cf 2000 constant:1000 rate:400",
    "rocksdb_transaction_commit 500 constant:1000 rate:100",
];

/// What is measured all the while, with what it calls in a round.
const fn fixture(plan: &'static [&'static str]) -> FixturePod<'static> {
    FixturePod {
        name: STEADY,
        app: STEADY,
        variant: "ground-truth",
        arguments: plan,
    }
}

/// The stage of a run.
pub struct Stage {
    /// The cluster.
    pub cluster: Cluster,
    /// Where everything of ours is.
    pub namespace: String,
    /// What is measured all the while.
    pub steady: Fixture,
    /// What it calls in a round.
    plan: &'static [&'static str],
    /// Faults so far.
    pub struck: u64,
}

/// Calls that are being made.
pub struct Round {
    /// The agent as they began.
    pub(crate) agent: Process,
    /// What it had counted by then.
    pub(crate) counted: f64,
    gap: f64,
    began: Instant,
}

impl Stage {
    /// Runs the target, which makes these calls in a round, and waits until it is attached to.
    pub async fn set(cluster: Cluster, plan: &'static [&'static str]) -> Result<Self> {
        let namespace = format!("{NAMESPACE_PREFIX}soak");
        let api = Api::<Namespace>::all(cluster.client.clone());
        let object = serde_json::from_value(json!({ "metadata": { "name": namespace } }))
            .map_err(crate::failure::Failure::format("a namespace"))?;
        wait::until("the namespace", ATTACH * 2, async || {
            Ok(api.create(&PostParams::default(), &object).await?)
        })
        .await?;
        cluster.has_account(&namespace).await?;
        let mut manifest = fixture(plan).manifest(&namespace);
        // A disk that can be filled without filling anybody else's.
        let spec = &mut manifest["spec"];
        let volume =
            json!({ "name": "full", "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" } });
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            volumes.push(volume);
        }
        if let Some(mounts) = spec["containers"][0]["volumeMounts"].as_array_mut() {
            mounts.push(json!({ "name": "full", "mountPath": "/full" }));
        }
        cluster.apply(&manifest).await?;
        let steady = fixture(plan).running(&cluster, &namespace, STEADY).await?;
        let stage = Self {
            cluster,
            namespace,
            steady,
            plan,
            struck: 0,
        };
        stage.measure(STEADY, STEADY, json!({})).await?;
        stage.attached(STEADY, 1).await?;
        Ok(stage)
    }

    /// Waits until what is measured all the while is back, as another process.
    pub async fn renew(&mut self) -> Result<()> {
        self.steady = fixture(self.plan)
            .running(&self.cluster, &self.namespace, STEADY)
            .await?;
        Ok(())
    }

    /// A CkbProbe on the pods with a label `app`; `overrides` replaces parts of its question.
    pub async fn measure(&self, name: &str, app: &str, overrides: Value) -> Result<()> {
        let target = json!({
            "selector": { "matchLabels": { "app": app } },
            "executable": "ground-truth",
        });
        let mut object = probe(&self.namespace, name, target, &operations::names(), "2s");
        for (key, value) in overrides.as_object().into_iter().flatten() {
            object["spec"]["probes"][0]["rocksdb"][key] = value.clone();
        }
        self.cluster.apply(&object).await
    }

    /// Waits until so many targets of a CkbProbe are attached, and no other is there.
    pub async fn attached(&self, name: &str, targets: u32) -> Result<()> {
        let what = format!("{targets} attached targets of {name}");
        wait::until(&what, ATTACH * 2, async || {
            let status = self.cluster.status(&self.namespace, name).await?;
            let counts = &status.targets;
            expect(
                (counts.matched, counts.attached) == (targets, targets),
                format!("{targets} targets, all attached"),
                || format!("{counts:?}, {:?}", status.conditions),
            )
        })
        .await
    }

    /// Runs a pod as the fixtures are.
    pub async fn pod(&self, name: &str, app: &str, arguments: &[&str]) -> Result<Fixture> {
        let pod = FixturePod {
            name,
            app,
            variant: "ground-truth",
            arguments,
        };
        pod.run(&self.cluster, &self.namespace).await
    }

    /// Deletes a pod, and waits until it is gone.
    pub async fn delete_pod(&self, name: &str) -> Result<()> {
        let pods = self.cluster.api::<Pod>(&self.namespace);
        pods.delete(name, &DeleteParams::default()).await?;
        wait::until("the pod to go", ATTACH, async || {
            let pod = pods.get_opt(name).await?;
            expect(pod.is_none(), "no pod", || name)
        })
        .await
    }

    /// Deletes a CkbProbe.
    pub async fn unmeasure(&self, name: &str) -> Result<()> {
        let probes = self
            .cluster
            .api::<ckb_probe_crds::CkbProbe>(&self.namespace);
        probes.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Has the target make its calls.
    pub async fn begin(&self) -> Result<Round> {
        let (agent, counted, gap) = wait::until("an agent", ATTACH * 2, async || {
            let agent = self.cluster.agent().await?;
            let metrics = agent.scrape().await?;
            let calls = self.counted(&metrics);
            // One that has yet to attach counts nothing.
            let attached = self.attached_of(&metrics);
            expect(attached, "an attached target", || attached)?;
            Ok((agent.process, calls, self.gap(&metrics)))
        })
        .await?;
        self.steady.begin()?;
        Ok(Round {
            agent,
            counted,
            gap,
            began: Instant::now(),
        })
    }

    /// Succeeds when the agent has reported since then, an operator leads, and the status is as it should be. It is not written
    /// again only because time passes.
    pub async fn current(&self, since: Timestamp) -> Result<()> {
        let nodes = self.cluster.api::<NodeProbe>(SYSTEM);
        let nodes = nodes.list(&ListParams::default()).await?;
        let reported = nodes.iter().filter_map(|node| {
            let status = node.status.as_ref()?;
            status.reported_at.as_ref().map(|time| time.0)
        });
        let reported = reported.max();
        expect(
            reported > Some(since),
            format!("a report after {since}"),
            || format!("{reported:?}"),
        )?;
        let agent = self.cluster.agent().await?.scrape().await?;
        let attached = self.attached_of(&agent);
        expect(attached, "a target that is attached to", || attached)?;
        let operator = self.cluster.operator().await?.scrape().await?;
        let leads = operator.sum("ckb_probe_operator_leader", &[]);
        expect(leads == Some(1.0), "an operator that leads", || {
            format!("{leads:?}")
        })?;
        let status = self.cluster.status(&self.namespace, STEADY).await?;
        let counts = &status.targets;
        expect(
            (counts.matched, counts.attached) == (1, 1),
            "an attached target",
            || format!("{counts:?}, {:?}", status.conditions),
        )
    }

    /// Waits for the calls, and says how many of them were counted.
    pub async fn end(&self, round: Round, name: &str, report: &mut Report) -> Result<()> {
        let gone = round.began.elapsed().as_secs_f64();
        let truth = self.steady.finish(ATTACH).await?;
        let made: u64 = truth.calls();
        let made = made as f64;
        let agent = self.cluster.agent().await?;
        let same = agent.process == round.agent;
        let before = if same { round.counted } else { 0.0 };
        // All of them, or as many as there will be: another agent than the one that saw them begin counts no more of them.
        let complete = wait::until("every call", Duration::from_secs(10), async || {
            let metrics = agent.scrape().await?;
            let counted = self.counted(&metrics) - before;
            let told = RATE * (self.gap(&metrics) - round.gap);
            expect(counted + told >= made, format!("{made} calls"), || {
                format!("{counted} counted, {told} in gaps")
            })
        });
        if same {
            let _ = complete.await;
        }
        let metrics = agent.scrape().await?;
        let counted = self.counted(&metrics) - before;
        let told = self.gap(&metrics) - round.gap;
        let (what, value, bound) = if same {
            let what = "calls that were made and not counted, but for gaps that are told";
            let edges = if told > 0.0 { EDGES * STRETCHES } else { 0.0 };
            (what, made - counted - RATE * told, Bound::AtMost(edges))
        } else {
            let what = "calls that no agent counted, of those made until one was attached again";
            let most = RATE * gone + EDGES;
            (what, made - counted, Bound::AtMost(most.min(made)))
        };
        let figure = summary([value]);
        if let Some(figure) = figure {
            report.figure(format!("{name}: {what} ({made})"), figure, "", Some(bound));
        }
        expect(
            counted <= made,
            format!("no more than {made} calls"),
            || counted,
        )
    }

    /// Calls while nothing goes wrong.
    pub async fn round(&self, report: &mut Report, name: &str) -> Result<()> {
        let round = self.begin().await?;
        self.end(round, name, report).await
    }

    /// How many targets that nobody killed have died.
    pub fn dead(&self) -> usize {
        usize::from(!self.steady.process.is_alive())
    }

    /// Prints what there is to know about a failure.
    pub async fn tell(&self) {
        for arguments in [
            &["-n", &self.namespace, "get", "pods,ckbprobes", "-o", "wide"][..],
            &["-n", &self.namespace, "get", "events"],
            &["-n", SYSTEM, "get", "pods,nodeprobes", "-o", "wide"],
        ] {
            match self.cluster.kubectl(arguments).await {
                Ok(text) => println!("{text}"),
                Err(error) => println!("{error}"),
            }
        }
    }

    /// Takes everything away.
    pub async fn clear(&self) -> Result<()> {
        self.cluster.release(&self.namespace).await?;
        let api = Api::<Namespace>::all(self.cluster.client.clone());
        api.delete(&self.namespace, &DeleteParams::background())
            .await?;
        Ok(())
    }

    fn labels(&self) -> [(&'static str, &str); 2] {
        [("namespace", &self.namespace), ("ckbprobe", STEADY)]
    }

    /// Seconds without a probe that are told.
    fn gap(&self, metrics: &crate::metrics::Metrics) -> f64 {
        let name = "ckb_probe_gap_seconds_total";
        metrics.total(name, &self.labels())
    }

    /// Whether an agent says that it is attached to what is measured all the while.
    pub(crate) fn attached_of(&self, metrics: &crate::metrics::Metrics) -> bool {
        metrics.sum("ckb_probe_target_attached", &self.labels()) == Some(1.0)
    }

    /// The calls that an agent has counted of it.
    pub(crate) fn counted(&self, metrics: &crate::metrics::Metrics) -> f64 {
        let name = "ckb_probe_operation_duration_seconds_count";
        metrics.total(name, &self.labels())
    }
}
