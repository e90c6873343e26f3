//! What a user sees of the budget who looks at a status for a minute, and what is asked of it on a machine that has other things to
//! do, too: what another program does passes, and what is wrong with the governor stays. So where a minute is off two more are
//! looked at, and the median counts.

use std::time::{Duration, Instant};

use ckb_probe_crds::{CkbProbeStatus, condition};

use crate::{
    failure::{Failure, Result},
    report::Bound,
    scene::{ATTACH, Scene},
};

/// Until what the first moments cost, in which everything is attached, is paid for, with reports every ten seconds.
pub const SETTLED: Duration = Duration::from_secs(120);

/// For how long the status is looked at.
const MINUTE: Duration = Duration::from_secs(60);

/// How many of these there are at most.
const MINUTES: usize = 3;

/// By how much the estimate of a minute may lie above the ceiling.
const TOLERANCE: f64 = 1.1;

/// What was seen in a minute.
#[derive(Debug, Default)]
pub struct Watched {
    looks: u64,
    /// Looks at which WithinBudget was not True.
    beyond: u64,
    /// The highest estimate of the last interval, or of the last minute where that is lower, as a part of what was granted then: maxPercent,
    /// and what the floor was of the target's CPU time.
    pub highest: f64,
}

impl Watched {
    /// Looks every second; `each` looks, too.
    pub async fn minute(
        scene: &Scene<'_>,
        ceiling: f64,
        mut each: impl FnMut(&CkbProbeStatus) -> Result<()>,
    ) -> Result<Self> {
        let mut seen = Self::default();
        let start = Instant::now();
        while start.elapsed() < MINUTE {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let status = scene.status("a status", ATTACH, |_| Ok(())).await?;
            seen.looks += 1;
            seen.beyond += u64::from(!is_within(&status));
            if let Some(estimate) = percent(&status.overhead.estimated_percent)? {
                let floor = percent(&status.overhead.floor_percent)?.unwrap_or_default();
                let interval = estimate / (ceiling + floor);
                let minute = percent(&status.overhead.budget_used_percent)?;
                let minute = minute.map_or(f64::INFINITY, |used| used / 100.0);
                seen.highest = seen.highest.max(interval.min(minute));
            }
            each(&status)?;
        }
        Ok(seen)
    }

    /// Whether it is as it is on a machine that has nothing else to do.
    pub fn is_calm(&self) -> bool {
        self.beyond == 0 && self.highest <= TOLERANCE
    }
}

fn percent(told: &Option<String>) -> Result<Option<f64>> {
    let percent = told.as_ref().map(|told| told.parse()).transpose();
    percent.map_err(Failure::format("a percentage of status.overhead"))
}

/// Whether the status says so.
pub fn is_within(status: &CkbProbeStatus) -> bool {
    let mut conditions = status.conditions.iter();
    conditions.any(|one| one.type_ == condition::WITHIN_BUDGET && one.status == "True")
}

/// One minute; or three of them, where the first is not calm.
pub async fn minutes<T>(
    mut minute: impl AsyncFnMut() -> Result<T>,
    is_calm: impl Fn(&T) -> bool,
) -> Result<Vec<T>> {
    let mut minutes = vec![minute().await?];
    if !is_calm(&minutes[0]) {
        crate::note!("something disturbed this minute, or nothing did: two more will tell");
        while minutes.len() < MINUTES {
            minutes.push(minute().await?);
        }
    }
    Ok(minutes)
}

/// The median of something of them.
///
/// # Panics
/// When there are none.
pub fn median<T>(minutes: &[T], value: impl Fn(&T) -> f64) -> f64 {
    let mut values: Vec<f64> = minutes.iter().map(value).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Adds to the report how the budget was kept.
pub fn judge<T>(scene: &Scene<'_>, minutes: &[T], watched: impl Fn(&T) -> &Watched) {
    let looks = minutes.first().map_or(0, |minute| watched(minute).looks);
    scene.equal_of(
        "looks at which WithinBudget was not True",
        median(minutes, |minute| watched(minute).beyond as f64),
        &format!("of {looks}"),
        0,
    );
    scene.figure(
        "highest estimate of a minute in the status, as a part of maxPercent and the floor",
        median(minutes, |minute| watched(minute).highest),
        "of what is granted",
        Bound::AtMost(TOLERANCE),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many minutes there were, and their median.
    fn played(values: &[f64]) -> (usize, f64) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let next = std::cell::Cell::new(0);
        let minute = async || Ok(values[next.replace(next.get() + 1)]);
        let minutes = runtime
            .block_on(minutes(minute, |value| *value <= 1.0))
            .unwrap();
        (minutes.len(), median(&minutes, |value| *value))
    }

    #[test]
    fn a_calm_minute_is_enough_and_what_is_off_twice_is_off() {
        assert_eq!(played(&[0.5]), (1, 0.5));
        assert_eq!(played(&[9.0, 0.7, 0.6]), (3, 0.7));
        assert_eq!(played(&[9.0, 0.7, 8.0]), (3, 8.0));
    }
}
