//! Without its operator, and without the API server, an agent goes on: nothing is lost but the time.

use std::cell::Cell;

use k8s_openapi::jiff::Timestamp;
use tokio::net::TcpStream;

use super::prelude::*;
use crate::workload::Fixture;

/// How long there is no API server.
const OUTAGE: Duration = Duration::from_secs(30);

/// From the return of the API server, for pods, until the status is of now again. Both agent and operator look for it
/// every few seconds.
const CURRENT: Duration = Duration::from_secs(30);

/// From the API server's first answer until the cluster leads pods to it again.
const REACHABLE: Duration = Duration::from_secs(120);

/// Calls all the while: 200 a second, in rounds of ten seconds. A target that is silent is no news, so its status is not written again.
const FIXTURE: FixturePod = FixturePod::ground_truth(
    "steady",
    &[
        "--rate",
        "200",
        "rocksdb_get_pinned_cf 1800 constant:1000",
        "rocksdb_transaction_commit 200 constant:1000",
    ],
);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let fixture = scene.run(FIXTURE).await?;
    let agent = scene.measure(&FIXTURE, &fixture).await?;
    wait::until("every probe", ATTACH, async || {
        let report = scene.cluster.report(&scene.namespace, PROBE, FIXTURE.name);
        let state = report.await?.state;
        expect(
            state == ckb_probe_crds::InstanceState::Attached,
            "an attached target",
            || format!("{state:?}"),
        )
    })
    .await?;
    let mut watched = Watched::default();
    let over = Cell::new(false);
    let played = async {
        let outcome = cut_off(scene, &agent, &mut watched).await;
        over.set(true);
        outcome
    };
    let (made, outcome) = futures::join!(rounds(&fixture, &over), played);
    outcome?;
    let made = made?;

    let counted = watched.look(scene, &agent).await?;
    scene.equal_of(
        "calls counted over both, less those that were made",
        counted - made as f64,
        &format!("of {made}"),
        0,
    );
    let shown = scene.counted(PROBE, made).await?;
    scene.equal("calls in the status in the end", shown, made);
    scene.equal_of(
        "times that a counter went backwards",
        watched.backwards,
        &format!("of {}", watched.looks),
        0,
    );
    scene.equal("agents that restarted", !agent.process.is_alive(), 0);
    Ok(())
}

/// Rounds of calls until it is over; returns how many were made.
async fn rounds(fixture: &Fixture, over: &Cell<bool>) -> Result<u64> {
    let mut made = 0;
    while !over.get() {
        fixture.begin()?;
        let truth = fixture.finish(ATTACH * 2).await?;
        made += truth.calls();
    }
    Ok(made)
}

/// First there is no operator, and then no API server, until the status is of now again.
async fn cut_off(scene: &mut Scene<'_>, agent: &Component, watched: &mut Watched) -> Result<()> {
    scene.firing().await?;
    let operator = scene.cluster.operator().await?;
    let deleted = Instant::now();
    let pods = scene.cluster.api::<Pod>(crate::cluster::SYSTEM);
    pods.delete(&operator.pod, &DeleteParams::default()).await?;
    let restarted = Timestamp::now();
    wait::until("another operator's status", ATTACH, async || {
        watched.look(scene, agent).await?;
        let another = scene.cluster.operator().await?;
        expect(
            another.process != operator.process,
            "another operator",
            || "the old one",
        )?;
        reported_after(scene, restarted).await
    })
    .await?;
    scene.seconds(
        "from the deletion of the operator to another's status",
        deleted.elapsed(),
        ATTACH,
    );

    let address = scene.cluster.service_address().await?;
    scene.cluster.api_server("stop").await?;
    let stopped = Instant::now();
    let first = watched.look(scene, agent).await;
    let lost = hold_out(scene, agent, watched, stopped).await;
    // Whatever happened: nothing else works without it.
    scene.cluster.api_server("start").await?;
    let (first, last) = (first?, lost?);
    // kube-proxy, which leads pods to it, finds back in its own time: up to half a minute on a busy machine.
    wait::until(
        "the API server's address in the cluster",
        REACHABLE,
        async || {
            watched.look(scene, agent).await?;
            TcpStream::connect(&address)
                .await
                .map_err(Failure::system(address.clone()))
        },
    )
    .await?;
    let (back, returned) = (Instant::now(), Timestamp::now());
    scene.figure(
        "calls counted during the outage",
        last - first,
        "calls",
        Bound::Above(0.0),
    );
    wait::until("a status of now", CURRENT * 4, async || {
        watched.look(scene, agent).await?;
        reported_after(scene, returned).await
    })
    .await?;
    scene.seconds(
        "from the API server's return for pods to a current status",
        back.elapsed(),
        CURRENT,
    );
    Ok(())
}

/// Looks every second until the outage is over; returns what was counted at its end.
async fn hold_out(
    scene: &Scene<'_>,
    agent: &Component,
    watched: &mut Watched,
    stopped: Instant,
) -> Result<f64> {
    loop {
        let counted = watched.look(scene, agent).await?;
        if stopped.elapsed() >= OUTAGE {
            return Ok(counted);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Succeeds when the status rests on a report that is younger than this.
async fn reported_after(scene: &Scene<'_>, time: Timestamp) -> Result<()> {
    let status = scene.now(PROBE).await?;
    let reported = status.last_report_time.map(|time| time.0);
    expect(
        reported > Some(time),
        format!("a status that rests on a report after {time}"),
        || format!("{reported:?}"),
    )
}

/// The counters of the agent, as they were seen before.
#[derive(Default)]
struct Watched {
    before: Metrics,
    looks: u64,
    backwards: u64,
}

impl Watched {
    /// Scrapes them, compares each with what it was, and returns the sum of all calls.
    async fn look(&mut self, scene: &Scene<'_>, agent: &Component) -> Result<f64> {
        let now = agent.scrape().await?;
        self.backwards += now.backwards(&self.before);
        self.looks += 1;
        let labels = [("namespace", scene.namespace.as_str())];
        let calls = now.sum("ckb_probe_operation_duration_seconds_count", &labels);
        self.before = now;
        Ok(calls.unwrap_or_default())
    }
}
