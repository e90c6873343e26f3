//! `profile`: where the time and the memory go, by stack.

mod arguments;

pub use arguments::Arguments;
use ckb_probe_crds::{
    Figures, ProfileMode,
    descriptor::Measure,
    kinds::profile::{ALLOCATED, COMPLETE, FREED, MEMORY, ProfileProbe, SAMPLES, THREADS, TIME},
};

use super::Instrument;
use crate::mechanism::CollectorConfig;
use crate::mechanism::profile::{self, Weighed};

/// All threads are gone through no more often: what is waited for is waited for longer.
const MOST_PASSES: u32 = 19;

impl Instrument for ProfileProbe {
    fn config(&self) -> CollectorConfig {
        asked(self).into()
    }
}

/// Who lists the same modes in another order asks the same.
fn asked(probe: &ProfileProbe) -> profile::ProfileConfig {
    let mut modes = probe.modes.clone();
    modes.sort_unstable();
    profile::ProfileConfig {
        modes,
        frequency: probe.frequency,
        passes: probe.frequency.min(MOST_PASSES),
        window: probe.window.get(),
        every: probe.every.map(ckb_probe_crds::Duration::get),
        occasional: probe.capture_on_anomaly,
        figures,
    }
}

/// What was seen, as sums since it began; and as levels, how the last window was.
fn figures(seen: &Weighed) -> Figures {
    let Weighed {
        mode,
        weight,
        freed,
        samples,
        complete,
    } = *seen;
    let weighed: Measure = match mode {
        ProfileMode::Memory => MEMORY,
        ProfileMode::Allocations => ALLOCATED,
        ProfileMode::Threads => THREADS,
        ProfileMode::Cpu | ProfileMode::OffCpu | ProfileMode::SlowCalls => TIME,
    };
    let mut figures = Figures::default();
    for (measure, count) in [
        (&weighed, weight),
        (&SAMPLES, samples),
        (&COMPLETE, complete),
    ]
    .into_iter()
    .chain((mode == ProfileMode::Allocations).then_some((&FREED, freed)))
    {
        figures.levels.insert(measure.key(), count);
        // How many threads there are does not add up over windows.
        if measure.name != THREADS.name {
            figures.sums.insert(measure.key(), count);
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_modes_does_not_matter_and_threads_are_gone_through_less_often() {
        let probe = |modes: &[ProfileMode], frequency| ProfileProbe {
            modes: modes.to_vec(),
            frequency,
            ..ProfileProbe::default()
        };
        let (cpu, memory) = (ProfileMode::Cpu, ProfileMode::Memory);
        let one = asked(&probe(&[memory, cpu], 99));
        assert_eq!(one, asked(&probe(&[cpu, memory], 99)));
        assert_eq!((one.frequency, one.passes), (99, 19));
        let rare = asked(&probe(&[cpu], 7));
        assert_eq!((rare.frequency, rare.passes), (7, 7));
    }

    #[test]
    fn time_adds_up_over_windows_and_threads_do_not() {
        let seen = |mode| {
            figures(&Weighed {
                mode,
                weight: 30,
                freed: 20,
                samples: 3,
                complete: 2,
            })
        };
        let (cpu, threads) = (seen(ProfileMode::Cpu), seen(ProfileMode::Threads));
        let allocations = seen(ProfileMode::Allocations);
        let told = |figures: &Figures, name: &str| {
            (
                figures.sums.get(name).copied(),
                figures.levels.get(name).copied(),
            )
        };
        assert_eq!(told(&cpu, "time"), (Some(30), Some(30)));
        assert_eq!(told(&cpu, "freed"), (None, None));
        assert_eq!(told(&allocations, "allocated"), (Some(30), Some(30)));
        assert_eq!(told(&allocations, "freed"), (Some(20), Some(20)));
        assert_eq!(told(&cpu, "complete"), (Some(2), Some(2)));
        assert_eq!(told(&threads, "threads"), (None, Some(30)));
        assert_eq!(told(&threads, "time"), (None, None));
    }
}
