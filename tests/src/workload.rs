//! What is measured: a workload in a pod, or the fixture whose calls are known.

use std::{fs, io::Write as _, path::PathBuf, time::Duration};

use clap::ValueEnum;
use k8s_openapi::api::core::v1::Pod;
use kube::{ResourceExt as _, api::ListParams};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::{
    cluster::Cluster,
    failure::{Failure, Result, expect},
    fixture::{Truth, repository},
    process::Process,
    wait,
};

/// The image of the default workload and of the fixtures.
const IMAGE: &str = "registry.local/ckb-probe/workload:dev";

/// Until a pod runs: its image is on the node already.
const START: Duration = Duration::from_secs(90);

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

    /// The operations that it does all the time.
    pub fn operations(self) -> &'static [&'static str] {
        match self {
            Self::Rocksdb => &[
                "Get",
                "TxnGet",
                "TxnPut",
                "TxnDelete",
                "TxnCommit",
                "Write",
                "Put",
                "Delete",
                "IteratorNew",
                "MultiGet",
            ],
            Self::Ckb => &["Get", "TxnGet", "TxnPut", "TxnCommit", "IteratorNew"],
        }
    }

    /// Deploys it, as the demo does, but into a namespace of the caller's; `arguments` replaces those of the manifest.
    /// Returns when its process runs.
    pub async fn deploy(
        self,
        cluster: &Cluster,
        namespace: &str,
        arguments: Option<&[&str]>,
    ) -> Result<Target> {
        let path = repository().join(format!("tests/workload/{}.yaml", self.name()));
        let what = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(Failure::system(what.clone()))?;
        for document in serde_yaml::Deserializer::from_str(&text) {
            let mut object = Value::deserialize(document).map_err(Failure::format(what.clone()))?;
            if object["kind"] == "Namespace" {
                continue;
            }
            object["metadata"]["namespace"] = json!(namespace);
            if let Some(arguments) = arguments {
                object["spec"]["template"]["spec"]["containers"][0]["args"] = json!(arguments);
            }
            cluster.apply(&object).await?;
        }
        wait::until("the workload to run", START, async || {
            let pods = cluster
                .api::<Pod>(namespace)
                .list(&ListParams::default().labels("app=ckb"))
                .await?;
            expect(pods.items.len() == 1, "one pod of the workload", || {
                pods.items.len().to_string()
            })?;
            let pod = pods.items[0].name_any();
            let process = cluster.process(namespace, &pod, "ckb", "ckb").await?;
            Ok(Target { pod, process })
        })
        .await
    }
}

/// A pod that is measured.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name.
    pub pod: String,
    /// The process in it.
    pub process: Process,
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
    /// Its name.
    pub name: &'a str,
    /// The value of its label `app`.
    pub app: &'a str,
    /// The executable.
    pub variant: &'a str,
    /// Options and plan.
    pub arguments: &'a [&'a str],
}

impl FixturePod<'_> {
    /// Runs it.
    pub async fn run(self, cluster: &Cluster, namespace: &str) -> Result<Fixture> {
        let command = format!("/usr/bin/{}", self.variant);
        let command = [command.as_str(), "--out", "/out/truth.json"];
        cluster
            .apply(&json!({
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
            }))
            .await?;
        let process = wait::until("the fixture to run", START, async || {
            cluster
                .process(namespace, self.name, "fixture", self.variant)
                .await
        })
        .await?;
        Ok(Fixture {
            pod: self.name.to_string(),
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
                return Err(Failure::system(self.result.display().to_string())(error));
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
            let text = fs::read(&self.result)
                .map_err(Failure::system(self.result.display().to_string()))?;
            serde_json::from_slice(&text).map_err(Failure::format("the fixture's result"))
        })
        .await
    }
}
