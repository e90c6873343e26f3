//! The meter: what probing costs a target, and what it uses itself. No clock, no I/O.

use std::time::Duration;

use crate::{
    governor::{Estimator, Load, Sight, Spent},
    mechanism::{LoadId, Loads},
    observe::CpuTime,
};

/// What was read last, and what has happened since.
pub struct Meter {
    estimator: Estimator,
    hits: Vec<u64>,
    cpu: CpuTime,
    looked: Duration,
    /// Since the last look, by load: how long it was open in slices.
    open: Vec<Duration>,
    /// The same: as what time of being attached it costs that probes came and went.
    edges: Vec<Duration>,
    /// What it has cost besides what hits cost, in all, and up to the last look.
    fixed: (Duration, Duration),
    total: Total,
}

/// What probing has cost a target since its measurement began, and what the target used itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// CPU-seconds.
    pub cost: f64,
    /// CPU-seconds.
    pub own: f64,
}

impl Total {
    /// What it has cost since then, as a part of the CPU time that the target used itself; None where it used none.
    pub fn ratio_since(self, earlier: Self) -> Option<f64> {
        let (cost, own) = (self.cost - earlier.cost, self.own - earlier.own);
        (own > 0.0).then(|| cost / own)
    }
}

impl Meter {
    /// for loads with these costs of a hit, of a target that has used the time `cpu` by now.
    pub fn new(costs: &[Duration], cpu: CpuTime, now: Duration) -> Self {
        Self {
            estimator: Estimator::new(costs),
            hits: vec![0; costs.len()],
            cpu,
            looked: now,
            open: vec![Duration::ZERO; costs.len()],
            edges: vec![Duration::ZERO; costs.len()],
            fixed: (Duration::ZERO, Duration::ZERO),
            total: Total::default(),
        }
    }

    /// These loads were open in a slice for so long, since this was said last.
    pub fn add_open(&mut self, loads: &Loads, open: Duration) {
        for load in loads {
            self.open[load.index()] += open;
        }
    }

    /// Probes on these loads came or went, which cost as much as having been attached for so long.
    pub fn add_edge(&mut self, loads: &Loads, edge: Duration) {
        for load in loads {
            self.edges[load.index()] += edge;
        }
    }

    /// By now it has cost so much besides what hits cost.
    pub fn set_fixed(&mut self, fixed: Duration) {
        self.fixed.0 = fixed;
    }

    /// Takes in what was counted by now, while `always` was attached all the time.
    pub fn look(&mut self, always: &Loads, hits: Vec<u64>, cpu: CpuTime, now: Duration) -> Spent {
        let elapsed = now.saturating_sub(self.looked);
        let slices = self.open.iter_mut().zip(&mut self.edges);
        let sights: Vec<Sight> = hits
            .iter()
            .zip(&self.hits)
            .zip(slices)
            .enumerate()
            .map(|(index, ((hits, before), (open, edge)))| {
                let in_slices = std::mem::take(open);
                let open = if always.contains(&LoadId::default().offset(index)) {
                    elapsed
                } else {
                    in_slices
                };
                Sight {
                    hits: hits.saturating_sub(*before),
                    open,
                    attached: open + std::mem::take(edge),
                }
            })
            .collect();
        let used = cpu.saturating_sub(self.cpu);
        let mut spent = self.estimator.observe(elapsed, used, &sights);
        let (fixed, before) = self.fixed;
        // Not the target's own time: what others do at its request.
        spent.cost += fixed.saturating_sub(before).as_secs_f64();
        self.fixed = (fixed, fixed);
        self.total.cost += spent.cost;
        self.total.own += spent.own;
        self.hits = hits;
        self.cpu = cpu;
        self.looked = now;
        spent
    }

    /// When it looked last.
    pub fn looked(&self) -> Duration {
        self.looked
    }

    /// What the target had used by then.
    pub fn cpu(&self) -> CpuTime {
        self.cpu
    }

    /// How busy the loads are.
    pub fn loads(&self) -> Vec<Load> {
        self.estimator.loads()
    }

    /// CPU-seconds per second that the target uses, probing not included.
    pub fn usage(&self) -> f64 {
        self.estimator.cpu()
    }

    /// What probing has cost, up to the last look.
    pub fn total(&self) -> Total {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// A hit costs 1 µs; the target has a CPU to itself.
    fn meter() -> Meter {
        Meter::new(&[Duration::from_micros(1); 2], ms(500), ms(10_000))
    }

    fn look(meter: &mut Meter, hits: u64, at: u64) -> Spent {
        let (cpu, now) = (ms(at - 9_500), ms(at));
        meter.look(&Loads::from([LoadId(0)]), vec![0, hits], cpu, now)
    }

    #[test]
    fn hits_cost_what_was_counted() {
        let mut meter = meter();
        meter.add_open(&Loads::from([LoadId(1)]), ms(100));
        let spent = look(&mut meter, 2_000, 11_000);
        assert!((spent.cost - 0.002).abs() < 1e-12, "{spent:?}");
        assert!((spent.own - 0.998).abs() < 1e-12, "{spent:?}");
        // 2,000 in 100 ms; and once it was said, it was said.
        assert_eq!(meter.loads()[1].hits_per_second, Some(20_000.0));
        let spent = look(&mut meter, 2_000, 12_000);
        assert!(spent.cost.abs() < 1e-12, "{spent:?}");
        let ratio = meter.total().ratio_since(Total::default());
        assert!(ratio.is_some_and(|ratio| (ratio - 0.002 / 1.998).abs() < 1e-9));
        assert_eq!(meter.total().ratio_since(meter.total()), None);
    }

    #[test]
    fn what_is_always_there_costs_besides_and_is_not_the_targets_own_time() {
        let mut meter = meter();
        meter.set_fixed(ms(3));
        let spent = look(&mut meter, 0, 11_000);
        assert!((spent.cost - 0.003).abs() < 1e-12, "{spent:?}");
        assert!((spent.own - 1.0).abs() < 1e-12, "{spent:?}");
        meter.set_fixed(ms(4));
        let spent = look(&mut meter, 0, 12_000);
        assert!((spent.cost - 0.001).abs() < 1e-12, "{spent:?}");
    }

    #[test]
    fn an_edge_costs_the_hits_that_nobody_counted_once() {
        let mut meter = meter();
        meter.add_open(&Loads::from([LoadId(1)]), ms(100));
        meter.add_edge(&Loads::from([LoadId(1)]), ms(5));
        let spent = look(&mut meter, 2_000, 11_000);
        assert!((spent.cost - 0.0021).abs() < 1e-12, "{spent:?}");
        // Also where it was known later.
        meter.add_edge(&Loads::from([LoadId(1)]), ms(10));
        let spent = look(&mut meter, 2_000, 11_050);
        assert!((spent.cost - 0.0002).abs() < 1e-12, "{spent:?}");
        let spent = look(&mut meter, 2_000, 11_100);
        assert!(spent.cost.abs() < 1e-12, "{spent:?}");
    }

    #[test]
    fn what_is_attached_all_the_time_was_seen_all_the_time() {
        let mut meter = meter();
        let spent = meter.look(
            &Loads::from([LoadId(1)]),
            vec![0, 500],
            ms(1_500),
            ms(11_000),
        );
        assert!((spent.cost - 0.0005).abs() < 1e-12, "{spent:?}");
        assert_eq!(meter.loads()[1].hits_per_second, Some(500.0));
    }
}
