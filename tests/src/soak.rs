//! Everything that goes wrong on a cluster, again and again, while targets are measured: what was counted stays true, nobody
//! dies of it, and nothing is left behind. docs/scale.md explains the method.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use tokio::time::sleep;

use crate::{
    bench::{report::Report, statistics::summary},
    cluster::Cluster,
    failure::Result,
    report::Bound,
    wait,
};

mod clock;
mod faults;
mod hostile;
mod html;
mod levels;
pub(crate) mod stage;

pub use faults::ALL;
use faults::Fault;
use levels::{FIGURES, Level, Levels};
use stage::{FIVE_SECONDS, Stage};

/// How long, by which dice, and where to write to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// For how long things go wrong, at the least: each of them does so once, however long that takes.
    pub duration: Duration,
    /// The seed of the schedule.
    pub seed: u64,
    /// Only these faults.
    pub only: Vec<String>,
    /// Without those of [`SHOWN_END_TO_END`].
    pub after_e2e: bool,
    /// Where to write to.
    pub folder: PathBuf,
}

/// Without any fault, before the first and after the last: levels are compared over the second half of this time.
const CALM: Duration = Duration::from_secs(14);

/// Faults that have agent or operator take more memory than they otherwise do. They are the first to strike, before levels are looked at.
const WARM_UP: [&str; 3] = ["pods-churned", "ring-overrun", "hostile-tenant"];

/// Faults after which the end-to-end tests look for the same as this does, each with the scenario in which they do: where both are run
/// one after the other, once is enough.
pub const SHOWN_END_TO_END: [(&str, &str); 3] = [
    ("api-server-killed", "outage"),
    ("packets-dropped", "dropped"),
    ("container-restarted", "restart"),
];

/// Until what was measured before is measured again.
const RECOVERED: Duration = Duration::from_secs(150);

/// All of it. What was found is in the report even where it breaks off.
pub async fn run(settings: &Settings, report: &mut Report) -> Result<()> {
    println!(
        "          the schedule's seed is {}: SEED={0} plays it again",
        settings.seed
    );
    let cluster = Cluster::connect().await?;
    cluster.claim().await?;
    let mut stage = Stage::set(cluster.clone(), FIVE_SECONDS).await?;
    let levels = Levels::watch(cluster.clone(), report.elapsed());
    let played = play(settings, &mut stage, &levels, report).await;
    let drawn = html::write(settings, report, &levels);
    if played.is_err() {
        stage.tell().await;
    }
    // Whatever happened: nothing of ours stays.
    let cleared = stage.clear().await;
    played?;
    cleared?;
    after(&cluster, report).await;
    drawn
}

async fn play(
    settings: &Settings,
    stage: &mut Stage,
    levels: &Levels,
    report: &mut Report,
) -> Result<()> {
    // Memory is taken at the first time, and kept: of what takes the most of it, this is the first time.
    stage.round(report, "before").await?;
    let mut dice = fastrand::Rng::with_seed(settings.seed);
    for fault in ALL.iter().filter(|fault| is_first(fault)) {
        levels.mark(fault.name);
        strike(fault, stage, levels, report, &mut dice).await?;
    }
    sleep(CALM).await;
    let before = levels.last(CALM / 2);
    let mut dice = fastrand::Rng::with_seed(settings.seed);
    let start = Instant::now();
    let mut times = 0;
    while times == 0 || start.elapsed() < settings.duration {
        let mut deck: Vec<&Fault> = ALL.iter().filter(|fault| settings.plays(fault)).collect();
        // The first time these have struck already.
        deck.retain(|fault| times > 0 || !is_first(fault));
        dice.shuffle(&mut deck);
        for fault in deck {
            if times > 0 && start.elapsed() >= settings.duration {
                break;
            }
            levels.mark(fault.name);
            strike(fault, stage, levels, report, &mut dice).await?;
            sleep(Duration::from_millis(dice.u64(0..3000))).await;
        }
        times += 1;
    }
    levels.mark("calm");
    stage.round(report, "after").await?;
    sleep(CALM).await;
    let after = levels.last(CALM / 2);
    back(&before, &after, report);
    let looks = levels.looks();
    if looks.of == 0 {
        report.failure("figures that went backwards", NOT_SEEN);
    }
    let none = Some(Bound::Exactly(0.0));
    let name = format!("figures that went backwards, in {} looks", looks.of);
    report.value(name, looks.backwards, "", none);
    report.value("targets that died", stage.dead(), "", none);
    report.value("faults that struck", stage.struck, "", None);
    Ok(())
}

/// Whether it strikes before levels are looked at.
fn is_first(fault: &Fault) -> bool {
    WARM_UP.contains(&fault.name)
}

/// One fault, while calls are made whose number is known.
async fn strike(
    fault: &Fault,
    stage: &mut Stage,
    levels: &Levels,
    report: &mut Report,
    dice: &mut fastrand::Rng,
) -> Result<()> {
    println!(
        "{:7.1} s  {}: {}",
        report.elapsed().as_secs_f64(),
        fault.name,
        fault.about
    );
    let round = match fault.ends_targets {
        true => None,
        false => Some(stage.begin().await?),
    };
    match (fault.strike)(stage, dice).await {
        Ok(()) => stage.struck += 1,
        // The others go on all the same.
        Err(error) => report.failure(format!("{}: to strike", fault.name), error.to_string()),
    }
    let (struck, since) = (Instant::now(), Timestamp::now());
    let what = format!("recovery from {}", fault.name);
    wait::until(&what, RECOVERED, async || stage.current(since).await).await?;
    let bound = Some(Bound::AtMost(RECOVERED.as_secs_f64()));
    let name = format!("{}: until the status is of now again", fault.name);
    report.value(name, struck.elapsed(), "s", bound);
    levels.mark("recovered");
    let round = match round {
        Some(round) => round,
        None => stage.begin().await?,
    };
    stage.end(round, fault.name, report).await
}

/// What nobody looked at is not well.
const NOT_SEEN: &str = "it was not seen";

/// Whether every level is where it was.
fn back(before: &[Level], after: &[Level], report: &mut Report) {
    for (name, of, within, unit) in FIGURES {
        let median = |levels: &[Level]| summary(levels.iter().map(of));
        // While something is measured there is some of each.
        let was = median(before).filter(|was| was.median > 0.0);
        let (Some(was), Some(is)) = (was, median(after)) else {
            report.failure(name, NOT_SEEN);
            continue;
        };
        let name = format!(
            "{name}, at the end over the beginning (then {})",
            was.median
        );
        let bound = Some(Bound::AtMost(within));
        report.value(name, is.median - was.median, unit, bound);
    }
}

/// When the last CkbProbe is gone, so is the agent and all that it held.
async fn after(cluster: &Cluster, report: &mut Report) {
    let gone = wait::until("the agent to go", RECOVERED, async || {
        cluster.expect_no_agent().await
    })
    .await;
    let none = Some(Bound::Exactly(0.0));
    report.value("agents and orders left in the end", gone.is_err(), "", none);
}

impl Settings {
    fn plays(&self, fault: &Fault) -> bool {
        let shown = SHOWN_END_TO_END.iter().any(|(name, _)| *name == fault.name);
        match &self.only[..] {
            [] => !(self.after_e2e && shown),
            only => only.iter().any(|name| name == fault.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(only: &[&str], after_e2e: bool) -> Vec<&'static str> {
        let settings = Settings {
            duration: Duration::ZERO,
            seed: 0,
            only: only.iter().map(|name| name.to_string()).collect(),
            after_e2e,
            folder: PathBuf::new(),
        };
        let faults = ALL.iter().filter(|fault| settings.plays(fault));
        faults.map(|fault| fault.name).collect()
    }

    #[test]
    fn what_the_end_to_end_tests_show_is_left_out_after_them_alone() {
        let scenarios: Vec<_> = crate::scenarios::ALL.iter().map(|one| one.name).collect();
        for (fault, scenario) in SHOWN_END_TO_END {
            assert!(played(&[], false).contains(&fault), "{fault}");
            assert!(!played(&[], true).contains(&fault), "{fault}");
            assert!(scenarios.contains(&scenario), "{scenario}");
            assert_eq!(played(&[fault], true), [fault]);
        }
        assert_eq!(played(&[], true).len(), ALL.len() - SHOWN_END_TO_END.len());
    }
}
