//! Where a scenario plays: a namespace of its own, the report it adds to, and what to tell when it fails.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use ckb_probe_crds::{CkbProbe, CkbProbeStatus, NodeProbe, Reason};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    bpf::{Code, Held},
    cluster::{AGENTS, Cluster, Component, NAMESPACE_PREFIX, OPERATORS, SYSTEM},
    failure::{Failure, Result, expect, read},
    fixture::repository,
    operations,
    process::Process,
    report::{Bound, Rows, Value as Figure},
    rows, wait,
    workload::{Fixture, FixturePod, Load, Target, Workload},
};

/// The name of every CkbProbe, unless a scenario needs several.
pub const PROBE: &str = "e2e";

/// From the CkbProbe to the first figures, at most: what the project promises.
pub const FIRST_FIGURES: Duration = Duration::from_secs(20);

/// Until a target is attached, where how long that takes is not what is measured.
pub const ATTACH: Duration = Duration::from_secs(60);

/// A scenario's stage.
pub struct Scene<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// The workload of this run.
    pub workload: Workload,
    /// The scenario's own namespace.
    pub namespace: String,
    /// Where its figures go.
    rows: Rows<'a>,
    namespaces: Vec<String>,
}

impl<'a> Scene<'a> {
    /// A stage without anything on it yet.
    pub fn new(
        name: &'static str,
        workload: Workload,
        cluster: &'a Cluster,
        rows: Rows<'a>,
    ) -> Self {
        Self {
            cluster,
            workload,
            namespace: format!("{NAMESPACE_PREFIX}{}", name.replace('_', "-")),
            rows,
            namespaces: Vec::new(),
        }
    }

    /// Makes the scenario's namespace.
    pub async fn set(&mut self) -> Result<()> {
        self.add_namespace(&self.namespace.clone()).await
    }

    /// Makes another namespace, whose name is the scenario's with this at the end.
    pub async fn another_namespace(&mut self, suffix: &str) -> Result<String> {
        let name = format!("{}-{suffix}", self.namespace);
        self.add_namespace(&name).await?;
        Ok(name)
    }

    async fn add_namespace(&mut self, name: &str) -> Result<()> {
        let object = Namespace {
            metadata: kube::core::ObjectMeta {
                name: Some(name.to_string()),
                ..Default::default()
            },
            ..Default::default()
        };
        let api = Api::<Namespace>::all(self.cluster.client.clone());
        // One of an earlier run may still be on its way out.
        wait::until("the namespace", Duration::from_secs(60), async || {
            Ok(api.create(&PostParams::default(), &object).await?)
        })
        .await?;
        self.namespaces.push(name.to_string());
        self.cluster.has_account(name).await
    }

    /// Adds a figure to the report.
    pub fn figure(&self, name: &str, value: impl Figure, unit: &str, bound: Bound) {
        self.rows.figure(name, value, unit, bound);
    }

    /// Adds a figure that must be exactly as expected.
    pub fn equal(&self, name: &str, value: impl Figure, expected: impl Figure) {
        self.equal_of(name, value, "", expected);
    }

    /// The same of a figure that has a unit, or is so many of some number.
    pub fn equal_of(&self, name: &str, value: impl Figure, unit: &str, expected: impl Figure) {
        self.figure(name, value, unit, Bound::Exactly(expected.value()));
    }

    /// Adds a time to the report.
    pub fn seconds(&self, name: &str, value: Duration, at_most: Duration) {
        let bound = Bound::AtMost(at_most.as_secs_f64());
        self.figure(name, value.as_secs_f64(), "s", bound);
    }

    /// How many of its rows have failed so far.
    pub fn failed(&self) -> usize {
        self.rows.failed()
    }

    /// Adds the scenario itself as what failed, and says why.
    pub fn fail(&self, error: &Failure) {
        self.rows.failure(&error.to_string());
    }

    /// `kubectl apply` of a CkbProbe that measures these operations of the pods with this label `app`.
    pub async fn apply_probe(&self, probe: Value) -> Result<Instant> {
        let applied = Instant::now();
        self.cluster.apply(&probe).await?;
        Ok(applied)
    }

    /// A CkbProbe of this scene: every call of every operation of the workload's, with short intervals.
    pub fn workload_probe(&self) -> Value {
        probe(
            &self.namespace,
            PROBE,
            workload_target(),
            &self.workload.operations(),
            "2s",
        )
    }

    /// A CkbProbe of config/samples, for this scene.
    pub fn sample(&self, name: &str) -> Result<Value> {
        let path = repository().join(format!("config/samples/{name}.yaml"));
        let what = path.display().to_string();
        let probe = serde_yaml::from_str(&read(path)?);
        let mut probe: Value = probe.map_err(Failure::format(what))?;
        probe["metadata"]["namespace"] = json!(self.namespace);
        probe["metadata"]["name"] = json!(PROBE);
        Ok(probe)
    }

    /// The objects of a kind in this scene's namespace.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        self.cluster.api(&self.namespace)
    }

    /// Deletes one of this scene's CkbProbes.
    pub async fn delete_probe(&self, name: &str) -> Result<()> {
        let api = self.api::<CkbProbe>();
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Has one of this scene's CkbProbes let go of its targets; returns it as it is then.
    pub async fn pause(&self, name: &str) -> Result<CkbProbe> {
        let pause = Patch::Merge(json!({ "spec": { "paused": true } }));
        let api = self.api::<CkbProbe>();
        Ok(api.patch(name, &PatchParams::default(), &pause).await?)
    }

    /// Deploys the workload, and returns when its process runs.
    pub async fn deploy(&self, load: Load) -> Result<Target> {
        let workload = self.workload;
        workload.deploy(self.cluster, &self.namespace, load).await
    }

    /// Runs a fixture.
    pub async fn run(&self, pod: FixturePod<'_>) -> Result<Fixture> {
        pod.run(self.cluster, &self.namespace).await
    }

    /// Runs a fixture, and has it make its calls.
    pub async fn begin(&self, pod: FixturePod<'_>) -> Result<Fixture> {
        let fixture = self.run(pod).await?;
        fixture.begin()?;
        Ok(fixture)
    }

    /// A CkbProbe that records every call of these operations of a fixture.
    pub fn probe_of(&self, name: &str, fixture: &FixturePod<'_>, operations: &[&str]) -> Value {
        probe(&self.namespace, name, fixture.target(), operations, "2s")
    }

    /// Has this scene's CkbProbe record every call of a fixture; returns the agent that does.
    pub async fn measure(&self, pod: &FixturePod<'_>, fixture: &Fixture) -> Result<Component> {
        let operations = operations::names();
        self.apply_probe(self.probe_of(PROBE, pod, &operations))
            .await?;
        let (_, agent) = self.attached(fixture.process, &operations).await?;
        Ok(agent)
    }

    /// The status of a CkbProbe of this scene, as it is now.
    pub async fn now(&self, name: &str) -> Result<CkbProbeStatus> {
        self.cluster.status(&self.namespace, name).await
    }

    /// Waits until so many calls are in the status of a CkbProbe of this scene, and says how many there are.
    pub async fn counted(&self, name: &str, calls: u64) -> Result<u64> {
        let what = format!("the calls in the status of {name}");
        wait::until(&what, ATTACH, async || {
            let count = rows::all_counted(&self.now(name).await?)?;
            expect(count >= calls, format!("{calls} calls"), || count)?;
            Ok(count)
        })
        .await
    }

    /// Waits for Events of a reason about a CkbProbe of this scene, and says how many there are.
    pub async fn events(&self, name: &str, reason: Reason) -> Result<u64> {
        wait::until("the Event", ATTACH, async || {
            let events = self.cluster.events(&self.namespace, name, reason).await?;
            expect(events > 0, format!("an Event {reason}"), || "none")?;
            Ok(events)
        })
        .await
    }

    /// Every function that the workload is to be probed at is, to begin with.
    pub fn probed(&self, code: &Code) -> Result<()> {
        let wanted = code.serving(&self.workload.operations()).len();
        self.equal(
            "functions with a probe before",
            code.probed()?.len(),
            wanted,
        );
        Ok(())
    }

    /// How long it takes until a process has no probe any more, and the kernel nothing of what an agent held.
    pub async fn freed(
        &self,
        code: &Code,
        held: &Held,
        since: Instant,
        limit: Duration,
    ) -> Result<()> {
        wait::closely("the probes to go", limit * 4, async || {
            code.expect_untouched()
        })
        .await?;
        self.seconds(
            "until no probe is left in the process",
            since.elapsed(),
            limit,
        );
        wait::until("the programs to go", limit * 4, async || {
            held.expect_gone().await
        })
        .await?;
        self.seconds(
            "until bpftool lists nothing of ours",
            since.elapsed(),
            limit,
        );
        Ok(())
    }

    /// Waits until a status of this scene's CkbProbe is as it must be.
    pub async fn status(
        &self,
        what: &str,
        limit: Duration,
        check: impl Fn(&CkbProbeStatus) -> Result<()>,
    ) -> Result<CkbProbeStatus> {
        wait::until(what, limit, async || {
            let status = self.now(PROBE).await?;
            check(&status)?;
            Ok(status)
        })
        .await
    }

    /// Waits until every target of this scene's CkbProbe is attached and fires.
    pub async fn firing(&self) -> Result<CkbProbeStatus> {
        self.status("the targets to fire", ATTACH, all_fire).await
    }

    /// Waits until every function of these operations that a process has is probed, as its own memory shows; and the
    /// agent that did it.
    pub async fn attached(
        &self,
        process: Process,
        operations: &[&str],
    ) -> Result<(Code, Component)> {
        wait::until("the probes", ATTACH, async || {
            let code = Code::of(process)?;
            let (wanted, probed) = (code.serving(operations), code.probed()?);
            expect(
                !wanted.is_empty() && probed == wanted,
                format!("probes at {wanted:?} in the process {}", process.pid),
                || format!("at {probed:?}"),
            )?;
            Ok((code, self.cluster.agent().await?))
        })
        .await
    }

    /// As [`Self::attached`], for the workload.
    pub async fn workload_attached(&self, process: Process) -> Result<(Code, Component)> {
        self.attached(process, &self.workload.operations()).await
    }

    /// The workload, every call of which is measured by the time this returns: it, its code, and the agent.
    pub async fn measured_workload(&self, load: Load) -> Result<(Target, Code, Component)> {
        let target = self.deploy(load).await?;
        self.apply_probe(self.workload_probe()).await?;
        self.firing().await?;
        let (code, agent) = self.workload_attached(target.process).await?;
        Ok((target, code, agent))
    }

    /// The workload, measured as in the demo.
    pub async fn demo(&self) -> Result<Target> {
        let target = self.deploy(Load::Steady).await?;
        self.apply_probe(self.sample("demo")?).await?;
        self.firing().await?;
        Ok(target)
    }

    /// Prints what there is to know about a failure: the objects, and what the programs said last.
    ///
    /// All of it at once: what others print meanwhile is not to stand in between.
    pub async fn tell(&self) {
        // Without the histograms, which are long and say little to a person.
        let orders = "go-template={{range .items}}{{.metadata.name}}: {{.status.agent}}{{range .status.instances}}\n\
                      {{.pod.namespace}}/{{.pod.name}} pid {{.pid}} {{.state}} {{.reason}} {{.message}}{{end}}\n{{end}}";
        let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
        for namespace in &self.namespaces {
            commands.push((namespace, vec!["get", "ckbprobes", "-o", "yaml"]));
            commands.push((namespace, vec!["get", "pods", "-o", "wide"]));
            commands.push((namespace, vec!["get", "events"]));
        }
        commands.push((SYSTEM, vec!["get", "nodeprobes", "-o", orders]));
        commands.push((SYSTEM, vec!["get", "pods", "-o", "wide"]));
        for labels in [AGENTS, OPERATORS] {
            commands.push((SYSTEM, vec!["logs", "--tail=200", "-l", labels]));
        }
        let mut told = String::new();
        for (namespace, command) in commands {
            let asked = command.join(" ");
            let _ = writeln!(
                told,
                "--- {}: kubectl -n {namespace} {asked}",
                self.rows.scenario()
            );
            match self
                .cluster
                .kubectl(&[&["-n", namespace], &command[..]].concat())
                .await
            {
                // Slow calls are lines of JSON in an agent's log, and may be thousands.
                Ok(text) => text
                    .lines()
                    .filter(|line| !line.starts_with('{'))
                    .for_each(|line| told += &format!("{line}\n")),
                Err(error) => told += &format!("{error}\n"),
            }
        }
        println!("{told}---");
    }

    /// Leaves the cluster as it was. The pods may take longer to go than anybody needs to wait.
    pub async fn clear(&self) -> Result<()> {
        for namespace in &self.namespaces {
            self.cluster.release(namespace).await?;
        }
        let api = Api::<Namespace>::all(self.cluster.client.clone());
        for namespace in &self.namespaces {
            api.delete(namespace, &DeleteParams::background()).await?;
        }
        Ok(())
    }

    /// Has the API server judge these manifests of this namespace, as if they were to be applied.
    pub async fn judged(&self, manifests: &str) -> Result<String> {
        let namespace = self.namespace.as_str();
        let arguments = ["-n", namespace, "apply", "--dry-run=server", "-f", "-"];
        crate::cluster::run("kubectl", &arguments, Some(manifests)).await
    }

    /// The orders that there are, over all nodes.
    pub async fn node_probes(&self) -> Result<Vec<NodeProbe>> {
        let api = self.cluster.api::<NodeProbe>(SYSTEM);
        Ok(api.list(&ListParams::default()).await?.items)
    }
}

/// Every target is attached and fires, and there is one at least.
pub fn all_fire(status: &CkbProbeStatus) -> Result<()> {
    let targets = &status.targets;
    expect(
        targets.matched > 0
            && targets.attached == targets.matched
            && targets.firing == targets.matched,
        "every target attached and firing",
        || format!("{targets:?}, conditions {:?}", status.conditions),
    )
}

/// The node among the workload's processes.
pub fn workload_target() -> Value {
    json!({ "selector": { "matchLabels": { "app": "ckb" } }, "container": "ckb" })
}

/// A CkbProbe that records every call, whatever that costs: what is counted is held against the truth to the last call.
/// By default it would be sampled, for lack of budget, which is the matter of a scenario of its own.
pub fn probe(
    namespace: &str,
    name: &str,
    target: Value,
    operations: &[&str],
    report_interval: &str,
) -> Value {
    let calls = json!({ "operations": operations, "includeSingleStepped": true });
    let spec = json!({
        "target": target,
        "overhead": { "onBreach": "Report" },
        "reportInterval": report_interval,
        "probes": [{ "name": "storage", "rocksdb": calls }],
    });
    ckb_probe(namespace, name, &spec)
}

/// A CkbProbe with this spec.
pub fn ckb_probe(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "ckbprobe.dev/v1alpha1",
        "kind": "CkbProbe",
        "metadata": { "name": name, "namespace": namespace },
        "spec": spec,
    })
}
