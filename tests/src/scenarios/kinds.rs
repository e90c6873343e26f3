//! What each kind tells of one target, at the same time: from the CkbProbe to the status, the metrics, the log and Events. What
//! the test itself does must be there to the last; all else is for tests of each kind by itself.

use ckb_probe_crds::{InstanceReport, ProbeReport, ProbeStatus, report::CUT};
use ckb_probe_testkit::disk::Disk;

use super::prelude::*;

mod block_io;
mod chain;
mod kernel_functions;
mod peer;
mod processes;
mod tcp;
mod traced;

/// More functions match than may, so it is refused.
const TOO_MANY: &str = "many";

/// What a kernel without kprobes cannot give; whatever else is asked beside it goes on.
const KERNEL: &str = "kernel";

/// From one report to the next.
const INTERVAL: Duration = Duration::from_secs(2);

/// Where all of it plays.
#[derive(Clone, Copy)]
struct Stage<'a> {
    scene: &'a Scene<'a>,
    target: &'a Target,
    agent: &'a Component,
}

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let scene = &*scene;
    let target = scene.deploy(Load::Serving).await?;
    let disk = block_io::disk().await?;
    scene.apply_probe(question(scene, &disk)).await?;
    let status = scene
        .status("an answer of every kind", ATTACH * 2, |status| {
            let open = status.probes.iter().find(|probe| !is_answered(probe));
            expect(
                !status.probes.is_empty() && open.is_none(),
                "every probe attached or refused",
                || format!("{open:?}"),
            )
        })
        .await?;
    let refused = |probe: &&ProbeStatus| probe.targets.attached == 0;
    let refused: Vec<&str> = status
        .probes
        .iter()
        .filter(refused)
        .map(|probe| probe.name.as_str())
        .filter(|name| ![TOO_MANY, KERNEL].contains(name))
        .collect();
    scene.equal(
        &format!("probes refused beside {TOO_MANY} and {KERNEL} {refused:?}"),
        refused.len(),
        0,
    );

    let agent = scene.cluster.agent().await?;
    let stage = Stage {
        scene,
        target: &target,
        agent: &agent,
    };
    // The first two have the target stand still: not while the other compares.
    let still = async || {
        (
            traced::play(stage).await,
            kernel_functions::play(stage).await,
        )
    };
    let plays = futures::join!(
        still(),
        block_io::play(stage, &disk),
        tcp::play(stage),
        processes::play(stage),
    );
    let ((traced, kernel), disks, peers, processes) = plays;
    for played in [traced, kernel, disks, peers, processes] {
        if let Err(error) = played {
            scene.fail(&error);
        }
    }
    // By itself: it asks the node over connections that others count.
    if let Err(error) = chain::play(stage).await {
        scene.fail(&error);
    }
    let status = scene.now(PROBE).await?;
    let lost = status.probes.iter().flat_map(|probe| &probe.lost);
    // Some kernels do not show the programs every request's end, and what is missing is told.
    // What is cut is counted.
    let others = lost.filter(|(what, _)| !["requests", CUT].contains(&what.as_str()));
    let others = others.map(|(_, lost)| lost).sum::<u64>();
    scene.equal("things lost, of all probes, but requests", others, 0);

    // Last: nothing can be asked of the target after it.
    processes::end(stage).await
}

/// All that is asked, with nothing sampled.
fn question(scene: &Scene<'_>, disk: &Disk) -> Value {
    let function = |name: &str, pattern: &str| {
        let mut functions = json!({ "match": pattern });
        // CKB has RocksDB within its executable.
        if scene.workload == Workload::Rocksdb {
            functions["library"] = json!("librocksdb");
        }
        json!({ "name": name, "functions": functions })
    };
    let mut too_many = function(TOO_MANY, traced::MANY);
    too_many["functions"]["limit"] = json!(traced::LIMIT);
    let mut probes = vec![
        json!({ "name": traced::STORAGE, "rocksdb": { "operations": ["Get"] } }),
        too_many,
        json!({ "name": KERNEL, "kernelFunctions": { "match": kernel_functions::FUNCTION } }),
        // Each workload has its probes in a library. How often they are met is for tests of the kind.
        json!({ "name": "throws", "usdt": { "provider": "libstdcxx" } }),
        json!({ "name": chain::BLOCKS, "chain": { "threshold": "0s" } }),
        json!({ "name": traced::CALLS, "syscalls": {} }),
        json!({ "name": block_io::ALL, "blockIo": {} }),
        json!({ "name": block_io::ONE, "blockIo": { "devices": [disk.name()] } }),
        json!({ "name": tcp::PEERS, "tcp": {} }),
        json!({ "name": tcp::PORTS, "tcp": { "groupBy": "LocalPort" } }),
        json!({ "name": processes::OPEN, "processes": { "redactArguments": false } }),
        json!({ "name": processes::REDACTED, "processes": {} }),
    ];
    for one in traced::functions(scene.workload) {
        let mut probe = function(one.probe, one.pattern);
        // How a function begins is the compiler's affair, and how much a call costs is another scenario's.
        probe["functions"]["includeSingleStepped"] = json!(true);
        if one.probe == traced::SLOW {
            probe["functions"]["threshold"] = json!("1us");
            probe["functions"]["arguments"] = json!(["Integer"]);
        }
        probes.push(probe);
    }
    let spec = json!({
        "target": workload_target(),
        "overhead": { "onBreach": "Report" },
        "reportInterval": format!("{}s", INTERVAL.as_secs()),
        "probes": probes,
    });
    ckb_probe(&scene.namespace, PROBE, &spec)
}

/// Attached, or refused with a word.
fn is_answered(probe: &ProbeStatus) -> bool {
    probe.targets.attached == 1 || !probe.message.is_empty()
}

impl Stage<'_> {
    /// What the agent has counted of a probe: the sum of a metric's samples that have these labels too.
    fn sum(&self, metrics: &Metrics, probe: &str, metric: &str, labels: &[(&str, &str)]) -> u64 {
        let own = [
            ("namespace", self.scene.namespace.as_str()),
            ("probe", probe),
        ];
        let sum = metrics.sum(metric, &[&own, labels].concat());
        sum.unwrap_or_default() as u64
    }

    /// What is counted while the target stands still.
    async fn still(&self) -> Result<Metrics> {
        let _stopped = self.target.process.stop().await?;
        self.agent.scrape().await
    }

    /// What the agent reports of a probe.
    async fn report(&self, probe: &str) -> Result<ProbeReport> {
        let InstanceReport { probes, .. } = self
            .scene
            .cluster
            .report(&self.scene.namespace, PROBE, &self.target.pod)
            .await?;
        let names: Vec<String> = probes.iter().map(|probe| probe.name.clone()).collect();
        let found = probes.into_iter().find(|report| report.name == probe);
        found.ok_or_else(|| {
            Failure::unexpected(format!("a report of {probe}"), format!("{names:?}"))
        })
    }

    /// Succeeds when a probe is refused for this reason, and returns the sentence that the status has.
    async fn refusal(&self, probe: &str, reason: Reason) -> Result<String> {
        let report = self.report(probe).await?;
        expect(
            report.reason == Some(reason),
            format!("{probe} refused with {reason}"),
            || format!("{:?} {:?}", report.state, report.reason),
        )?;
        let status: CkbProbeStatus = self.scene.now(PROBE).await?;
        Ok(rows::probe_of(&status, probe)?.message.clone())
    }
}
