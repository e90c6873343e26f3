//! `kubectl ckbprobe` on a real cluster: what it tries is measured and leaves nothing, what it says is broken is, and what it shows agrees.

mod views;

use std::{env, process::Stdio};

use ckb_probe_views::{
    diagnosis::{Diagnosis, Place},
    document::{Document, View},
};
use tokio::process::{Child, Command};

use super::prelude::*;
use crate::workload::fixture_target;

/// Calls now and then, for longer than the scenario lasts.
const CALLS: &[&str] = &["--rate", "20", "rocksdb_get_pinned_cf 20000 constant:1000"];

/// It was built with this program.
const PLUGIN: &str = "kubectl-ckbprobe";

pub(super) struct Ended {
    pub code: i32,
    pub printed: String,
    pub said: String,
}

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    for (app, variant) in [
        ("healthy", "ground-truth"),
        ("stripped", "ground-truth-stripped"),
    ] {
        let pod = FixturePod {
            variant,
            ..FixturePod::ground_truth(app, CALLS)
        };
        scene.begin(pod).await?;
    }

    // What doctor is to say of these is settled by the end.
    for (name, executable) in [("well", "ground-truth"), ("wrong", "nosuch")] {
        let target = fixture_target("healthy", executable);
        let probe = probe(&scene.namespace, name, target, &operations::names(), "2s");
        scene.apply_probe(probe).await?;
    }

    let healthy = ["-l", "app=healthy", "--executable", "ground-truth"];
    let tried = asked(
        scene,
        "try",
        &["storage", "--for", "3s", "-o", "json"],
        &healthy,
    )
    .await?;
    scene.equal("exit code of a try that measures", tried.code, 0);
    let counted = documents(&tried.printed).filter(|one| {
        matches!(&one.view, View::Figures(figures) if figures.ready && figures.headline.starts_with("storage "))
    });
    let counted = counted.count() as u64;
    scene.figure("figures that a try shows", counted, "", Bound::AtLeast(1.0));

    let stripped = [
        "-l",
        "app=stripped",
        "--executable",
        "ground-truth-stripped",
    ];
    let tried = asked(scene, "try", &["storage", "--wait", "8s"], &stripped).await?;
    scene.equal("exit code of a try that does not", tried.code, 1);
    expect(
        tried.said.contains("× broken first: symbols of "),
        "symbols are what is broken first of a binary that is stripped",
        || tried.said.clone(),
    )?;
    let nobody = ["-l", "app=nobody"];
    let tried = asked(scene, "try", &["storage", "--wait", "4s"], &nobody).await?;
    expect(
        tried.said.contains("× broken first: pods of "),
        "pods are what is broken first where none is selected",
        || tried.said.clone(),
    )?;

    let child = start(scene, "try", &["storage"], &healthy)?;
    wait::until("the CkbProbe of a try", ATTACH, async || {
        let there = probes(scene).await?;
        expect(there == 3, "three", || there.to_string())
    })
    .await?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        let told = rustix::process::kill_process(pid, Signal::INT);
        told.map_err(std::io::Error::from)
            .map_err(Failure::system("kill"))?;
    }
    end(child).await?;
    scene.equal(
        "CkbProbes beside which tries leave none",
        probes(scene).await?,
        2,
    );

    let (well, code) = doctor(scene, &["well", "--wait", "30s"]).await?;
    scene.equal("exit code of doctor where all is well", code, 0);
    expect(well.ok, "all well", || format!("{well:?}"))?;
    let (wrong, code) = doctor(scene, &["wrong"]).await?;
    scene.equal("exit code of doctor where it is not", code, 1);
    let first = wrong
        .first_failure()
        .map(|first| (first.place, first.reason));
    expect(
        first == Some((Place::Process, Some(Reason::ExecutableNotFound))),
        "the process is what is broken first",
        || format!("{wrong:?}"),
    )?;
    let parts = well
        .parts
        .iter()
        .filter(|one| one.name.starts_with("agent on "));
    scene.equal("agents whose version doctor tells", parts.count() as u64, 1);
    views::agree(scene, "well", "healthy").await
}

async fn probes(scene: &Scene<'_>) -> Result<u64> {
    let api = scene.cluster.api::<CkbProbe>(&scene.namespace);
    Ok(api.list(&ListParams::default()).await?.items.len() as u64)
}

/// What was printed for programs, line by line.
pub(super) fn documents(printed: &str) -> impl Iterator<Item = Document> {
    let lines = printed.lines();
    lines.filter_map(|line| Document::read(line).ok())
}

async fn doctor(scene: &Scene<'_>, arguments: &[&str]) -> Result<(Diagnosis, i32)> {
    let ended = asked(scene, "doctor", arguments, &["-o", "json"]).await?;
    match Document::read(&ended.printed).map(|document| document.view) {
        Ok(View::Diagnosis(found)) => Ok((found, ended.code)),
        _ => Err(Failure::missing(format!(
            "a diagnosis in {:?}",
            ended.printed
        ))),
    }
}

pub(super) async fn asked(
    scene: &Scene<'_>,
    verb: &str,
    some: &[&str],
    more: &[&str],
) -> Result<Ended> {
    end(start(scene, verb, some, more)?).await
}

pub(super) fn start(scene: &Scene<'_>, verb: &str, some: &[&str], more: &[&str]) -> Result<Child> {
    let own = env::current_exe().map_err(Failure::system(PLUGIN))?;
    let mut command = Command::new(own.with_file_name(PLUGIN));
    command
        .arg(verb)
        .args(some)
        .args(more)
        .args(["-n", &scene.namespace])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if verb == "try" {
        command.args(["--interval", "2s", "--max-percent", "50"]);
    }
    command.spawn().map_err(Failure::system(PLUGIN))
}

pub(super) async fn end(child: Child) -> Result<Ended> {
    let output = child.wait_with_output().await;
    let output = output.map_err(Failure::system(PLUGIN))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ended {
        code: output.status.code().unwrap_or(-1),
        printed: text(output.stdout),
        said: text(output.stderr),
    })
}
