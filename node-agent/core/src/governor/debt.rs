//! When it is looked at what costs something each time that it happens, however few of these times are samples. No clock, no I/O.

use std::time::Duration;

use super::frequency::PART;

/// It is looked until that has cost something, and again when the process has used as much CPU time as pays for it.
///
/// What is looked at is then a part of the process's time, in slices, and not a part of what happens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Debt {
    /// In seconds.
    owed: f64,
}

impl Debt {
    /// Whether all is paid, where looking has cost `spent` while the process used `used` of CPU time, since it was asked the last time.
    /// `ratio` is what probing may cost, per that; None: whatever it costs. `samplers` of them share it.
    pub fn is_paid(
        &mut self,
        spent: Duration,
        used: Duration,
        ratio: Option<f64>,
        samplers: usize,
    ) -> bool {
        let Some(ratio) = ratio else {
            self.owed = 0.0;
            return true;
        };
        let ratio = ratio.max(0.0) * PART / samplers.max(1) as f64;
        self.owed = (self.owed + spent.as_secs_f64() - ratio * used.as_secs_f64()).max(0.0);
        self.owed <= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_slice_is_paid_by_the_time_that_the_process_uses_after_it() {
        let mut debt = Debt::default();
        // Half of a percent of a second is 5 ms.
        assert!(!debt.is_paid(ms(12), ms(1_000), Some(0.01), 1));
        assert!(!debt.is_paid(ms(0), ms(1_000), Some(0.01), 1));
        assert!(debt.is_paid(ms(0), ms(500), Some(0.01), 1));
        assert!(debt.is_paid(ms(5), ms(1_000), Some(0.01), 1));
        assert!(!debt.is_paid(ms(5), ms(1_000), Some(0.01), 2));
        assert!(debt.is_paid(ms(500), ms(0), None, 1));
    }

    #[test]
    fn what_is_not_spent_is_not_saved_up() {
        let mut debt = Debt::default();
        assert!(debt.is_paid(ms(0), ms(100_000), Some(0.01), 1));
        assert!(!debt.is_paid(ms(1), ms(0), Some(0.01), 1));
    }
}
