//! The packets of established connections to the API server are dropped, as by a firewall that has forgotten them: that is noticed,
//! and what a user says meanwhile is done.

use super::prelude::*;

/// What the project promises: until a dead connection is given up, and until pausing has taken effect.
const NOTICED: Duration = Duration::from_secs(20);
const PAUSED: Duration = Duration::from_secs(30);

/// From a process's leaving its network to its end.
const GOING: Duration = Duration::from_secs(5);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let (_, code, agent) = scene.measured_workload(Load::Steady).await?;
    let operator = scene.cluster.operator().await?;

    let mut networks = Vec::new();
    for component in [&agent, &operator] {
        networks.push(Network::of(component).await?);
    }
    let outcome = cut(scene, &networks, async || code.expect_untouched()).await;
    // Whatever happened: the operator is needed further on.
    for network in &networks {
        network.mend().await?;
    }
    outcome?;
    scene.equal("operators that restarted", !operator.process.is_alive(), 0);
    Ok(())
}

async fn cut(
    scene: &Scene<'_>,
    networks: &[Network],
    detached: impl AsyncFn() -> Result<()>,
) -> Result<()> {
    let connections: usize = networks.iter().map(|network| network.ports.len()).sum();
    scene.figure(
        "connections of agent and operator whose packets are dropped",
        connections,
        "",
        Bound::AtLeast(2.0),
    );
    for network in networks {
        network.drop_all().await?;
    }
    let cut = Instant::now();
    scene.pause(PROBE).await?;
    let given_up = async {
        wait::until("the connections to be given up", 2 * NOTICED, async || {
            let mut left = 0;
            for network in networks {
                left += network.left().await?;
            }
            expect(left == 0, "none of them", || left)
        })
        .await?;
        Result::Ok(cut.elapsed())
    };
    let paused = async {
        wait::until("the probes to go", 2 * PAUSED, detached).await?;
        Result::Ok(cut.elapsed())
    };
    let (given_up, paused) = futures::future::try_join(given_up, paused).await?;
    scene.seconds("until the dead connections are given up", given_up, NOTICED);
    scene.seconds("until a pause takes effect all the same", paused, PAUSED);
    Ok(())
}

/// The network of a pod, and the local ports of the connections that it had to the API server.
struct Network {
    name: String,
    /// One of its processes. A network goes with its last.
    process: Process,
    ports: BTreeSet<u16>,
}

impl Network {
    async fn of(component: &Component) -> Result<Self> {
        let mut network = Self {
            name: format!("--net=/proc/{}/ns/net", component.process.pid),
            process: component.process,
            ports: BTreeSet::new(),
        };
        network.ports = network.connected().await?;
        Ok(network)
    }

    /// The local ports of connections to port 443, of which the API server's service has one.
    async fn connected(&self) -> Result<BTreeSet<u16>> {
        let list = self
            .run(&["ss", "-Htn", "state", "established", "dport", "=", ":443"])
            .await?;
        let port = |line: &str| {
            let local = line.split_whitespace().nth(2)?;
            local.rsplit_once(':')?.1.parse().ok()
        };
        Ok(list.lines().filter_map(port).collect())
    }

    /// How many of those connections are still there.
    async fn left(&self) -> Result<usize> {
        let connected = self
            .or_gone(self.connected().await)
            .await?
            .unwrap_or_default();
        Ok(connected.intersection(&self.ports).count())
    }

    async fn drop_all(&self) -> Result<()> {
        self.rules("-I").await
    }

    async fn mend(&self) -> Result<()> {
        self.or_gone(self.rules("-D").await).await.map(drop)
    }

    /// The agent of a node on which nothing is measured goes, at any moment, and its network a moment earlier.
    async fn or_gone<T>(&self, outcome: Result<T>) -> Result<Option<T>> {
        let Err(error) = outcome else {
            return outcome.map(Some);
        };
        let gone = wait::until("the agent to be gone", GOING, async || {
            expect(!self.process.is_alive(), "gone", || "alive")
        });
        gone.await.map(|()| None).map_err(|_| error)
    }

    async fn rules(&self, verb: &str) -> Result<()> {
        for port in &self.ports {
            let port = port.to_string();
            for (chain, side) in [("INPUT", "--dport"), ("OUTPUT", "--sport")] {
                self.run(&[
                    "iptables", verb, chain, "-p", "tcp", side, &port, "-j", "DROP",
                ])
                .await?;
            }
        }
        Ok(())
    }

    async fn run(&self, what: &[&str]) -> Result<String> {
        command("nsenter", &[&[&*self.name], what].concat(), None).await
    }
}
