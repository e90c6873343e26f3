//! What one probed call costs on this node: measured at start on a function of the agent's own.

mod dummies;

use std::{
    hint::black_box,
    io,
    sync::Mutex,
    time::{Duration, Instant},
};

use ckb_probe_figures::Histogram;
use dummies::{AT_WORK, CACHE_LINE, COUNTED, Dummy, INNER, STEPPED, TWICE};
pub(super) use dummies::{USUAL, plan};

use super::{
    AttachError, Probes, Slots, Tier,
    confined::{self, ConfinedReturn},
};

/// The cost of a probed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Nanoseconds that entry and return add to a call of a program that works on data of its own between two calls: the
    /// median of five rounds.
    pub cost_per_call_ns: u64,
    /// The same where the kernel must single-step the function's first instruction.
    pub single_step_cost_ns: u64,
    /// What a call costs, measured in the same way, that is counted at its entry and not timed.
    pub counted_cost_ns: u64,
    /// What a further pair of programs adds to a call that is probed already: less, since the kernel traps once for all.
    pub further_cost_ns: u64,
    /// What of the cost of a call falls between the two clock readings, and so would be taken for the call's own time: the
    /// median duration that the programs see of a function that does nothing.
    pub trap_ns: u64,
    /// Nanoseconds that entry and return add to a call in which the call is made: where there are many, all that a probe needs is in
    /// the nearest cache. Of the fastest of forty rounds, so that no call is told to have been shorter than it was.
    pub inner_ns: u64,
    /// Calls made while attached.
    pub calls: u64,
    /// Calls that the kernel counted: the attach works when the two are equal.
    pub counted: u64,
}

/// No calibration, hence no measuring: what cannot be attached to the agent cannot be attached to a target.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// The function's place is unknown.
    #[error("cannot find a function of this program's own: {0}")]
    Own(#[from] io::Error),
    /// The kernel refused.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The counts cannot be read.
    #[error(transparent)]
    Read(#[from] super::ReadError),
    /// The kernel took the probes and counted something else than what happened.
    #[error("the kernel counted {counted} of {calls} calibration calls")]
    Miscounted {
        /// Calls made.
        calls: u64,
        /// Calls counted.
        counted: u64,
    },
}

/// How this node is measured: the tier, and what a call costs by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalibratedTier {
    /// The tier.
    pub tier: Tier,
    /// What a probed call costs by it.
    pub calibration: Calibration,
    /// Whether a probe at a function's return kills a process that is confined by seccomp, on this kernel.
    pub returns_kill_confined: bool,
}

/// What became of a tier.
#[derive(Debug)]
pub enum Attempt {
    /// It counts every call.
    Works {
        /// What a call costs.
        calibration: Calibration,
        /// What it does to confined processes.
        confined_return: ConfinedReturn,
    },
    /// It does not work here.
    Refused(CalibrationError),
    /// It was not tried: a better one works, or another one was asked for.
    NotTried,
}

/// Tries one tier after the other, or only the one that is asked for, until one works.
///
/// `confined` says whether this program is itself restricted by seccomp.
pub fn try_tiers(forced: Option<Tier>, confined: bool) -> Vec<(Tier, Attempt)> {
    let mut works = false;
    let attempts = Tier::ALL.iter().map(|&tier| {
        if works || forced.is_some_and(|forced| forced != tier) {
            return (tier, Attempt::NotTried);
        }
        let attempt = try_tier(tier, confined).unwrap_or_else(Attempt::Refused);
        works = matches!(attempt, Attempt::Works { .. });
        (tier, attempt)
    });
    attempts.collect()
}

/// The child goes first: where this program is confined itself, it would die in its place.
fn try_tier(tier: Tier, confined: bool) -> Result<Attempt, CalibrationError> {
    let confined_return = confined::try_returns(tier)?;
    let entry_only = confined && confined_return.may_kill();
    Ok(Attempt::Works {
        calibration: measure(tier, entry_only)?.calibration(),
        confined_return,
    })
}

/// Attaches to functions of this process, calls them, and compares the time with that of unprobed calls.
pub fn calibrate(tier: Tier) -> Result<Calibration, CalibrationError> {
    Ok(measure(tier, false)?.calibration())
}

/// The functions while they were probed.
struct Measured {
    usual: Figures,
    inner: Figures,
    at_work: Figures,
    twice: Figures,
    stepped: Figures,
    only_counted: Figures,
    entry_only: bool,
}

/// A function while it was probed.
struct Figures {
    /// What probing adds to a call, in nanoseconds.
    cost_ns: u64,
    /// The same while nothing else was in its way.
    least_ns: u64,
    /// What the programs see of its calls.
    durations: Histogram,
    untimed: u64,
}

impl Figures {
    fn counted(&self) -> u64 {
        self.durations.count() + self.untimed
    }
}

impl Measured {
    /// Where no return was touched, one is put at as much as an entry, which is more than the truth, and nothing is known
    /// of what the traps add to a duration.
    fn calibration(&self) -> Calibration {
        let probes = if self.entry_only { 2 } else { 1 };
        let cost_per_call_ns = probes * self.at_work.cost_ns;
        let further_ns = self.twice.cost_ns.saturating_sub(self.at_work.cost_ns);
        // What is measured scatters, and no pair of programs is for nothing.
        let further_ns = further_ns.clamp(self.at_work.cost_ns / 4, self.at_work.cost_ns);
        let step_ns = self.stepped.cost_ns.saturating_sub(self.usual.cost_ns);
        Calibration {
            cost_per_call_ns,
            single_step_cost_ns: cost_per_call_ns + step_ns,
            counted_cost_ns: self.only_counted.cost_ns,
            further_cost_ns: probes * further_ns,
            inner_ns: probes * self.inner.least_ns,
            trap_ns: self.usual.durations.quantile(0.5).unwrap_or_default(),
            calls: USUAL.all_calls(),
            counted: self.usual.counted(),
        }
    }
}

/// Two at a time would count each other's calls.
static ALONE: Mutex<()> = Mutex::new(());

/// Probes all the functions at once, since the kernel takes its time to attach and to detach.
fn measure(tier: Tier, entry_only: bool) -> Result<Measured, CalibrationError> {
    let _alone = ALONE.lock();
    const DUMMIES: [Dummy; 6] = [USUAL, INNER, AT_WORK, COUNTED, STEPPED, TWICE];
    const SLOTS: [Dummy; 7] = [USUAL, INNER, AT_WORK, COUNTED, STEPPED, TWICE, TWICE];
    let unprobed = DUMMIES.map(nanos_per_call);
    let mut plan = plan(&SLOTS, std::process::id(), entry_only)?;
    plan.sites[3].entry_only = true;
    let mut probes = Probes::load(tier, &plan)?;
    probes.attach(&Slots::from_iter(0..SLOTS.len() as u8))?;
    let probed = DUMMIES.map(nanos_per_call);
    let reading = probes.read()?;
    let figures = [0, 1, 2, 3, 4, 5, 6].map(|slot: usize| {
        let run = slot.min(DUMMIES.len() - 1);
        let seen = reading.slots.get(slot).cloned().unwrap_or_default();
        Figures {
            cost_ns: probed[run].median.saturating_sub(unprobed[run].median),
            least_ns: probed[run].least.saturating_sub(unprobed[run].least),
            durations: seen.histogram,
            untimed: seen.untimed,
        }
    });
    for (dummy, figures) in SLOTS.iter().zip(&figures) {
        let (calls, counted) = (dummy.all_calls(), figures.counted());
        if counted != calls {
            return Err(CalibrationError::Miscounted { calls, counted });
        }
    }
    let [usual, inner, at_work, only_counted, stepped, twice, _] = figures;
    Ok(Measured {
        usual,
        inner,
        at_work,
        twice,
        stepped,
        only_counted,
        entry_only,
    })
}

/// Nanoseconds of a call in several rounds.
#[derive(Clone, Copy, Default)]
struct Rounds {
    least: u64,
    median: u64,
}

/// In several rounds. In a thread of its own: the uprobe_multi of kernels before 6.10 takes the
/// filter by process for one by thread, and sees nothing of the others; here that shows as a miscount.
fn nanos_per_call(dummy: Dummy) -> Rounds {
    let rounds = std::thread::Builder::new().spawn(move || {
        let mut rounds: Vec<u64> = (0..dummy.rounds).map(|_| one_round(dummy)).collect();
        rounds.sort_unstable();
        let at = |round: usize| rounds.get(round).copied().unwrap_or_default();
        Rounds {
            least: at(0),
            median: at(rounds.len() / 2),
        }
    });
    // Nothing in it panics; without a thread nothing is counted, which is no tier. A zero would show in the figures.
    let rounds = rounds.ok().and_then(|rounds| rounds.join().ok());
    rounds.unwrap_or_default()
}

fn one_round(dummy: Dummy) -> u64 {
    if dummy.works_on > 0 {
        return one_round_at_work(dummy);
    }
    let start = thread_time();
    dummy.call(dummy.calls);
    (thread_time().saturating_sub(start).as_nanos() / u128::from(dummy.calls)) as u64
}

/// The work is not timed, and takes longer than the call: hence the clock on the wall, and the median.
fn one_round_at_work(dummy: Dummy) -> u64 {
    let data = vec![1_u8; dummy.works_on];
    let mut calls: Vec<Duration> = (0..dummy.calls)
        .map(|_| {
            for line in data.chunks(CACHE_LINE) {
                black_box(line.first().copied());
            }
            let start = Instant::now();
            dummy.call(1);
            start.elapsed()
        })
        .collect();
    calls.sort_unstable();
    calls
        .get(calls.len() / 2)
        .map_or(0, |median| median.as_nanos() as u64)
}

/// CPU time that this thread has had: on a busy node, time that others had does not count.
fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The pairs of kernels without sessions once took two operations' ends of one call for those of one: none of these kernels
    /// could be measured then.
    #[test]
    fn every_tier_that_the_kernel_has_counts_every_call_of_each_of_two_operations_at_one_place() {
        let mut tiers = 0;
        for &tier in Tier::ALL {
            match calibrate(tier) {
                Ok(_) => tiers += 1,
                Err(CalibrationError::Attach(_)) => {}
                Err(error) => panic!("{tier:?}: {error}"),
            }
        }
        assert!(tiers > 0, "as root, on Linux 5.15 or later");
    }

    #[test]
    fn of_one_process_calls_at_one_site_are_timed_and_at_another_only_counted() {
        let works = |tier: &Tier| calibrate(*tier).is_ok();
        let tiers: Vec<Tier> = Tier::ALL.iter().copied().filter(works).collect();
        assert!(!tiers.is_empty(), "as root, on Linux 5.15 or later");
        let _alone = ALONE.lock();
        for tier in tiers {
            let mut plan = plan(&[USUAL, STEPPED], std::process::id(), false).unwrap();
            plan.sites[1].entry_only = true;
            let mut probes =
                Probes::load(tier, &plan).unwrap_or_else(|error| panic!("{tier:?}: {error}"));
            drop(probes.attach(&Slots::from([0, 1])).unwrap());
            USUAL.call(100);
            STEPPED.call(70);
            let reading = probes.read().unwrap();
            let counted = reading.slots.iter();
            let counted = counted.map(|slot| (slot.histogram.count(), slot.untimed));
            assert_eq!(counted.collect::<Vec<_>>(), [(100, 0), (0, 70)], "{tier:?}");
        }
    }

    #[test]
    fn an_agent_whose_returns_must_not_be_touched_measures_entries_alone() {
        let root = "as root, on Linux 5.15 or later";
        let works = |tier: &Tier| calibrate(*tier).is_ok();
        let tier = Tier::ALL.iter().copied().find(works).expect(root);
        let Measured { usual, .. } = measure(tier, true).expect(root);
        assert_eq!(usual.untimed, USUAL.all_calls());
        assert_eq!(usual.durations.count(), 0, "nothing is timed");
    }

    #[test]
    fn a_return_that_was_not_touched_is_put_at_as_much_as_an_entry() {
        let figures = |cost_ns| Figures {
            cost_ns,
            least_ns: cost_ns,
            durations: Histogram::default(),
            untimed: 0,
        };
        let calibration = |entry_only| {
            let measured = Measured {
                usual: figures(500),
                inner: figures(550),
                at_work: figures(700),
                twice: figures(1_000),
                stepped: figures(9_500),
                only_counted: figures(600),
                entry_only,
            };
            let calibration = measured.calibration();
            (
                calibration.cost_per_call_ns,
                calibration.single_step_cost_ns,
                calibration.further_cost_ns,
            )
        };
        assert_eq!(calibration(false), (700, 9_700, 300));
        assert_eq!(calibration(true), (1_400, 10_400, 600));
    }
}
