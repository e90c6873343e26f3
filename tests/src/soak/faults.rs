//! What goes wrong. Each fault says by itself whether it has struck: one that has not is an error of the test.

use std::{
    fs::{self, File},
    io::Write as _,
    process::Command,
    time::Duration,
};

use ckb_probe_crds::InstanceState;
use futures::future::LocalBoxFuture;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    net::TcpStream,
    time::{sleep, timeout},
};

use super::{
    clock::Clock,
    hostile,
    stage::{STEADY, Stage},
};
use crate::{
    bpf::Held,
    failure::{Failure, Result, expect},
    process::Process,
    scene::ATTACH,
    wait,
};

/// Something that goes wrong.
pub struct Fault {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What happens, in a sentence.
    pub about: &'static str,
    /// Whether what is measured all the while dies of it, too: it then makes its calls afterwards.
    pub(super) ends_targets: bool,
    pub(super) strike:
        for<'a> fn(&'a mut Stage, &'a mut fastrand::Rng) -> LocalBoxFuture<'a, Result<()>>,
}

macro_rules! faults {
    ($($name:literal: $function:path, $about:literal $(, $ends_targets:literal)?;)*) => {
        &[$(Fault {
            name: $name,
            about: $about,
            ends_targets: false $(|| $ends_targets)?,
            strike: |stage, dice| Box::pin($function(stage, dice)),
        }),*]
    };
}

/// Every fault; `true` where it ends targets.
pub const ALL: &[Fault] = faults! {
    "agent-killed": agent_killed, "the agent is killed while it measures";
    "operator-killed": operator_killed, "the operator is killed";
    "kubelet-killed": kubelet_killed, "the kubelet is killed, and starts again";
    "api-server-killed": api_server_killed, "the API server is killed, and starts again";
    "etcd-killed": etcd_killed, "etcd is killed, and starts again";
    "packets-dropped": packets_dropped, "nothing that is sent to the API server arrives";
    "api-server-stopped": api_server_stopped, "the API server takes connections and does not answer";
    "container-restarted": container_restarted, "a target's process is killed, and its container restarts";
    "pods-churned": pods_churned, "targets come and go";
    "ckbprobes-edited": ckbprobes_edited, "a CkbProbe is created, edited, paused and deleted";
    "ring-overrun": ring_overrun, "a target has more slow calls than the agent can list";
    "hostile-tenant": hostile::tenant, "a tenant edits a CkbProbe all the time, and makes and deletes more than are measured";
    "hostile-target": hostile::target, "a target forks, executes, maps, and makes threads as fast as it can";
    "disk-full": disk_full, "a target's disk is full while it is attached to";
    "node-rebooted": node_rebooted, "the node loses its power, and starts again", true;
    "clock-set": clock_set, "the wall clock of this machine is set forth and back";
};

async fn agent_killed(stage: &mut Stage, _: &mut fastrand::Rng) -> Result<()> {
    let agent = stage.cluster.agent().await?.process;
    let held = Held::by(agent)?;
    expect(
        !held.programs.is_empty(),
        "an agent that holds programs",
        || format!("{held:?}"),
    )?;
    agent.signal(Signal::KILL)?;
    agent.ended(Duration::from_secs(10)).await?;
    wait::until(
        "the agent's programs to go",
        Duration::from_secs(30),
        async || held.expect_gone().await,
    )
    .await
}

async fn operator_killed(stage: &mut Stage, _: &mut fastrand::Rng) -> Result<()> {
    let operator = stage.cluster.operator().await?.process;
    operator.signal(Signal::KILL)?;
    operator.ended(Duration::from_secs(10)).await
}

async fn kubelet_killed(stage: &mut Stage, _: &mut fastrand::Rng) -> Result<()> {
    stage.cluster.crash("kubelet").await
}

async fn api_server_killed(stage: &mut Stage, _: &mut fastrand::Rng) -> Result<()> {
    stage.cluster.crash("apiserver").await
}

async fn etcd_killed(stage: &mut Stage, _: &mut fastrand::Rng) -> Result<()> {
    stage.cluster.crash("etcd").await
}

/// Where it listens, on this machine.
const API_SERVER: &str = "127.0.0.1:6443";

/// A rule of this machine's packet filter. Removed when it is dropped.
struct Dropping;

const RULE: [&str; 11] = [
    "INPUT",
    "-p",
    "tcp",
    "--dport",
    "6443",
    "-m",
    "comment",
    "--comment",
    "ckb-probe-soak",
    "-j",
    "DROP",
];

impl Dropping {
    fn begin() -> Result<Self> {
        let added = Command::new("iptables").arg("-I").args(RULE).status();
        let added = added.map_err(Failure::system("iptables"))?;
        expect(added.success(), "a rule that drops packets", || added)?;
        Ok(Self)
    }
}

impl Drop for Dropping {
    fn drop(&mut self) {
        // What follows would find out.
        let _ = Command::new("iptables").arg("-D").args(RULE).status();
    }
}

async fn packets_dropped(_: &mut Stage, dice: &mut fastrand::Rng) -> Result<()> {
    let dropping = Dropping::begin()?;
    let connected = timeout(Duration::from_secs(3), TcpStream::connect(API_SERVER)).await;
    expect(connected.is_err(), "no answer of any sort", || {
        format!("{connected:?}")
    })?;
    sleep(Duration::from_secs(dice.u64(10..30))).await;
    drop(dropping);
    answers(true).await
}

async fn api_server_stopped(stage: &mut Stage, dice: &mut fastrand::Rng) -> Result<()> {
    let file = stage.cluster.folder.join("apiserver.pid");
    let what = file.display().to_string();
    let text = fs::read_to_string(&file).map_err(Failure::system(what.clone()))?;
    let pid = text.trim().parse().map_err(Failure::format(what))?;
    let stopped = Process::of(pid)?.stop().await?;
    answers(false).await?;
    sleep(Duration::from_secs(dice.u64(10..25))).await;
    drop(stopped);
    answers(true).await
}

/// Succeeds when the API server answers, or does not.
async fn answers(wanted: bool) -> Result<()> {
    wait::until("the API server", ATTACH, async || {
        let arguments = ["get", "--raw", "/readyz", "--request-timeout=2s"];
        let answer = crate::cluster::run("kubectl", &arguments, None).await;
        expect(
            answer.is_ok() == wanted,
            format!("an answer: {wanted}"),
            || format!("{answer:?}"),
        )
    })
    .await
}

async fn container_restarted(stage: &mut Stage, dice: &mut fastrand::Rng) -> Result<()> {
    let name = format!("restless-{}", dice.u32(..));
    let pod = stage
        .pod(&name, "restless", &["rocksdb_write 1 constant:0"])
        .await?;
    stage.measure("restless", "restless", json!({})).await?;
    stage.attached("restless", 1).await?;
    pod.process.signal(Signal::KILL)?;
    wait::until("the target to be attached again", ATTACH * 2, async || {
        let report = stage
            .cluster
            .report(&stage.namespace, "restless", &name)
            .await?;
        expect(
            report.state == InstanceState::Attached
                && report.reattaches == 1
                && report.gap_milliseconds > 0,
            "one restart, with a gap",
            || {
                format!(
                    "{:?}, {}, {} ms",
                    report.state, report.reattaches, report.gap_milliseconds
                )
            },
        )
    })
    .await?;
    stage.unmeasure("restless").await?;
    stage.delete_pod(&name).await
}

async fn pods_churned(stage: &mut Stage, dice: &mut fastrand::Rng) -> Result<()> {
    let count = dice.u32(3..6);
    let names: Vec<String> = (0..count)
        .map(|_| format!("churn-{}", dice.u32(..)))
        .collect();
    stage.measure("churn", "churn", json!({})).await?;
    for name in &names {
        stage
            .pod(name, "churn", &["rocksdb_write 1 constant:0"])
            .await?;
    }
    stage.attached("churn", count).await?;
    for name in &names {
        stage.delete_pod(name).await?;
    }
    stage.attached("churn", 0).await?;
    stage.unmeasure("churn").await
}

async fn ckbprobes_edited(stage: &mut Stage, _: &mut fastrand::Rng) -> Result<()> {
    const NAME: &str = "edited";
    stage.measure(NAME, STEADY, json!({})).await?;
    stage.attached(NAME, 1).await?;
    stage
        .measure(
            NAME,
            STEADY,
            json!({ "operations": ["Get"], "byColumnFamily": true }),
        )
        .await?;
    stage.attached(NAME, 1).await?;
    let patch = |paused: bool| json!({ "spec": { "paused": paused } }).to_string();
    let namespace = stage.namespace.clone();
    let pause = async |paused| {
        let patch = patch(paused);
        let arguments = [
            "-n",
            &namespace,
            "patch",
            "ckbprobe",
            NAME,
            "--type=merge",
            "-p",
            &patch,
        ];
        crate::cluster::run("kubectl", &arguments, None).await
    };
    pause(true).await?;
    wait::until("the target to be let go", ATTACH, async || {
        let status = stage.cluster.status(&namespace, NAME).await?;
        expect(status.targets.attached == 0, "no attached target", || {
            format!("{:?}", status.targets)
        })
    })
    .await?;
    pause(false).await?;
    stage.attached(NAME, 1).await?;
    stage.unmeasure(NAME).await
}

async fn ring_overrun(stage: &mut Stage, dice: &mut fastrand::Rng) -> Result<()> {
    const NAME: &str = "burst";
    let name = format!("{NAME}-{}", dice.u32(..));
    let burst = stage
        .pod(&name, NAME, &["rocksdb_get_pinned_cf 200000 constant:2000"])
        .await?;
    stage
        .measure(NAME, NAME, json!({ "slowThreshold": "1us" }))
        .await?;
    stage.attached(NAME, 1).await?;
    let agent = stage.cluster.agent().await?;
    let stopped = agent.process.stop().await?;
    burst.begin()?;
    let truth = burst.finish(ATTACH).await;
    drop(stopped);
    let made: u64 = truth?.calls();
    let labels = [("namespace", stage.namespace.as_str()), ("ckbprobe", NAME)];
    wait::until("every call, and what was lost", ATTACH, async || {
        let metrics = agent.scrape().await?;
        let sum = |name| metrics.total(name, &labels);
        let counted = sum("ckb_probe_operation_duration_seconds_count");
        let events = [&labels[..], &[("what", "events")]].concat();
        let lost = metrics.total("ckb_probe_lost_total", &events);
        expect(
            counted == made as f64 && lost > 0.0,
            format!("{made} calls, and some of them not listed"),
            || format!("{counted} and {lost}"),
        )
    })
    .await?;
    stage.unmeasure(NAME).await?;
    stage.delete_pod(&name).await
}

async fn disk_full(stage: &mut Stage, _: &mut fastrand::Rng) -> Result<()> {
    const NAME: &str = "full";
    let path = stage.steady.process.path("/full/file");
    let what = || path.display().to_string();
    let mut file = File::create(&path).map_err(Failure::system(what()))?;
    let full = loop {
        if let Err(error) = file.write_all(&[0; 4096]) {
            break error;
        }
        let length = file.metadata().map_err(Failure::system(what()))?.len();
        expect(length < 64 << 20, "a disk of one megabyte", || {
            format!("{length} bytes")
        })?;
    };
    expect(
        full.kind() == std::io::ErrorKind::StorageFull,
        "a full disk",
        || full,
    )?;
    stage.measure(NAME, STEADY, json!({})).await?;
    let attached = stage.attached(NAME, 1).await;
    fs::remove_file(&path).map_err(Failure::system(what()))?;
    attached?;
    stage.unmeasure(NAME).await
}

async fn node_rebooted(stage: &mut Stage, _: &mut fastrand::Rng) -> Result<()> {
    let (agent, operator) = (
        stage.cluster.agent().await?,
        stage.cluster.operator().await?,
    );
    let before = [agent.process, operator.process, stage.steady.process];
    stage.cluster.reboot().await?;
    let alive = before.iter().filter(|process| process.is_alive()).count();
    expect(alive == 0, "no process of before", || alive)?;
    stage.renew().await
}

/// How far the wall clock is set: further than any deadline of ours, and less than what certificates and tokens are made for.
const APART: Duration = Duration::from_secs(600);

async fn clock_set(_: &mut Stage, dice: &mut fastrand::Rng) -> Result<()> {
    let mut clock = Clock::keep()?;
    for (forth, back) in [(APART, Duration::ZERO), (Duration::ZERO, APART)] {
        clock.set(forth, back)?;
        // Several reports of the agent fall into it.
        sleep(Duration::from_secs(dice.u64(5..10))).await;
    }
    clock.restore()
}
