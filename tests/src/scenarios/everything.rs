//! The sample that asks every kind at once: under its one budget each answers or says why not, and none takes another down.

use ckb_probe_crds::{Kind, ProbeStatus};

use super::prelude::*;
use crate::budget::{self, Watched};

/// What a kernel without kprobes cannot give; whatever else is asked beside it goes on.
const MAY_BE_REFUSED: &str = "kernel";

/// Of a node that hardly works, of which ten kinds are asked under one budget on a machine that has other things to do, six slices may take
/// minutes.
const TOLD: Duration = Duration::from_secs(300);

/// What is quiet until something happens in the pod.
const ENDS: &str = "ends";

/// What may never happen.
const THROWS: &str = "throws";

/// The probe that tells of blocks.
const BLOCKS: &str = "blocks";

/// What happens there: every image of a dynamic executable has this.
const PROGRAM: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "--version"];

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.deploy(Load::Serving).await?;
    let probe = everything(scene)?;
    let ceiling = probe["spec"]["overhead"]["maxPercent"].as_f64();
    let ceiling = ceiling.unwrap_or(f64::NAN);
    scene.apply_probe(probe).await?;
    let status = scene
        .status("an answer of every kind", ATTACH * 2, answered)
        .await?;
    scene.equal(
        "kinds that are asked at once",
        status.probes.len(),
        Kind::ALL.len(),
    );
    let attached = |probe: &&ProbeStatus| probe.targets.attached == 1;
    let refused = status.probes.iter().filter(|probe| !attached(probe));
    let others = refused.filter(|probe| probe.name != MAY_BE_REFUSED);
    scene.equal(
        "kinds that are not attached, but for functions of a kernel that has no kprobes",
        others.count(),
        0,
    );

    let pod = ["exec", target.pod.as_str(), "-c", "ckb", "--"];
    let exec = [&["-n", &scene.namespace], &pod[..], &PROGRAM].concat();
    scene.cluster.kubectl(&exec).await?;
    let started = Instant::now();
    let status = scene
        .status(
            "every kind to tell something, within the budget",
            TOLD,
            |status| {
                expect(budget::is_within(status), "WithinBudget", || {
                    format!("{:?}", status.conditions)
                })?;
                all_fire(status)?;
                let silent = status.probes.iter().filter(attached);
                let silent: Vec<_> = silent.filter(|probe| !tells(probe)).collect();
                expect(silent.is_empty(), "figures of all", || {
                    format!("{silent:?}")
                })
            },
        )
        .await?;
    scene.seconds(
        "until each tells something, within the budget",
        started.elapsed(),
        TOLD,
    );
    judge_support(scene, &status);
    for probe in &status.probes {
        crate::note!("{}: {} {}", probe.name, probe.headline, probe.message);
    }

    let minutes = budget::minutes(
        async || Watched::minute(scene, ceiling, |_| Ok(())).await,
        Watched::is_calm,
    )
    .await?;
    budget::judge(scene, &minutes, |minute| minute);
    let highest = budget::median(&minutes, |minute| minute.highest);
    let status = scene.now(PROBE).await?;
    scene.figure(
        "the estimate is one of something",
        highest,
        &format!(
            "of what is granted, {}",
            status.overhead.summary.unwrap_or_default()
        ),
        Bound::Above(0.0),
    );
    Ok(())
}

/// The sample; where something stands for CKB that has RocksDB in a library, and little else to do, this is said in it. Stacks are
/// taken for the same part of the time, in windows that come twice as often: the first of them is waited for.
fn everything(scene: &Scene<'_>) -> Result<Value> {
    let mut probe = scene.sample("everything")?;
    let probes = probe["spec"]["probes"].as_array_mut().into_iter().flatten();
    for profile in probes.filter_map(|probe| probe.get_mut("profile")) {
        let asked = json!({ "window": "10s", "every": "1m" });
        expect(*profile == asked, format!("{asked} in the sample"), || {
            profile.to_string()
        })?;
        *profile = json!({ "window": "5s", "every": "30s" });
    }
    if scene.workload == Workload::Rocksdb {
        probe["spec"]["overhead"]["maxPercent"] = json!(5);
        let probes = probe["spec"]["probes"].as_array_mut().into_iter().flatten();
        for functions in probes.filter_map(|probe| probe.get_mut("functions")) {
            functions["library"] = json!("librocksdb");
        }
    }
    Ok(probe)
}

/// Ready is about what the kernel supports, and Supported about what it does not: what is not attached is not counted, nor what is
/// attached and lacks something that the kernel has not.
fn judge_support(scene: &Scene<'_>, status: &CkbProbeStatus) {
    for condition in &status.conditions {
        println!(
            "          {} {}: {}",
            condition.type_, condition.status, condition.message
        );
    }
    let attached = status.probes.iter();
    let attached = attached.filter(|probe| probe.targets.attached == 1).count() as u32;
    let asked = status.probes.len() as u32;
    let supported = status.support.supported.unwrap_or_default();
    let is = |type_: &str, value: &str| {
        let mut conditions = status.conditions.iter();
        conditions.any(|one| one.type_ == type_ && one.status == value)
    };
    let all = if supported == asked { "True" } else { "False" };
    let right = [
        is(condition::READY, "True"),
        is(condition::SUPPORTED, all),
        (1..=attached).contains(&supported),
        status.support.summary == Some(format!("{supported}/{asked}")),
    ];
    scene.equal_of(
        "of Ready, Supported and its counts, those that are as the probes are",
        right.into_iter().filter(|right| *right).count(),
        &format!("with {supported}/{asked} probes supported"),
        right.len(),
    );
}

/// Every probe is attached, or refused with a word.
fn answered(status: &CkbProbeStatus) -> Result<()> {
    let told = |probe: &&ProbeStatus| probe.targets.attached == 1 || !probe.message.is_empty();
    let silent = status.probes.iter().find(|probe| !told(probe));
    expect(
        !status.probes.is_empty() && silent.is_none(),
        "every probe attached or refused",
        || format!("{silent:?}"),
    )
}

/// Whether a probe has a headline and figures that are not zero. One that tells what happens has an exec among them, and
/// nothing to say while nothing happens.
fn tells(probe: &ProbeStatus) -> bool {
    let is_something = |figure: &String| figure.contains(|digit| ('1'..='9').contains(&digit));
    let rows = probe.rows.iter();
    if probe.name == ENDS {
        let mut execs = rows.filter_map(|row| row.figures.get("execs"));
        return execs.any(is_something);
    }
    if probe.name == THROWS {
        return !probe.headline.is_empty();
    }
    // The stand-in has no blocks, and of a node's none need be wholly within the slices of so many: the scenario `kinds` has them.
    if probe.name == BLOCKS {
        return true;
    }
    let mut figures = rows.flat_map(|row| row.figures.values());
    !probe.headline.is_empty() && figures.any(is_something)
}
