//! What calls of functions that are probed cost by now, while others have functions probed too, and cease to. No clock, no I/O.

use super::tier::Costs;

/// By slot.
#[derive(Debug, Default)]
pub(super) struct Account {
    /// Recorded calls, and those of other processes, as they were counted last.
    met: Vec<(u64, u64)>,
    /// What all of them cost, in recorded calls while nobody else has any probed.
    worth: Vec<f64>,
}

impl Account {
    /// Takes in what was counted by now, where so many others have had functions probed since the last time. Returns the CPU-seconds that calls
    /// of other processes have cost since then.
    pub(super) fn take(&mut self, met: Vec<(u64, u64)>, others: usize, costs: Costs) -> f64 {
        let (hit, miss) = costs.beside(others);
        self.met.resize(met.len(), (0, 0));
        self.worth.resize(met.len(), 0.0);
        let mut paid = 0.0;
        for ((before, worth), met) in self.met.iter_mut().zip(&mut self.worth).zip(met) {
            let hits = met.0.saturating_sub(before.0) as f64 * hit.as_secs_f64();
            let others = met.1.saturating_sub(before.1) as f64 * miss.as_secs_f64();
            *worth += (hits + others) / costs.hit.as_secs_f64().max(1e-9);
            *before = met;
            paid += others;
        }
        paid
    }

    /// In recorded calls while nobody else has functions probed, by slot.
    pub(super) fn hits(&self) -> Vec<u64> {
        self.worth
            .iter()
            .map(|worth| worth.round() as u64)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const COSTS: Costs = Costs {
        hit: Duration::from_nanos(400),
        miss: Duration::from_nanos(100),
        beside: Duration::from_nanos(20),
        trap_ns: 0,
    };

    #[test]
    fn a_call_costs_more_for_each_of_the_others_who_have_functions_probed() {
        let mut account = Account::default();
        // Four calls of others cost as much as one that is recorded.
        let paid = account.take(vec![(1_000, 4_000), (0, 0)], 0, COSTS);
        assert!((paid - 0.0004).abs() < 1e-12, "{paid}");
        assert_eq!(account.hits(), [2_000, 0]);
        // 200 ns more, each, while there are ten others.
        let paid = account.take(vec![(2_000, 8_000), (1_000, 0)], 10, COSTS);
        assert!((paid - 0.0012).abs() < 1e-12, "{paid}");
        assert_eq!(account.hits(), [2_000 + 1_500 + 3_000, 1_500]);
        // What was counted was counted once.
        let paid = account.take(vec![(2_000, 8_000), (1_000, 0)], 10, COSTS);
        assert_eq!((paid, account.hits()), (0.0, vec![6_500, 1_500]));
    }
}
