//! `kubectl ckbprobe cost` on a real cluster: what a CkbProbe costs is found, that one costs nothing is not taken for a cost, and each is left
//! as it was found, also by whoever is interrupted, and after whoever is killed.

use ckb_probe_crds::{FEWEST_PAIRS, Turns};
use ckb_probe_views::{
    cost::{Compared, Cost, Measure, Window},
    document::{Document, View},
};

use super::{
    plugin::{Ended, asked, end, start},
    prelude::*,
};
use crate::workload::fixture_target;

/// Four short calls that are met, or not, in each of some that nobody asks for, for longer than the scenario lasts. To be probed takes each of them
/// longer than to be made, and that is told from what others do to the processors meanwhile.
const CALLS: &[&str] = &[
    "rocksdb_put 3000000 constant:0 rate:20000 calls:rocksdb_get_pinned_cf,constant:0 \
     calls:rocksdb_get_pinned_cf,constant:0 calls:rocksdb_get_pinned_cf,constant:0 calls:rocksdb_get_pinned_cf,constant:0",
];

/// Long enough for the kubelet of the local cluster, which looks once a second.
const WINDOWS: &[&str] = &["--each", "2s", "--settle", "1s", "--ab", "1s"];

const SEED: u32 = 7;

/// What says that it is being compared.
const NOTE: &str = "ckbprobe.dev/paused-before-cost";

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    // One that is met by each call, one that is met by none, and one that keeps the agent there while both are paused.
    for (name, operation) in [("met", "Get"), ("unmet", "Write"), ("stays", "Write")] {
        let pod = FixturePod::ground_truth(name, CALLS);
        let fixture = scene.run(pod).await?;
        if name != "stays" {
            fixture.begin()?;
        }
        let target = fixture_target(name, "ground-truth");
        let probe = probe(&scene.namespace, name, target, &[operation], "1s");
        scene.apply_probe(probe).await?;
    }
    wait::until("all targets", ATTACH, async || {
        for name in ["met", "unmet", "stays"] {
            let attached = scene.now(name).await?.targets.attached;
            expect(attached == 1, "one target", || attached)?;
        }
        Ok(())
    })
    .await?;

    let seed = SEED.to_string();
    let more = [WINDOWS, &["--seed", &seed, "-o", "json"]].concat();
    let begun = Instant::now();
    let (met, unmet) = tokio::join!(
        asked(scene, "cost", &["met"], &more),
        asked(scene, "cost", &["unmet"], &more)
    );
    crate::note!("cost: both were compared within {:?}", begun.elapsed());
    let (met, unmet) = (told(&met?)?, told(&unmet?)?);
    for cost in [&met, &unmet] {
        let turns: Vec<bool> = cost.windows.iter().map(|window| window.probed).collect();
        let planned: Vec<bool> = Turns::of(SEED)
            .take(FEWEST_PAIRS)
            .flat_map(|first| [first, !first])
            .collect();
        expect(
            turns == planned,
            "windows in the order of the coins",
            || format!("{turns:?} and not {planned:?}"),
        )?;
        cost.windows.iter().try_for_each(reckoned_again)?;
        as_it_was(scene, cost.subject.rsplit('/').next().unwrap_or_default()).await?;
    }
    let [of_met, of_unmet] = [cpu(&met)?, cpu(&unmet)?];
    crate::note!(
        "cost: met {of_met:?}, estimated {:?} %",
        met.estimated_percent
    );
    crate::note!(
        "cost: unmet {of_unmet:?}, estimated {:?} %",
        unmet.estimated_percent
    );
    expect(
        !of_met.noise,
        "an effect of what is met by each call",
        || format!("{of_met:?}"),
    )?;
    let percent = |part: f64| part * 100.0;
    let cost = "least that 80,000 probed calls a second cost, of the target's CPU time";
    scene.figure(cost, percent(of_met.low), "%", Bound::AtLeast(1.0));
    let none = match of_unmet.noise {
        true => 0.0,
        false => {
            let again = [WINDOWS, &["-o", "json"]].concat();
            let again = told(&asked(scene, "cost", &["unmet"], &again).await?)?;
            let of_again = cpu(&again)?;
            crate::note!("cost: unmet once more {of_again:?}");
            percent(confirmed(of_unmet, of_again))
        }
    };
    let name = "cost that is seen where no call is probed";
    scene.figure(name, none, "%", Bound::AtMost(5.0));

    let child = begin(scene).await?;
    signal(&child, rustix::process::Signal::INT)?;
    let interrupted = end(child).await?;
    scene.equal(
        "exit code of a cost that is interrupted",
        interrupted.code,
        1,
    );
    as_it_was(scene, "unmet").await?;

    let child = begin(scene).await?;
    signal(&child, rustix::process::Signal::KILL)?;
    end(child).await?;
    let refused = asked(scene, "cost", &["unmet"], &[]).await?;
    expect(
        refused.code == 1
            && refused.said.contains("cost unmet -n")
            && refused.said.contains("--restore"),
        "what one that was killed has left is said",
        || refused.said.clone(),
    )?;
    let restored = asked(scene, "cost", &["unmet", "--restore"], &[]).await?;
    scene.equal("exit code of what puts it back", restored.code, 0);
    as_it_was(scene, "unmet").await
}

/// The document, of one that compared.
fn told(ended: &Ended) -> Result<Cost> {
    let document = Document::read(&ended.printed).map(|document| document.view);
    match document {
        Ok(View::Cost(cost)) if ended.code == 0 => Ok(cost),
        _ => Err(Failure::missing(format!(
            "a comparison in {:?}, and {:?}",
            ended.printed, ended.said
        ))),
    }
}

fn cpu(cost: &Cost) -> Result<&Compared> {
    let mut compared = cost.compared.iter();
    let cpu = compared.find(|one| one.measure == Measure::Cpu);
    cpu.ok_or_else(|| Failure::missing("an effect on CPU time"))
}

/// The smaller of two effects that are told from noise and have one sign. By chance one comparison of thirty tells one, whatever there is, and two in
/// a row that agree are one of two thousand: what is a cost is found by both.
fn confirmed(first: &Compared, second: &Compared) -> f64 {
    match !second.noise && first.effect.signum() == second.effect.signum() {
        true => first.effect.abs().min(second.effect.abs()),
        false => 0.0,
    }
}

/// What is told of a window is what its readings come to.
fn reckoned_again(window: &Window) -> Result<()> {
    let rates = window.readings.iter().map(|one| {
        let seconds = one.to.0.duration_since(one.from.0).as_secs_f64();
        (one.cpu_to - one.cpu_from) as f64 / seconds
    });
    let again: f64 = rates.sum();
    let told = window.account.get(&Measure::Cpu).copied();
    let told = told.unwrap_or_default();
    expect(
        again > 0.0 && (again / told - 1.0).abs() < 1e-6,
        "CPU time that follows from what the kubelet said",
        || format!("{again} and {told}"),
    )
}

/// Begins to compare, and is there once the CkbProbe says so.
async fn begin(scene: &Scene<'_>) -> Result<tokio::process::Child> {
    let child = start(scene, "cost", &["unmet"], WINDOWS)?;
    wait::until("a CkbProbe that is paused by turns", ATTACH, async || {
        let probe = scene.api::<CkbProbe>().get("unmet").await?;
        expect(
            probe.annotations().contains_key(NOTE) && probe.spec.paused,
            "the note, and paused",
            || format!("{:?}", probe.metadata.annotations),
        )
    })
    .await?;
    Ok(child)
}

fn signal(child: &tokio::process::Child, signal: rustix::process::Signal) -> Result<()> {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| Failure::missing("a process to signal"))?;
    let told = rustix::process::kill_process(pid, signal);
    told.map_err(std::io::Error::from)
        .map_err(Failure::system("kill"))
}

async fn as_it_was(scene: &Scene<'_>, name: &str) -> Result<()> {
    let probe = scene.api::<CkbProbe>().get(name).await?;
    expect(
        !probe.spec.paused && !probe.annotations().contains_key(NOTE),
        "a CkbProbe as it was found",
        || format!("{} paused {}", name, probe.spec.paused),
    )
}
