//! What is measured: a workload in a pod, or the fixture whose calls are known.

use std::{collections::BTreeMap, fs, io::Write as _, path::PathBuf, time::Duration};

use clap::ValueEnum;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::ListParams};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    failure::{Failure, Result, expect, read},
    fixture::{Truth, repository},
    operations,
    process::Process,
    wait,
};

/// The image of the default workload and of the fixtures.
const IMAGE: &str = "registry.local/ckb-probe/workload:dev";

/// Until a pod runs: its image is on the node already.
const START: Duration = Duration::from_secs(90);

/// Where the busy stand-in for CKB writes how often it called what.
const CALLS: &str = "/data/calls";

/// Which program stands for CKB.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum Workload {
    /// A program that drives RocksDB as CKB does.
    Rocksdb,
    /// A real node, mining on a chain of its own.
    Ckb,
}

impl Workload {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rocksdb => "rocksdb",
            Self::Ckb => "ckb",
        }
    }

    /// The operations that its binary has the functions of.
    pub fn operations(self) -> Vec<&'static str> {
        let mut operations = operations::names().to_vec();
        if self == Self::Ckb {
            operations.retain(|operation| !["MultiGet", "Delete"].contains(operation));
        }
        operations
    }

    /// Deploys it, as the demo does, but into a namespace of the caller's. Returns when its process runs.
    pub async fn deploy(self, cluster: &Cluster, namespace: &str, load: Load) -> Result<Target> {
        self.apply(cluster, namespace, load).await?;
        wait::until("the workload to run", START, async || {
            let pod = self.pod(cluster, namespace).await?;
            let process = cluster.process(namespace, &pod, "ckb", "ckb").await?;
            Ok(Target { pod, process })
        })
        .await
    }

    /// The name of its pod.
    pub async fn pod(self, cluster: &Cluster, namespace: &str) -> Result<String> {
        let labels = ListParams::default().labels("app=ckb");
        let pods = cluster.api::<Pod>(namespace).list(&labels).await?;
        expect(pods.items.len() == 1, "one pod of the workload", || {
            pods.items.len()
        })?;
        Ok(pods.items[0].name_any())
    }

    /// As [`Self::deploy`], without waiting for anything.
    pub async fn apply(self, cluster: &Cluster, namespace: &str, load: Load) -> Result<()> {
        let path = repository().join(format!("tests/workload/{}.yaml", self.name()));
        for document in serde_yaml::Deserializer::from_str(&read(&path)?) {
            let object = Value::deserialize(document);
            let mut object = object.map_err(Failure::format(path.display().to_string()))?;
            if object["kind"] == "Namespace" {
                continue;
            }
            object["metadata"]["namespace"] = json!(namespace);
            if let Some((container, arguments)) = load.arguments(self) {
                object["spec"]["template"]["spec"]["containers"][container]["args"] =
                    json!(arguments);
            }
            cluster.apply(&object).await?;
        }
        Ok(())
    }
}

/// How much a workload does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Load {
    /// As in the demo.
    Steady,
    /// More than the default budget lets be measured all of the time.
    Busy,
    /// As in the demo, and with peers that it answers, as a node does of itself.
    Serving,
    /// It ends by itself after three seconds, and is started anew. Of the program that stands for CKB only.
    ShortLived,
}

impl Load {
    /// Which container of the manifest gets other arguments, and which.
    fn arguments(self, workload: Workload) -> Option<(usize, &'static [&'static str])> {
        match (self, workload) {
            (Self::Steady, _) | (Self::Serving, Workload::Ckb) => None,
            (Self::Serving, Workload::Rocksdb) => {
                const ARGUMENTS: &[&str] =
                    &["--db", "/data/db", "--listen", "8114", "--listen", "8115"];
                Some((0, ARGUMENTS))
            }
            (Self::Busy, Workload::Rocksdb) => {
                const ARGUMENTS: &[&str] = &[
                    "--db",
                    "/data/db",
                    "--blocks-per-second",
                    "200",
                    "--calls-file",
                    CALLS,
                ];
                Some((0, ARGUMENTS))
            }
            // The miner: a node has as much to do as it is given.
            (Self::Busy, Workload::Ckb) => Some((1, &["miner", "-C", "/etc/ckb-busy"])),
            (Self::ShortLived, _) => Some((0, &["--db", "/data/db", "--seconds", "3"])),
        }
    }
}

/// A pod that is measured.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name of the pod.
    pub pod: String,
    /// The process in it.
    pub process: Process,
}

/// What the stand-in for CKB says it has called since its start, by function.
pub type Calls = BTreeMap<String, u64>;

/// The stand-in for CKB, which calls nothing until this is dropped.
#[derive(Debug)]
pub struct Paused(Process);

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = self.0.signal(Signal::USR2);
    }
}

impl Target {
    /// Has the busy stand-in for CKB pause between two calls, and say what it has called.
    pub async fn pause(&self) -> Result<(Paused, Calls)> {
        #[derive(Deserialize)]
        struct Line {
            calls: Calls,
        }
        let path = self.process.path(CALLS);
        let lines = || -> Result<Vec<Line>> {
            let text = fs::read_to_string(&path).map_err(Failure::system(CALLS))?;
            let complete = text
                .split_inclusive('\n')
                .filter(|line| line.ends_with('\n'));
            complete
                .map(|line| serde_json::from_str(line).map_err(Failure::format(CALLS)))
                .collect()
        };
        let before = lines()?.len();
        self.process.signal(Signal::USR2)?;
        let paused = Paused(self.process);
        let calls = wait::closely("the calls", Duration::from_secs(10), async || {
            let mut lines = lines()?;
            expect(lines.len() > before, "another line", || before)?;
            Ok(lines.pop().map(|line| line.calls).unwrap_or_default())
        });
        Ok((paused, calls.await?))
    }
}

/// The fixture in a pod. It takes its orders from its standard input, which is reached through /proc: that
/// works without the API server, too.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// The pod's name.
    pub pod: String,
    /// The process in it.
    pub process: Process,
    result: PathBuf,
}

/// What a fixture's pod is to be.
#[derive(Clone, Copy, Debug)]
pub struct FixturePod<'a> {
    /// The name of the pod.
    pub name: &'a str,
    /// The value of its label `app`.
    pub app: &'a str,
    /// The executable.
    pub variant: &'a str,
    /// Options and plan.
    pub arguments: &'a [&'a str],
}

/// One that makes a certain number of calls when it is told to.
pub const MEASURED: FixturePod = FixturePod {
    name: "node-0",
    app: "measured",
    variant: "ground-truth",
    arguments: &[
        "rocksdb_get_pinned_cf 3001 constant:1000",
        "rocksdb_transaction_commit 307 constant:1000",
    ],
};

/// Pods with this label `app`, and the executable in them.
pub fn fixture_target(app: &str, executable: &str) -> Value {
    json!({ "selector": { "matchLabels": { "app": app } }, "executable": executable })
}

impl<'a> FixturePod<'a> {
    /// `ground-truth` with such options and plan, in a pod whose label is its name.
    pub const fn ground_truth(name: &'a str, arguments: &'a [&'a str]) -> Self {
        Self {
            name,
            app: name,
            variant: "ground-truth",
            arguments,
        }
    }
}

impl FixturePod<'_> {
    /// What selects it in a CkbProbe.
    pub fn target(&self) -> Value {
        fixture_target(self.app, self.variant)
    }

    /// Runs it.
    pub async fn run(self, cluster: &Cluster, namespace: &str) -> Result<Fixture> {
        cluster.apply(&self.manifest(namespace)).await?;
        self.running(cluster, namespace, self.name).await
    }

    /// The manifest of the pod.
    pub fn manifest(&self, namespace: &str) -> Value {
        let command = format!("/usr/bin/{}", self.variant);
        let command = [command.as_str(), "--out", "/out/truth.json"];
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": self.name,
                "namespace": namespace,
                "labels": { "app": self.app },
            },
            "spec": {
                "automountServiceAccountToken": false,
                "enableServiceLinks": false,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "fixture",
                    "image": IMAGE,
                    "imagePullPolicy": "IfNotPresent",
                    "stdin": true,
                    "command": command,
                    "args": self.arguments,
                    "securityContext": {
                        "readOnlyRootFilesystem": true,
                        "allowPrivilegeEscalation": false,
                        "capabilities": { "drop": ["ALL"] },
                    },
                    "volumeMounts": [{ "name": "out", "mountPath": "/out" }],
                }],
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": 65532,
                    "fsGroup": 65532,
                    "seccompProfile": { "type": "RuntimeDefault" },
                },
                "volumes": [{ "name": "out", "emptyDir": {} }],
            },
        })
    }

    /// Waits until it runs, in a pod of this name.
    pub async fn running(self, cluster: &Cluster, namespace: &str, pod: &str) -> Result<Fixture> {
        let process = wait::until("the fixture to run", START, async || {
            cluster
                .process(namespace, pod, "fixture", self.variant)
                .await
        })
        .await?;
        Ok(Fixture {
            pod: pod.to_string(),
            process,
            result: process.path("/out/truth.json"),
        })
    }
}

impl Fixture {
    /// Has it make the calls of its plan.
    pub fn begin(&self) -> Result<()> {
        match fs::remove_file(&self.result) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::at(&self.result)(error));
            }
            _ => {}
        }
        let input = format!("/proc/{}/fd/0", self.process.pid);
        fs::OpenOptions::new()
            .write(true)
            .open(&input)
            .and_then(|mut pipe| pipe.write_all(b"go\n"))
            .map_err(Failure::system(input))
    }

    /// Waits until they are made, and returns what they were.
    pub async fn finish(&self, limit: Duration) -> Result<Truth> {
        wait::until("the fixture's calls", limit, async || {
            let text = fs::read(&self.result).map_err(Failure::at(&self.result))?;
            serde_json::from_slice(&text).map_err(Failure::format("the fixture's result"))
        })
        .await
    }
}
