//! The cluster under test: what a user does with kubectl, and what is to be seen in the API and on this machine.

use std::{
    env,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use ckb_probe_crds::{CkbProbe, CkbProbeStatus, InstanceReport, NodeProbe, Reason};
use k8s_openapi::api::{
    core::v1::{ContainerStatus, Namespace, Pod, Service, ServiceAccount},
    events::v1::Event,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use tokio::{io::AsyncWriteExt as _, process::Command};

use crate::{
    failure::{Failure, Result, expect},
    metrics::Metrics,
    process::Process,
    wait,
};

/// Where ckb-probe is installed.
pub const SYSTEM: &str = "ckb-probe-system";

/// What the names of the tests' own namespaces begin with.
pub const NAMESPACE_PREFIX: &str = "e2e-";

/// Until what a scenario made is gone: after an outage of the API server, kubelet takes most of a minute to find back.
const CLEARED: Duration = Duration::from_secs(120);

/// Until a new namespace has its service account: the controller manager may have to find its way back to the API server first.
const ACCOUNT: Duration = Duration::from_secs(60);

/// The labels of an agent pod.
pub const AGENTS: &str = "app.kubernetes.io/name=ckb-probe,app.kubernetes.io/component=agent";

/// The labels of an operator pod.
pub const OPERATORS: &str = "app.kubernetes.io/name=ckb-probe,app.kubernetes.io/component=operator";

/// Runs a command to its end, and returns what it printed.
pub async fn run(program: &str, arguments: &[&str], input: Option<&str>) -> Result<String> {
    let command = || format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(if input.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(Failure::system(command()))?;
    if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
        pipe.write_all(input.as_bytes())
            .await
            .map_err(Failure::system(command()))?;
    }
    let output = child
        .wait_with_output()
        .await
        .map_err(Failure::system(command()))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(Failure::Command {
        command: command(),
        output: text(&output.stdout) + &text(&output.stderr),
    })
}

/// A program of ckb-probe in its pod.
#[derive(Clone, Debug)]
pub struct Component {
    /// The pod's name.
    pub pod: String,
    /// Where it serves its metrics.
    pub address: String,
    /// Where it says whether it lives.
    pub health: String,
    /// Its process on this machine.
    pub process: Process,
}

/// The cluster of `KUBECONFIG`.
#[derive(Clone)]
pub struct Cluster {
    /// A client with the user's rights.
    pub client: Client,
    /// The folder of the local cluster: that of its kubeconfig.
    pub folder: PathBuf,
}

impl Cluster {
    /// Connects.
    pub async fn connect() -> Result<Self> {
        let kubeconfig = env::var("KUBECONFIG").map_err(Failure::format("KUBECONFIG"))?;
        let folder = Path::new(&kubeconfig).parent().unwrap_or(Path::new("."));
        let folder = folder.canonicalize().map_err(Failure::at(folder))?;
        let client = Client::try_default().await?;
        client.apiserver_version().await?;
        Ok(Self { client, folder })
    }

    /// Succeeds when nobody else measures here: what a CkbProbe of another leaves behind would be taken for ours. What an
    /// interrupted run left is removed.
    pub async fn claim(&self) -> Result<()> {
        let namespaces = Api::<Namespace>::all(self.client.clone());
        for namespace in namespaces.list(&ListParams::default()).await? {
            let name = namespace.name_any();
            if name.starts_with(NAMESPACE_PREFIX) {
                self.release(&name).await?;
                namespaces
                    .delete(&name, &DeleteParams::background())
                    .await?;
            }
        }
        let probes = Api::<CkbProbe>::all(self.client.clone());
        let probes = probes.list(&ListParams::default()).await?;
        let others: Vec<String> = probes
            .iter()
            .map(|probe| {
                format!(
                    "{}/{}",
                    probe.namespace().unwrap_or_default(),
                    probe.name_any()
                )
            })
            .collect();
        expect(
            others.is_empty(),
            "a cluster without CkbProbes of others: delete them, or take the demo down with make demo-down",
            || others.join(", "),
        )
    }

    /// The objects of a kind in a namespace.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Waits until a new namespace has its service account, without which it can have no pod.
    pub async fn has_account(&self, namespace: &str) -> Result<()> {
        let accounts = self.api::<ServiceAccount>(namespace);
        wait::until("the service account", ACCOUNT, async || {
            Ok(accounts.get("default").await?)
        })
        .await?;
        Ok(())
    }

    /// What a user does.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        run("kubectl", arguments, None).await
    }

    /// `kubectl apply` of an object, or of a List.
    pub async fn apply(&self, object: &serde_json::Value) -> Result<()> {
        let text = object.to_string();
        run("kubectl", &["apply", "-f", "-"], Some(&text)).await?;
        Ok(())
    }

    /// Stops or starts the API server of the local cluster.
    pub async fn api_server(&self, verb: &str) -> Result<()> {
        let script = crate::fixture::repository().join("tests/cluster/apiserver.sh");
        let folder = self.folder.to_string_lossy();
        run(&script.to_string_lossy(), &[verb, &folder], None).await?;
        Ok(())
    }

    /// Kills a process of the local cluster, such as `kubelet`, and has it start again. Returns when another runs.
    pub async fn crash(&self, name: &str) -> Result<()> {
        let file = self.folder.join(format!("{name}.pid"));
        let pid = || std::fs::read_to_string(&file).map_err(Failure::at(&file));
        let before = pid()?;
        let script = crate::fixture::repository().join("tests/cluster/kill.sh");
        let folder = self.folder.to_string_lossy();
        run(&script.to_string_lossy(), &[name, &folder], None).await?;
        let after = pid()?;
        expect(before != after, format!("another {name}"), || before)
    }

    /// Takes the power from the local cluster's node, and has it start again.
    pub async fn reboot(&self) -> Result<()> {
        let script = crate::fixture::repository().join("tests/cluster/reboot.sh");
        let folder = self.folder.to_string_lossy();
        run(&script.to_string_lossy(), &[&folder], None).await?;
        Ok(())
    }

    /// Where pods find the API server, through kube-proxy: an address of a service.
    pub async fn service_address(&self) -> Result<String> {
        let service = self.api::<Service>("default").get("kubernetes").await?;
        let address = service.spec.and_then(|spec| spec.cluster_ip);
        let address = address
            .ok_or_else(|| Failure::missing("the address of the service default/kubernetes"))?;
        Ok(format!("{address}:443"))
    }

    /// The status of a CkbProbe that answers its current spec.
    pub async fn status(&self, namespace: &str, name: &str) -> Result<CkbProbeStatus> {
        let probe = self.api::<CkbProbe>(namespace).get(name).await?;
        let status = probe.status.unwrap_or_default();
        expect(
            status.observed_generation == probe.metadata.generation,
            format!("a status of generation {:?}", probe.metadata.generation),
            || format!("{:?}", status.observed_generation),
        )?;
        Ok(status)
    }

    /// What the agents report of a pod on behalf of a CkbProbe.
    pub async fn reports(
        &self,
        namespace: &str,
        probe: &str,
        pod: &str,
    ) -> Result<Vec<InstanceReport>> {
        let nodes = self
            .api::<NodeProbe>(SYSTEM)
            .list(&ListParams::default())
            .await?;
        let reports = nodes
            .into_iter()
            .filter_map(|node| node.status)
            .flat_map(|status| status.instances);
        Ok(reports
            .filter(|report| report.probe.namespace == namespace && report.probe.name == probe)
            .filter(|report| report.pod.name == pod)
            .collect())
    }

    /// The one report of a pod.
    pub async fn report(&self, namespace: &str, probe: &str, pod: &str) -> Result<InstanceReport> {
        let mut reports = self.reports(namespace, probe, pod).await?;
        expect(
            reports.len() == 1,
            format!("one report of the pod {namespace}/{pod}"),
            || format!("{} of them", reports.len()),
        )?;
        Ok(reports.remove(0))
    }

    /// The process of a container that runs.
    pub async fn process(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        executable: &str,
    ) -> Result<Process> {
        let object = self.api::<Pod>(namespace).get(pod).await?;
        let id = container_id(&object, container)?;
        Process::in_cgroup(&id, executable)
    }

    /// The oldest process of this executable in a pod. Of one that restarts often, sooner than the API server knows.
    pub async fn process_of_pod(
        &self,
        namespace: &str,
        pod: &str,
        executable: &str,
    ) -> Result<Process> {
        let uid = self.uid_of_pod(namespace, pod).await?;
        Process::in_cgroup(&uid, executable)
    }

    /// A pod's uid, as the API has it.
    pub async fn uid_of_pod(&self, namespace: &str, pod: &str) -> Result<String> {
        let object = self.api::<Pod>(namespace).get(pod).await?;
        Ok(object.uid().unwrap_or_default())
    }

    /// How many Events of a reason there are about a CkbProbe.
    pub async fn events(&self, namespace: &str, name: &str, reason: Reason) -> Result<u64> {
        let events = self.api::<Event>(namespace);
        let events = events.list(&ListParams::default()).await?;
        let about = events.items.iter().filter(|event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|object| object.name.as_deref() == Some(name))
                && event.reason.as_deref() == Some(reason.as_str())
        });
        Ok(about.count() as u64)
    }

    /// The only agent.
    pub async fn agent(&self) -> Result<Component> {
        self.component(AGENTS, "agent", "node-agent", (9464, 9465))
            .await
    }

    /// What an agent has printed: its messages, and slow calls as lines of JSON.
    pub async fn log(&self, component: &Component) -> Result<String> {
        self.kubectl(&["-n", SYSTEM, "logs", &component.pod]).await
    }

    /// The only operator.
    pub async fn operator(&self) -> Result<Component> {
        let executable = "ckb-probe-operator";
        self.component(OPERATORS, "operator", executable, (8080, 8081))
            .await
    }

    /// The only agent pod, whatever its state.
    pub async fn agent_pod(&self) -> Result<Pod> {
        self.only_pod(AGENTS).await
    }

    /// Succeeds when nobody is left who measures: neither an agent pod nor a NodeProbe.
    pub async fn expect_no_agent(&self) -> Result<()> {
        let pods = self
            .api::<Pod>(SYSTEM)
            .list(&ListParams::default().labels(AGENTS))
            .await?;
        let nodes = self
            .api::<NodeProbe>(SYSTEM)
            .list(&ListParams::default())
            .await?;
        expect(
            pods.items.is_empty() && nodes.items.is_empty(),
            "no agent pod and no NodeProbe",
            || format!("{} and {}", pods.items.len(), nodes.items.len()),
        )
    }

    /// Deletes every CkbProbe of a namespace, and waits until the agents have let go of its pods.
    pub async fn release(&self, namespace: &str) -> Result<()> {
        self.api::<CkbProbe>(namespace)
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        wait::until(
            "the agents to let go",
            Duration::from_secs(30),
            async || {
                let nodes = self
                    .api::<NodeProbe>(SYSTEM)
                    .list(&ListParams::default())
                    .await?;
                let orders = nodes.items.iter().flat_map(|node| &node.spec.assignments);
                let left = orders.filter(|order| order.probe.namespace == namespace);
                let left = left.count();
                expect(
                    left == 0,
                    format!("no assignment for the namespace {namespace}"),
                    || left,
                )
            },
        )
        .await?;
        // Other CkbProbes may want the same agent, also those that are made meanwhile. Without any, it goes; a new one must not
        // meet it on its way out.
        wait::until("the agent to go", CLEARED, async || {
            let probes = Api::<CkbProbe>::all(self.client.clone());
            let others = probes.list_metadata(&ListParams::default()).await?;
            match others.items[..] {
                [] => self.expect_no_agent().await,
                [..] => Ok(()),
            }
        })
        .await
    }

    async fn only_pod(&self, labels: &str) -> Result<Pod> {
        let parameters = ListParams::default().labels(labels);
        let mut pods = self.api::<Pod>(SYSTEM).list(&parameters).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        expect(
            pods.len() == 1,
            format!("one pod with the labels {labels}"),
            || pods.len(),
        )?;
        Ok(pods.remove(0))
    }

    async fn component(
        &self,
        labels: &str,
        container: &str,
        executable: &str,
        (metrics, health): (u16, u16),
    ) -> Result<Component> {
        let pod = self.only_pod(labels).await?;
        let status = pod.status.as_ref();
        let address = status
            .and_then(|status| status.pod_ip.clone())
            .unwrap_or_default();
        expect(!address.is_empty(), "the address of a pod", || {
            format!("none yet of {}", pod.name_any())
        })?;
        let id = container_id(&pod, container)?;
        Ok(Component {
            pod: pod.name_any(),
            health: format!("{address}:{health}"),
            address: format!("{address}:{metrics}"),
            process: Process::in_cgroup(&id, executable)?,
        })
    }
}

impl Component {
    /// The metrics of the component, as they are now.
    pub async fn scrape(&self) -> Result<Metrics> {
        Metrics::scrape(&self.address).await
    }
}

/// The status of a container.
pub fn container_status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == container)
}

/// The id of a container that runs, without the runtime's prefix.
fn container_id(pod: &Pod, container: &str) -> Result<String> {
    let status = container_status(pod, container);
    let running = status
        .and_then(|status| status.state.as_ref())
        .is_some_and(|state| state.running.is_some());
    let id = status
        .filter(|_| running)
        .and_then(|status| status.container_id.as_deref());
    id.and_then(|id| id.split_once("://"))
        .map(|(_, id)| id.to_string())
        .ok_or_else(|| {
            Failure::unexpected(
                format!("the container {container} of {} to run", pod.name_any()),
                format!("{:?}", status.map(|status| &status.state)),
            )
        })
}
