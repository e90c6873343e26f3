//! Slices of those samplers that cost something for all that happens, and not for their samples only.

use std::time::Duration;

use crate::{
    governor::Debt,
    mechanism::stacks::{StackSampler, StacksError},
    observe::{ProcessId, cpu_time},
};

/// How long a slice lasts at the least, in CPU time of the process, and by how much more: it keeps no step with anything that the process
/// does by turns.
const SHORTEST: u64 = 10;
const RANDOM: u64 = 20;

/// No slice costs more, but for what one step of the sampler takes: some hundreds of stacks.
const MOST: Duration = Duration::from_millis(5);

/// When it is looked. What is owed at the end of a window is paid in the next.
#[derive(Default)]
pub(super) struct Slices {
    debt: Debt,
    spent: Duration,
    used: Duration,
    lasts: Duration,
    /// What had been spent as it began.
    began: Duration,
}

impl Slices {
    /// A window begins, with a sampler that looks and has cost nothing yet.
    pub(super) fn begin(&mut self, process: ProcessId) {
        self.spent = Duration::ZERO;
        self.used = cpu_time(process).unwrap_or_default();
        self.lasts = drawn();
        self.began = Duration::ZERO;
    }

    /// Begins a slice, or ends one, if it is time.
    pub(super) fn look(
        &mut self,
        sampler: &mut StackSampler,
        process: ProcessId,
        ratio: Option<f64>,
        samplers: usize,
    ) -> Result<(), StacksError> {
        let (_, spent) = sampler.spent()?;
        let used = cpu_time(process).unwrap_or(self.used);
        let is_paid = self.debt.is_paid(
            spent.saturating_sub(self.spent),
            used.saturating_sub(self.used),
            ratio,
            samplers,
        );
        (self.spent, self.used) = (spent, used);
        if sampler.is_paused() {
            if is_paid {
                sampler.resume()?;
                self.lasts = drawn();
                self.began = spent;
            }
        } else if !is_paid
            && (sampler.since_turned() >= self.lasts || spent.saturating_sub(self.began) >= MOST)
        {
            sampler.pause()?;
        }
        Ok(())
    }
}

fn drawn() -> Duration {
    Duration::from_millis(SHORTEST + fastrand::u64(..RANDOM))
}
