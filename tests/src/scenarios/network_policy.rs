//! `networkPolicy.enabled`, on a cluster that follows NetworkPolicies: scrapes and the kubelet get in and nobody else, and what goes out
//! goes to the API server.

use std::{
    net::{SocketAddr, TcpStream},
    os::fd::AsFd as _,
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::prelude::*;
use crate::{
    cluster::{AGENTS, OPERATORS},
    fixture::repository,
};

const RELEASE: &str = "ckb-probe";

/// Until policies are followed once somebody sees to them.
const FOLLOWED: Duration = Duration::from_secs(60);

/// What is not let through says so at once, or nothing.
const PATIENCE: Duration = Duration::from_secs(2);

/// For so long the kubelet asks after agent and operator, several times each: they are to be ready all the while.
const LOOKED_AFTER: Duration = Duration::from_secs(25);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.deploy(Load::Serving).await?;
    scene.apply_probe(scene.sample("demo")?).await?;
    scene.firing().await?;
    let outcome = guarded(scene, &target).await;
    // Whatever happened: others are let in as before.
    policies(scene, "stop").await?;
    upgrade(&["--set", "networkPolicy.enabled=false"]).await?;
    outcome
}

async fn guarded(scene: &mut Scene<'_>, target: &Target) -> Result<()> {
    let stranger = target.process;
    let monitoring = scene.another_namespace("monitoring").await?;
    let prometheus = FixturePod::ground_truth("prometheus", &["rocksdb_write 1 constant:0"]);
    let monitor = prometheus.run(scene.cluster, &monitoring).await?;
    let values = json!({ "networkPolicy": {
        "enabled": true,
        "metricsFrom": [{ "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": monitoring } } }],
        "apiServerCIDRs": ["10.96.0.1/32", "192.0.2.10/32"],
    } });
    let file = tempfile::NamedTempFile::new().map_err(Failure::system("a file"))?;
    fs::write(&file, values.to_string()).map_err(Failure::system("a file"))?;
    upgrade(&["--values", &file.path().to_string_lossy()]).await?;
    let doors = Doors::of(scene).await?;
    let agent = scene.cluster.agent().await?.process;
    let elsewhere = [address(scene, &target.pod, 8114).await?];

    // What is tried gets through where nobody follows policies.
    scene.equal_of(
        "doors that are open to a stranger before",
        open(stranger, &doors.all())?.len(),
        "of 4",
        4,
    );
    scene.equal_of(
        "ways from an agent to another pod before",
        open(agent, &elsewhere)?.len(),
        "of 1",
        1,
    );
    policies(scene, "start").await?;
    wait::until("policies to be followed", FOLLOWED, async || {
        let open = open(stranger, &doors.all())?;
        expect(open.is_empty(), "no open door", || format!("{open:?}"))
    })
    .await?;
    scene.equal_of(
        "doors that are open to a stranger",
        open(stranger, &doors.all())?.len(),
        "of 4",
        0,
    );
    let scraped = open(monitor.process, &doors.metrics)?.len();
    scene.equal_of(
        "doors of metrics that are open to who scrapes",
        scraped,
        "of 2",
        2,
    );
    let others = open(monitor.process, &doors.health)?.len();
    scene.equal_of("other doors that are", others, "of 2", 0);
    scene.equal_of(
        "ways from an agent to another pod",
        open(agent, &elsewhere)?.len(),
        "of 1",
        0,
    );

    let (before, _) = looked_after(scene).await?;
    let (began, mut unready) = (Instant::now(), 0);
    while began.elapsed() < LOOKED_AFTER {
        unready += looked_after(scene).await?.1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    scene.equal("looks at which agent or operator was not ready", unready, 0);
    let (after, _) = looked_after(scene).await?;
    scene.equal(
        "restarts of agent and operator",
        (after - before).unsigned_abs(),
        0,
    );
    // Operator and agent have their ways to the API server: what is asked now is measured.
    scene.delete_probe(PROBE).await?;
    scene.apply_probe(scene.workload_probe()).await?;
    let status = scene.firing().await?;
    let counted = rows::all_counted(&status)?;
    scene.counted(PROBE, counted + 1).await?;
    Ok(())
}

/// Where agent and operator listen.
struct Doors {
    metrics: Vec<SocketAddr>,
    health: Vec<SocketAddr>,
}

impl Doors {
    async fn of(scene: &Scene<'_>) -> Result<Self> {
        let components = [
            scene.cluster.agent().await?,
            scene.cluster.operator().await?,
        ];
        let parsed = |address: &String| address.parse().map_err(Failure::format("an address"));
        let metrics = components
            .iter()
            .map(|one| parsed(&one.address))
            .collect::<Result<_>>()?;
        let health = components
            .iter()
            .map(|one| parsed(&one.health))
            .collect::<Result<_>>()?;
        Ok(Self { metrics, health })
    }

    fn all(&self) -> Vec<SocketAddr> {
        [&self.metrics[..], &self.health].concat()
    }
}

/// Those of the addresses at which somebody answers who is asked from the network of a process.
fn open(from: Process, addresses: &[SocketAddr]) -> Result<Vec<SocketAddr>> {
    let network = format!("/proc/{}/ns/net", from.pid);
    let network = fs::File::open(&network).map_err(Failure::system(network))?;
    let addresses = addresses.to_vec();
    // A thread of its own: it stays in that network.
    let asked = thread::spawn(move || -> Result<Vec<SocketAddr>> {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(network.as_fd(), kind)
            .map_err(|error| Failure::system("the network of a process")(error.into()))?;
        let is_open = |address: &SocketAddr| TcpStream::connect_timeout(address, PATIENCE).is_ok();
        Ok(addresses.into_iter().filter(is_open).collect())
    });
    asked
        .join()
        .map_err(|_| Failure::format("a connection")("it panicked"))?
}

async fn address(scene: &Scene<'_>, pod: &str, port: u16) -> Result<SocketAddr> {
    let pod = scene.api::<Pod>().get(pod).await?;
    let address = pod
        .status
        .and_then(|status| status.pod_ip)
        .unwrap_or_default();
    let address = address.parse().map_err(Failure::format(address))?;
    Ok(SocketAddr::new(address, port))
}

async fn policies(scene: &Scene<'_>, verb: &str) -> Result<()> {
    let script = repository().join("tests/cluster/policies.sh");
    let folder = scene.cluster.folder.to_string_lossy();
    command(&script.to_string_lossy(), &[verb, &folder], None).await?;
    Ok(())
}

async fn upgrade(values: &[&str]) -> Result<()> {
    let chart = repository().join("charts/ckb-probe");
    let chart = chart.to_string_lossy();
    let arguments = [
        "upgrade",
        RELEASE,
        &chart,
        "--namespace",
        SYSTEM,
        "--reuse-values",
        "--wait",
        "--timeout",
        "2m",
    ];
    command("helm", &[&arguments[..], values].concat(), None).await?;
    Ok(())
}

/// The pods of agent and operator: how often their containers have restarted, and how many of them are not ready.
async fn looked_after(scene: &Scene<'_>) -> Result<(i32, usize)> {
    let mut found = (0, 0);
    for labels in [AGENTS, OPERATORS] {
        let pods = scene
            .cluster
            .api::<Pod>(SYSTEM)
            .list(&ListParams::default().labels(labels))
            .await?;
        let statuses = pods
            .iter()
            .filter_map(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        for status in statuses.flatten() {
            found.0 += status.restart_count;
            found.1 += usize::from(!status.ready);
        }
    }
    Ok(found)
}
