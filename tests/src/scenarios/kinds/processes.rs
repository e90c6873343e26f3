//! What the test runs in the target's pod, and how it ends the target: told in the status, in the agent's log, and by
//! Events.

use ckb_probe_crds::EventStatus;
use k8s_openapi::api::events::v1;

use super::Stage;
use crate::scenarios::prelude::*;

/// With the arguments of what is executed, in the agent's log.
pub const OPEN: &str = "processes";

/// The probe that lists no arguments.
pub const REDACTED: &str = "redacted";

/// What every image of a dynamic executable has, even without a shell; and what the kernel calls it.
const PROGRAM: &str = "/lib64/ld-linux-x86-64.so.2";
const COMMAND: &str = "ld-linux-x86-64";

/// An argument that must not be told where that is not wanted.
const SECRET: &str = "the-password";

/// How often it is run: to say its version, and to find nothing to load.
const SUCCEED: u64 = 5;
const FAIL: u64 = 2;

/// What Events of things that happened have as their reason.
const OBSERVED: &str = "Observed";

/// Until a target that was told to end has ended, and is back.
const BACK: Duration = Duration::from_secs(60);

pub async fn play(stage: Stage<'_>) -> Result<()> {
    let told = |status: &ckb_probe_crds::CkbProbeStatus| {
        let probe = rows::probe_of(status, OPEN)?;
        let is_told =
            |event: &&EventStatus| event.row == COMMAND && detail(event, "what") == "exec";
        let event = probe.events.iter().find(is_told);
        expect(event.is_some(), "an exec among the events", || {
            format!("{:?}", probe.events)
        })
    };
    // Ends come before execs, and ten events are listed of an interval: the first has it for itself.
    let (ran, status) = futures::join!(
        run(stage, 1),
        stage.scene.status("an exec in the status", ATTACH, told)
    );
    ran?;
    let status = status?;
    run(stage, SUCCEED - 1).await?;
    fail(stage).await?;
    let execs = rows::probe_of(&status, OPEN)?
        .events
        .iter()
        .filter(|event| event.row == COMMAND && detail(event, "what") == "exec");
    // The program, an option and the secret. Who may view the CkbProbe reads no more.
    let shown = execs.filter(|event| detail(event, "arguments") == "3");
    stage.scene.figure(
        "processes: execs in the status with the number of their arguments",
        shown.count(),
        "",
        crate::report::Bound::AtLeast(1.0),
    );

    let runs = SUCCEED + FAIL;
    wait::until("the ends to be counted", ATTACH, async || {
        let metrics = stage.agent.scrape().await?;
        let name = "ckb_probe_process_ends_total";
        let ends = stage.sum(&metrics, OPEN, name, &[("command", COMMAND)]);
        expect(ends >= runs, format!("{runs} ends"), || ends)
    })
    .await?;
    let metrics = stage.agent.scrape().await?;
    for (what, metric, count) in [
        ("execs of commands", "ckb_probe_process_execs_total", runs),
        ("ends of them", "ckb_probe_process_ends_total", runs),
        (
            "of these with a code other than 0",
            "ckb_probe_process_failures_total",
            FAIL,
        ),
        ("of these by a signal", "ckb_probe_process_kills_total", 0),
    ] {
        let counted = stage.sum(&metrics, OPEN, metric, &[("command", COMMAND)]);
        stage
            .scene
            .equal(&format!("processes: {what}"), counted, count);
    }
    check_log(stage).await
}

/// One by one, as `kubectl exec` does.
/// A command that runs in the target's container.
fn exec(stage: Stage<'_>) -> [&str; 8] {
    let scene = stage.scene;
    let pod = &stage.target.pod;
    [
        "-n",
        &scene.namespace,
        "exec",
        pod,
        "-c",
        "ckb",
        "--",
        PROGRAM,
    ]
}

/// Has it say its version, so many times.
async fn run(stage: Stage<'_>, times: u64) -> Result<()> {
    let arguments = [&exec(stage)[..], &["--version", SECRET]].concat();
    for _ in 0..times {
        let version = stage.scene.cluster.kubectl(&arguments).await?;
        expect(version.contains("ld.so"), "its version", || version.clone())?;
    }
    Ok(())
}

/// Has it find nothing to load.
async fn fail(stage: Stage<'_>) -> Result<()> {
    let arguments = [&exec(stage)[..], &["/nothing", SECRET]].concat();
    for _ in 0..FAIL {
        let failed = stage.scene.cluster.kubectl(&arguments).await;
        let says = |failure: &Failure| failure.to_string().contains("exit code 127");
        let is_right = failed.as_ref().is_err_and(says);
        expect(is_right, "exit code 127", || format!("{failed:?}"))?;
    }
    Ok(())
}

/// The agent's log has a line for each exec, with the arguments for the one who may see them.
async fn check_log(stage: Stage<'_>) -> Result<()> {
    let runs = SUCCEED + FAIL;
    let of = |execs: &[Value], probe: &str| {
        let own: Vec<&Value> = execs.iter().filter(|line| line["probe"] == probe).collect();
        let secret = own.iter().filter(|line| line.to_string().contains(SECRET));
        (own.len() as u64, secret.count() as u64)
    };
    // Lines are written a moment after what they tell of is counted.
    let execs = wait::until("the execs in the log", ATTACH, async || {
        let execs = logged(stage).await?;
        for probe in [OPEN, REDACTED] {
            let (lines, _) = of(&execs, probe);
            expect(lines >= runs, format!("{runs} lines of {probe}"), || lines)?;
        }
        Ok(execs)
    })
    .await?;
    for (probe, secrets) in [(OPEN, runs), (REDACTED, 0)] {
        let (lines, with_secret) = of(&execs, probe);
        let name = format!("processes: execs in the log, {probe}");
        stage.scene.equal(&name, lines, runs);
        let name = format!("processes: of these with the arguments, {probe}");
        stage.scene.equal(&name, with_secret, secrets);
    }
    let counted = execs
        .iter()
        .filter(|line| line["probe"] == REDACTED && line["arguments"] == 3);
    let name = "processes: of these with the number of arguments, redacted";
    stage.scene.equal(name, counted.count(), runs);
    Ok(())
}

/// The lines of the agent's log about execs of the command in this scene.
async fn logged(stage: Stage<'_>) -> Result<Vec<Value>> {
    let log = stage.scene.cluster.log(stage.agent).await?;
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(lines
        .filter(|line| line["namespace"] == *stage.scene.namespace)
        .filter(|line| line["command"] == COMMAND && line["what"] == "exec")
        .collect())
}

/// The target is ended in two ways, and each time an Event of the CkbProbe says why.
pub async fn end(stage: Stage<'_>) -> Result<()> {
    let scene = stage.scene;
    let first = stage.target.process;
    first.signal(Signal::TERM)?;
    let said = observed(stage, first).await?;
    let name = "processes: Events that say that the target ended by itself, of those about its end";
    let right = said.iter().filter(|note| note.contains("end, code 0"));
    scene.equal(name, right.count(), said.len());

    let Target {
        process: second, ..
    } = wait::until("the target to be back", BACK, async || {
        let pod = stage.target.pod.clone();
        let process = scene
            .cluster
            .process(&scene.namespace, &pod, "ckb", "ckb")
            .await?;
        expect(process != first, "another process", || {
            format!("{process:?}")
        })?;
        Ok(Target { pod, process })
    })
    .await?;
    scene
        .status("the target to be attached again", ATTACH, |status| {
            let instance = status.instances.first();
            let again = instance.is_some_and(|one| one.reattaches == 1);
            expect(again, "one reattach", || format!("{instance:?}"))
        })
        .await?;
    second.signal(Signal::KILL)?;
    let said = observed(stage, second).await?;
    let name = "processes: Events that say that it was killed, of those about its second end";
    let right = said
        .iter()
        .filter(|note| note.contains("end, signal SIGKILL"));
    scene.equal(name, right.count(), said.len());

    let metrics = stage.agent.scrape().await?;
    for (what, metric, count) in [
        ("ends of the target", "ckb_probe_process_ends_total", 2),
        ("of these by a signal", "ckb_probe_process_kills_total", 1),
    ] {
        let counted = stage.sum(&metrics, OPEN, metric, &[("command", "ckb")]);
        scene.equal(&format!("processes: {what}"), counted, count);
    }
    Ok(())
}

/// What the Events of the CkbProbe say of the end of a process, once there is one.
async fn observed(stage: Stage<'_>, process: Process) -> Result<Vec<String>> {
    let namespace = &stage.scene.namespace;
    let pid = format!("pid {},", process.pid);
    wait::until("an Event about the end", BACK, async || {
        let events = stage.scene.cluster.api::<v1::Event>(namespace);
        let events = events.list(&ListParams::default()).await?.items;
        let about = events.into_iter().filter(|event| {
            let regarding = event.regarding.as_ref();
            regarding.is_some_and(|object| object.name.as_deref() == Some(PROBE))
                && event.reason.as_deref() == Some(OBSERVED)
        });
        let notes = about.filter_map(|event| event.note);
        let notes: Vec<String> = notes.filter(|note| note.contains(&pid)).collect();
        expect(!notes.is_empty(), "an Event", || "none")?;
        Ok(notes)
    })
    .await
}

fn detail<'a>(event: &'a EventStatus, name: &str) -> &'a str {
    event.details.get(name).map_or("", String::as_str)
}
