//! An earlier release measures, is upgraded to this one, and this one downgraded again, as docs/install.md has it: nobody who asked loses
//! what was asked, and of a target that counts its calls none is missing that was made while an agent was attached.

mod lookout;
mod standing;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    bench::report::Report,
    cluster::{Cluster, SYSTEM, run as command},
    failure::{Failure, Result, expect, read},
    fixture::repository,
    report::Bound,
    scene::ATTACH,
    soak::stage::{EDGES, RATE, STEADY, Stage},
    wait,
    workload::{Load, Workload},
};
use lookout::Lookout;
use standing::{Standing, restarts};

const RELEASE: &str = "ckb-probe";

/// From the beginning of `helm upgrade` until another agent is attached and each condition is well that was.
const REPLACED: Duration = Duration::from_secs(120);

/// What the target calls meanwhile: for longer than a replacement takes.
const PLAN: &[&str] = &[
    "rocksdb_get_pinned_cf 16000 constant:1000 rate:400",
    "rocksdb_transaction_commit 4000 constant:1000 rate:100",
];

/// A release as it is installed.
#[derive(Clone, Debug)]
pub struct Release {
    /// The folder of the chart.
    pub chart: PathBuf,
    /// The tag of the image.
    pub tag: String,
}

/// Whose definitions of the resources there are after a release was installed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Definitions {
    /// Its own.
    Own,
    /// Those that were there: with those of an earlier release the API server would forget what only a later one knows.
    Kept,
}

/// What is upgraded to what.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The release before this one.
    pub earlier: Release,
    /// What that release has in config/samples.
    pub samples: PathBuf,
    /// The release of this tree.
    pub present: Release,
    /// A file of values that both are installed with, the image's tag apart.
    pub values: PathBuf,
}

/// All of it. What was found is in the report even where it breaks off.
pub async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    let cluster = Cluster::connect().await?;
    // Before it there are no CkbProbes that could be looked for.
    install(&settings.earlier, Definitions::Own, settings).await?;
    cluster.claim().await?;
    let stage = Stage::set(cluster, PLAN).await?;
    let played = play(settings, &stage, report).await;
    if played.is_err() {
        stage.tell().await;
    }
    // Whatever happened: nothing of ours stays.
    let cleared = stage.clear().await;
    played?;
    cleared
}

async fn play(settings: &Settings, stage: &Stage, report: &mut Report) -> Result<()> {
    let cluster = &stage.cluster;
    let workload = Workload::Rocksdb
        .deploy(cluster, &stage.namespace, Load::Steady)
        .await?;
    let earlier = samples(stage, &settings.samples, "").await?;
    settled(stage, &earlier).await?;
    let first = Standing::of(stage, &earlier).await?;
    replaced(
        stage,
        settings,
        (&settings.present, Definitions::Own),
        "upgraded",
        &first,
        report,
    )
    .await?;

    // What the earlier release cannot know: kinds and fields that came since.
    let newer = samples(stage, &repository().join("config/samples"), "-new").await?;
    settled(stage, &newer).await?;
    let asked = Standing::of(stage, &newer).await?;
    replaced(
        stage,
        settings,
        (&settings.earlier, Definitions::Kept),
        "downgraded",
        &first,
        report,
    )
    .await?;
    install(&settings.present, Definitions::Own, settings).await?;
    settled(stage, &newer).await?;
    let lost = asked.others(&Standing::of(stage, &newer).await?);
    report.value(
        "upgraded again: CkbProbes that lost what the earlier release does not know",
        lost.len(),
        "",
        Some(Bound::Exactly(0.0)),
    );
    expect(lost.is_empty(), "CkbProbes as they were asked", || {
        lost.join("; ")
    })?;
    report.value(
        "targets that died",
        stage.dead() + usize::from(!workload.process.is_alive()),
        "",
        Some(Bound::Exactly(0.0)),
    );
    Ok(())
}

/// Installs a release, or has it take the place of the one that is there, as whoever names all values does it each time.
async fn install(release: &Release, definitions: Definitions, settings: &Settings) -> Result<()> {
    let chart = release.chart.to_string_lossy();
    let values = settings.values.to_string_lossy();
    let tag = format!("image.tag={}", release.tag);
    let definitions = format!("crds.install={}", definitions == Definitions::Own);
    let arguments = [
        "upgrade",
        "--install",
        RELEASE,
        &chart,
        "--namespace",
        SYSTEM,
        "--create-namespace",
        "--values",
        &values,
        "--set-string",
        &tag,
        "--set",
        &definitions,
        "--wait",
        "--timeout",
        "3m",
    ];
    command("helm", &arguments, None).await?;
    Ok(())
}

/// Applies the samples that the demo applies, of a folder, under names that end so; says what they are called then.
async fn samples(stage: &Stage, folder: &std::path::Path, suffix: &str) -> Result<Vec<String>> {
    let mut names = vec![];
    for sample in ["demo", "everything"] {
        let path = folder.join(format!("{sample}.yaml"));
        // As the demo does it: RocksDB is in a library here.
        let text = read(&path)?.replace(
            "'rocksdb_transaction_*'",
            "'rocksdb_transaction_*', library: librocksdb",
        );
        let probe = serde_yaml::from_str(&text);
        let mut probe: Value = probe.map_err(Failure::format(path.display().to_string()))?;
        let name = format!("{sample}{suffix}");
        probe["metadata"]["namespace"] = json!(stage.namespace);
        probe["metadata"]["name"] = json!(name);
        stage.cluster.apply(&probe).await?;
        names.push(name);
    }
    names.push(STEADY.to_string());
    Ok(names)
}

/// Waits until each of these CkbProbes has a target that is attached, and figures.
async fn settled(stage: &Stage, names: &[String]) -> Result<()> {
    for name in names {
        wait::until(&format!("{name} to be measured"), REPLACED, async || {
            let status = stage.cluster.status(&stage.namespace, name).await?;
            let targets = &status.targets;
            expect(
                (targets.matched, targets.attached) == (1, 1) && (!status.headline.is_empty()),
                "an attached target with figures",
                || format!("{targets:?}, {:?}", status.conditions),
            )
        })
        .await?;
    }
    Ok(())
}

/// Has one release take the place of another while the target makes its calls, and says what became of all that was there.
async fn replaced(
    stage: &Stage,
    settings: &Settings,
    (by, definitions): (&Release, Definitions),
    word: &str,
    first: &Standing,
    report: &mut Report,
) -> Result<()> {
    let round = stage.begin().await?;
    let began = Instant::now();
    let mut lookout = Lookout::of(stage, &round).await?;
    let (installed, seen) = tokio::join!(
        install(by, definitions, settings),
        lookout.watch(stage, REPLACED)
    );
    installed?;
    let handed_over = seen?;
    let limit = Some(Bound::AtMost(REPLACED.as_secs_f64()));
    report.value(
        format!("{word}: until another agent is attached"),
        began.elapsed(),
        "s",
        limit,
    );

    let truth = stage.steady.finish(ATTACH * 2).await?;
    let made = truth.calls() as f64;
    let counted = handed_over.counted(stage, made).await?;
    let without = handed_over.without.as_secs_f64();
    report.value(format!("{word}: without an agent"), without, "s", None);
    let missing = made - counted;
    report.value(format!("{word}: calls made"), made, "", None);
    report.value(
        format!("{word}: calls that no agent counted"),
        missing,
        "",
        None,
    );
    report.value(
        format!("{word}: calls that are missing beyond those made while no agent was attached"),
        (missing - RATE * without - EDGES).max(0.0),
        "",
        Some(Bound::Exactly(0.0)),
    );
    expect(missing >= 0.0, format!("no more than {made} calls"), || {
        counted
    })?;
    let none = Some(Bound::Exactly(0.0));
    report.value(
        format!("{word}: counters that went backwards without another agent being told of"),
        lookout.backwards(),
        "",
        none,
    );

    let after = wait::until("all to be as it was", REPLACED, async || {
        let after = Standing::of(stage, &first.names()).await?;
        after.expect_like(first)?;
        Ok(after)
    })
    .await;
    report.value(
        format!("{word}: until each condition is well that was, and every counter is there"),
        began.elapsed(),
        "s",
        limit,
    );
    let after = after?;
    let differ = first.others(&after);
    report.value(
        format!("{word}: CkbProbes that are not what they were"),
        differ.len(),
        "",
        none,
    );
    report.value(
        format!("{word}: restarts of agent and operator"),
        restarts(stage).await?,
        "",
        none,
    );
    expect(differ.is_empty(), "CkbProbes as they were", || {
        differ.join("; ")
    })
}
