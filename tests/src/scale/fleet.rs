//! Nodes and pods that exist in the API alone, and the CkbProbes that select them.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use ckb_probe_crds::CkbProbe;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{PODS_OF_A_NODE, TARGETS, orders::Orders};
use crate::{
    cluster::{SYSTEM, run},
    failure::{Failure, Result},
    fixture::{repository, words},
};

/// The CkbProbe of each namespace.
pub const CKB_PROBE: &str = "ckb";

/// Requests at a time.
const CONCURRENCY: usize = 32;

/// How nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// As they should be.
    Ready,
    /// Their kubelets are not heard any more.
    NotReady,
}

/// The cluster.
pub struct Fleet {
    client: Client,
    all_nodes: usize,
    /// So many pods share nodes with no others.
    apart: usize,
    /// What the CkbProbe of each namespace asks, and how often it wants to know.
    probes: Value,
    interval: &'static str,
    nodes: usize,
    pods: usize,
    /// Containers that were ever started: each has an id of its own.
    containers: AtomicU64,
}

impl Fleet {
    /// One that will have so many nodes and has none yet, in which ckb-probe's definitions and its namespace are. The first fifty
    /// pods have nodes of their own, so that they are the same whatever else there is.
    pub async fn large(client: Client, nodes: usize) -> Result<Self> {
        let probes = json!([{
            "name": "storage",
            "rocksdb": { "operations": super::agents::OPERATIONS },
        }]);
        let apart = TARGETS;
        Ok(Self {
            apart,
            ..Self::of(client, nodes, probes).await?
        })
    }

    /// One that will have so many nodes, whose pods are asked this.
    pub async fn of(client: Client, nodes: usize, probes: Value) -> Result<Self> {
        let definitions = repository().join("config/crd").display().to_string();
        run(
            "kubectl",
            &["apply", "--server-side", "-k", &definitions],
            None,
        )
        .await?;
        let wait = words("wait --for=condition=Established --timeout=60s crd --all");
        run("kubectl", &wait, None).await?;
        let fleet = Self {
            client,
            all_nodes: nodes,
            apart: 0,
            probes,
            interval: "10s",
            nodes: 0,
            pods: 0,
            containers: AtomicU64::new(1),
        };
        fleet
            .namespace(SYSTEM, &["default", "ckb-probe-agent"])
            .await?;
        Ok(fleet)
    }

    /// The same, whose CkbProbes want to know as often as they may.
    #[must_use]
    pub fn impatient(self) -> Self {
        Self {
            interval: "1s",
            ..self
        }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// How many pods there are.
    pub fn pods(&self) -> usize {
        self.pods
    }

    /// Makes pods until there are so many, with the nodes, namespaces and CkbProbes that they need.
    pub async fn grow(&mut self, pods: usize) -> Result<()> {
        let nodes = match pods {
            small if small <= self.apart => small.div_ceil(PODS_OF_A_NODE),
            _ => self.all_nodes,
        };
        let tenants = self.pods.div_ceil(TARGETS)..pods.div_ceil(TARGETS);
        each(tenants, |tenant| self.tenant(tenant)).await?;
        each(self.nodes..nodes, |index| self.node(index)).await?;
        self.nodes = nodes;
        each(self.pods..pods, |index| self.pod(index)).await?;
        self.pods = pods;
        Ok(())
    }

    /// Waits until every pod is in an order, with its container's id.
    pub async fn ordered(&self, orders: &Orders, limit: Duration) -> Result<()> {
        orders.reach(self.pods, limit).await
    }

    /// All nodes change, and then all of their pods, as Kubernetes' node controller has it.
    pub async fn turn(&self, health: Health) -> Result<()> {
        each(0..self.nodes, |index| async move {
            let api: Api<Node> = Api::all(self.client.clone());
            let status = json!({ "status": { "conditions": conditions(health) } });
            status_of(&api, &node_name(index), &status).await
        })
        .await?;
        each(0..self.pods, |index| async move {
            let ready = match health {
                Health::Ready => json!({ "type": "Ready", "status": "True" }),
                Health::NotReady => {
                    json!({ "type": "Ready", "status": "False", "reason": "NodeNotReady" })
                }
            };
            let status = json!({ "status": { "conditions": [ready] } });
            status_of(&self.pods_of(index), &pod_name(index), &status).await
        })
        .await
    }

    /// The container of a pod restarts. Returns the id of the new one.
    pub async fn restart(&self, index: usize, times: usize) -> Result<String> {
        let id = self.container_id();
        let status = json!({ "status": { "containerStatuses": [container(&id, times + 1)] } });
        status_of(&self.pods_of(index), &pod_name(index), &status).await?;
        Ok(id)
    }

    async fn namespace(&self, name: &str, accounts: &[&str]) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.client.clone());
        create(&api, json!({ "metadata": { "name": name } })).await?;
        // There is no controller that makes them.
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), name);
        for account in accounts {
            create(&api, json!({ "metadata": { "name": account } })).await?;
        }
        Ok(())
    }

    async fn tenant(&self, tenant: usize) -> Result<()> {
        let namespace = namespace_name(tenant);
        self.namespace(&namespace, &["default"]).await?;
        self.ckb_probe(&namespace, CKB_PROBE, false).await
    }

    /// Another CkbProbe in the first namespace that asks the same of the same pods, and is paused.
    pub async fn paused_copies(&self, copies: usize) -> Result<()> {
        let namespace = &namespace_name(0);
        each(0..copies, |index| async move {
            let name = format!("paused-{index:05}");
            self.ckb_probe(namespace, &name, true).await
        })
        .await
    }

    async fn ckb_probe(&self, namespace: &str, name: &str, paused: bool) -> Result<()> {
        let api: Api<CkbProbe> = Api::namespaced(self.client.clone(), namespace);
        let probe = json!({
            "metadata": { "name": name },
            "spec": {
                "target": { "selector": { "matchLabels": { "app": "ckb" } }, "executable": "ckb" },
                "paused": paused,
                "reportInterval": self.interval,
                "probes": self.probes,
            },
        });
        create(&api, probe).await
    }

    async fn node(&self, index: usize) -> Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let name = node_name(index);
        let images: Vec<Value> = (0..20)
            .map(|image| {
                let name = format!("registry.local/team-{image}/service@sha256:{image:064x}");
                json!({ "names": [name], "sizeBytes": 123_456_789 + image })
            })
            .collect();
        let resources = json!({
            "cpu": "16", "memory": "65536Mi", "pods": "110", "ephemeral-storage": "200Gi",
        });
        let node = json!({
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": name,
                    "kubernetes.io/os": "linux",
                    "kubernetes.io/arch": "amd64",
                    "topology.kubernetes.io/zone": format!("zone-{}", index % 3),
                },
            },
            "status": {
                "capacity": resources,
                "allocatable": resources,
                "conditions": conditions(Health::Ready),
                "addresses": [{ "type": "InternalIP", "address": format!("10.0.{}.{}", index / 250, index % 250) }],
                "images": images,
            },
        });
        create(&api, node).await
    }

    async fn pod(&self, index: usize) -> Result<()> {
        let pod = json!({
            "metadata": {
                "name": pod_name(index),
                "labels": { "app": "ckb", "tier": "storage", "release": "stable" },
                "annotations": { "example.com/checksum": format!("{index:064x}") },
            },
            "spec": {
                "nodeName": node_name(self.node_of(index)),
                "containers": [{
                    "name": "ckb",
                    "image": "registry.local/ckb:0.210.0",
                    "command": ["ckb", "run", "-C", "/var/lib/ckb"],
                    "env": [{ "name": "RUST_LOG", "value": "info" }],
                    "ports": [{ "containerPort": 8114 }, { "containerPort": 8115 }],
                    "resources": { "requests": { "cpu": "1", "memory": "2Gi" } },
                    "volumeMounts": [{ "name": "data", "mountPath": "/var/lib/ckb" }],
                }],
                "volumes": [{ "name": "data", "emptyDir": {} }],
            },
        });
        let api = self.pods_of(index);
        create(&api, pod).await?;
        let status = json!({ "status": {
            "phase": "Running",
            "podIP": format!("10.244.{}.{}", index / 250, index % 250),
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [container(&self.container_id(), 0)],
        } });
        status_of(&api, &pod_name(index), &status).await
    }

    fn node_of(&self, pod: usize) -> usize {
        let small = self.apart / PODS_OF_A_NODE;
        match pod.checked_sub(self.apart) {
            None => pod % small,
            Some(other) => small + other % (self.all_nodes - small),
        }
    }

    fn container_id(&self) -> String {
        format!("{:064x}", self.containers.fetch_add(1, Ordering::Relaxed))
    }

    fn pods_of(&self, index: usize) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &namespace_name(index / TARGETS))
    }
}

/// Does it for each, some at a time.
async fn each<F: Future<Output = Result<()>>>(
    indices: impl IntoIterator<Item = usize>,
    make: impl Fn(usize) -> F,
) -> Result<()> {
    stream::iter(indices)
        .map(make)
        .buffer_unordered(CONCURRENCY)
        .try_for_each(|()| std::future::ready(Ok(())))
        .await
}

/// Makes it, unless it is there.
pub async fn create<K>(api: &Api<K>, object: Value) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).map_err(Failure::format("an object of ours"))?;
    match api.create(&PostParams::default(), &object).await {
        // The API server makes the namespace `default` itself.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

async fn status_of<K>(api: &Api<K>, name: &str, patch: &Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let params = PatchParams::default();
    api.patch_status(name, &params, &Patch::Strategic(patch))
        .await?;
    Ok(())
}

fn conditions(health: Health) -> Value {
    let ready = match health {
        Health::Ready => json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }),
        Health::NotReady => json!({
            "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }),
    };
    json!([
        { "type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory" },
        { "type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure" },
        { "type": "PIDPressure", "status": "False", "reason": "KubeletHasSufficientPID" },
        ready,
    ])
}

fn container(id: &str, restarts: usize) -> Value {
    json!({
        "name": "ckb",
        "image": "registry.local/ckb:0.210.0",
        "imageID": format!("registry.local/ckb@sha256:{:064x}", 7),
        "containerID": format!("containerd://{id}"),
        "ready": true,
        "started": true,
        "restartCount": restarts,
        "state": { "running": { "startedAt": "2026-11-22T12:00:00Z" } },
    })
}

fn node_name(index: usize) -> String {
    format!("node-{index:04}")
}

/// A namespace of fifty pods.
pub fn namespace_name(tenant: usize) -> String {
    format!("tenant-{tenant:03}")
}

fn pod_name(index: usize) -> String {
    format!("ckb-{index:05}")
}
