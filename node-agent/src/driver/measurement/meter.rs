//! The meter: what probing costs a target, and what it uses itself. No clock, no I/O.

use std::time::Duration;

use crate::{
    governor::{Estimator, Load, Observation, Spent},
    mechanism::{GroupId, GroupIds, SharedTrap},
    observe::CpuTime,
};

/// What was read last, and what has happened since.
pub struct Meter {
    estimator: Estimator,
    hits: Vec<u64>,
    cpu: CpuTime,
    looked: Duration,
    /// Since the last look, by group: how long it was open in slices.
    open: Vec<Duration>,
    /// The same: as what time of being attached it costs that probes came and went.
    edges: Vec<Duration>,
    /// Whose hits cost less when others are attached too, by how large a part, and since the last look: how long both were open
    /// in the same slices.
    beside: Vec<(SharedTrap, f64, Duration)>,
    costs: Vec<Duration>,
    /// What it has cost besides what hits cost, by group: in all, and up to the last look.
    fixed: Vec<(Duration, Duration)>,
    total: Total,
}

/// What probing has cost a target since its measurement began, and what the target used itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Total {
    /// CPU-seconds.
    pub cost: f64,
    /// CPU-seconds.
    pub own: f64,
    /// CPU-seconds that were granted besides, however little it used.
    pub floor: f64,
    /// Of the cost, what each group cost.
    pub by_load: Vec<f64>,
}

impl Total {
    /// What it has cost since then, as a part of the CPU time that the target used itself; None where it used none.
    pub fn ratio_since(&self, earlier: &Self) -> Option<f64> {
        let (cost, own) = (self.cost - earlier.cost, self.own - earlier.own);
        (own > 0.0).then(|| cost / own)
    }

    /// What was granted besides since then, as the same part; None where that was nothing.
    pub fn floor_since(&self, earlier: &Self) -> Option<f64> {
        let (floor, own) = (self.floor - earlier.floor, self.own - earlier.own);
        (own > 0.0 && floor > 0.0).then(|| floor / own)
    }

    /// The same of what these groups cost.
    pub fn part_since(&self, earlier: &Self, groups: &GroupIds) -> Option<f64> {
        let of = |total: &Self, group: &GroupId| total.by_load.get(group.index()).copied();
        let costs = groups.iter().map(|group| {
            of(self, group).unwrap_or_default() - of(earlier, group).unwrap_or_default()
        });
        let own = self.own - earlier.own;
        (own > 0.0).then(|| costs.sum::<f64>() / own)
    }
}

impl Meter {
    /// for groups with these costs of a hit, of a target that has used the time `cpu` by now.
    pub fn new(costs: &[Duration], cpu: CpuTime, now: Duration) -> Self {
        Self {
            estimator: Estimator::new(costs),
            hits: vec![0; costs.len()],
            cpu,
            looked: now,
            open: vec![Duration::ZERO; costs.len()],
            edges: vec![Duration::ZERO; costs.len()],
            beside: Vec::new(),
            costs: costs.to_vec(),
            fixed: vec![(Duration::ZERO, Duration::ZERO); costs.len()],
            total: Total {
                by_load: vec![0.0; costs.len()],
                ..Total::default()
            },
        }
    }

    /// The same, where of some groups it is foreseen how often a second they are hit on the wall.
    #[must_use]
    pub fn foreseeing(mut self, rates: &[Option<f64>]) -> Self {
        self.estimator = self.estimator.foreseeing(rates);
        self
    }

    /// The same, where hits of some groups cost less while others are attached.
    #[must_use]
    pub fn with(mut self, beside: Vec<SharedTrap>) -> Self {
        let saved = |beside: &SharedTrap| {
            let cost = self.costs.get(beside.group.index())?.as_secs_f64();
            (cost > 0.0).then(|| (1.0 - beside.cost.as_secs_f64() / cost).clamp(0.0, 1.0))
        };
        let beside = beside.iter();
        let known = beside.filter_map(|one| Some((*one, saved(one)?, Duration::ZERO)));
        self.beside = known.collect();
        self
    }

    /// These groups were open in a slice for so long, since this was said last.
    pub fn add_open(&mut self, groups: &GroupIds, open: Duration) {
        for group in groups {
            self.open[group.index()] += open;
        }
        for (beside, _, together) in &mut self.beside {
            if groups.contains(&beside.group) && groups.contains(&beside.other) {
                *together += open;
            }
        }
    }

    /// The part of what a hit of each group costs that it did not since the last look, of which `elapsed` has passed, while
    /// `always` was attached all the time.
    fn saved(&mut self, always: &GroupIds, elapsed: Duration) -> Vec<f64> {
        let mut saved = vec![0.0; self.costs.len()];
        for (beside, part, together) in &mut self.beside {
            let (group, other) = (beside.group, beside.other);
            let in_slices = std::mem::take(together);
            let is_always = |group| always.contains(&group);
            let (open, together) = match (is_always(group), is_always(other)) {
                (true, true) => (elapsed, elapsed),
                (true, false) => (elapsed, self.open[other.index()]),
                (false, true) => (self.open[group.index()], self.open[group.index()]),
                (false, false) => (self.open[group.index()], in_slices),
            };
            if !open.is_zero() {
                let share = together.as_secs_f64() / open.as_secs_f64();
                saved[group.index()] = *part * share.min(1.0);
            }
        }
        saved
    }

    /// Probes on these groups came or went, which cost as much as having been attached for so long.
    pub fn add_edge(&mut self, groups: &GroupIds, edge: Duration) {
        for group in groups {
            self.edges[group.index()] += edge;
        }
    }

    /// So many CPU-seconds are granted besides.
    pub fn grant(&mut self, floor: f64) {
        self.total.floor += floor;
    }

    /// By now this group has cost so much besides what its hits cost.
    pub fn set_fixed(&mut self, group: GroupId, fixed: Duration) {
        self.fixed[group.index()].0 = fixed;
    }

    /// Takes in what was counted by now, while `always` was attached all the time.
    pub fn look(
        &mut self,
        always: &GroupIds,
        hits: Vec<u64>,
        cpu: CpuTime,
        now: Duration,
    ) -> Spent {
        let elapsed = now.saturating_sub(self.looked);
        let saved = self.saved(always, elapsed);
        let slices = self.open.iter_mut().zip(&mut self.edges).zip(saved);
        let sights: Vec<Observation> = hits
            .iter()
            .zip(&self.hits)
            .zip(slices)
            .enumerate()
            .map(|(index, ((hits, before), ((open, edge), saved)))| {
                let in_slices = std::mem::take(open);
                let sliced = !always.contains(&GroupId::default().offset(index));
                let open = if sliced { in_slices } else { elapsed };
                Observation {
                    hits: hits.saturating_sub(*before),
                    open,
                    attached: open + std::mem::take(edge),
                    saved,
                    sliced,
                }
            })
            .collect();
        let used = cpu.saturating_sub(self.cpu);
        let fixed = self.fixed.iter_mut().map(|(fixed, before)| {
            let besides = fixed.saturating_sub(*before).as_secs_f64();
            *before = *fixed;
            besides
        });
        let fixed: Vec<f64> = fixed.collect();
        let besides = fixed.iter().sum();
        let spent = self.estimator.observe(elapsed, used, besides, &sights);
        let costs = self.estimator.costs().zip(&fixed);
        for (total, (cost, besides)) in self.total.by_load.iter_mut().zip(costs) {
            *total += cost + besides;
        }
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

    /// How busy the groups are.
    pub fn loads(&self) -> Vec<Load> {
        self.estimator.loads()
    }

    /// The target's own time.
    pub fn time(&self) -> Duration {
        self.estimator.time().now()
    }

    /// What it is at most where the target has used the time `cpu` by now, probing included.
    pub fn time_at(&self, cpu: CpuTime, now: Duration) -> Duration {
        let time = self.estimator.time();
        let used = cpu.saturating_sub(self.cpu);
        time.now() + time.of(now.saturating_sub(self.looked), used)
    }

    /// How much of that passes in a second, of late.
    pub fn duty(&self) -> f64 {
        self.estimator.time().duty()
    }

    /// For how long that is known, on the wall.
    pub fn age(&self) -> Duration {
        self.estimator.time().age()
    }

    /// CPU-seconds per second of its own time that the target uses, probing not included.
    pub fn usage(&self) -> f64 {
        self.estimator.cpu()
    }

    /// What probing has cost, up to the last look.
    pub fn total(&self) -> &Total {
        &self.total
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

    /// The rate of the second group, but for the thousandth by which the process's time passes faster than its clock.
    fn is_rate(meter: &Meter, known: f64) -> bool {
        let rate = meter.loads()[1].hits_per_second;
        rate.is_some_and(|rate| (rate / known - 1.0).abs() < 0.002)
    }

    fn look(meter: &mut Meter, hits: u64, at: u64) -> Spent {
        let (cpu, now) = (ms(at - 9_500), ms(at));
        meter.look(&GroupIds::from([GroupId(0)]), vec![0, hits], cpu, now)
    }

    #[test]
    fn hits_cost_what_was_counted() {
        let mut meter = meter();
        meter.add_open(&GroupIds::from([GroupId(1)]), ms(100));
        let spent = look(&mut meter, 2_000, 11_000);
        assert!((spent.cost - 0.002).abs() < 1e-12, "{spent:?}");
        assert!((spent.own - 0.998).abs() < 1e-12, "{spent:?}");
        // 2,000 in 100 ms; and once it was said, it was said.
        assert!(is_rate(&meter, 20_000.0));
        let spent = look(&mut meter, 2_000, 12_000);
        assert!(spent.cost.abs() < 1e-12, "{spent:?}");
        let ratio = meter.total().ratio_since(&Total::default());
        assert!(ratio.is_some_and(|ratio| (ratio - 0.002 / 1.998).abs() < 1e-9));
        assert_eq!(meter.total().ratio_since(meter.total()), None);
        // All of it is for the one group.
        let part = |group| {
            let groups = GroupIds::from([GroupId(group)]);
            meter.total().part_since(&Total::default(), &groups)
        };
        assert_eq!((part(0), part(1)), (Some(0.0), ratio));
    }

    #[test]
    fn what_is_always_there_costs_besides_and_is_not_the_targets_own_time() {
        let mut meter = meter();
        meter.set_fixed(GroupId(1), ms(3));
        let spent = look(&mut meter, 0, 11_000);
        assert!((spent.cost - 0.003).abs() < 1e-12, "{spent:?}");
        assert!((spent.own - 1.0).abs() < 1e-12, "{spent:?}");
        meter.set_fixed(GroupId(1), ms(4));
        let spent = look(&mut meter, 0, 12_000);
        assert!((spent.cost - 0.001).abs() < 1e-12, "{spent:?}");
        assert_eq!(meter.total().by_load, [0.0, 0.004]);
    }

    #[test]
    fn a_hit_costs_less_while_another_load_has_the_kernel_trap_there() {
        let beside = SharedTrap {
            group: GroupId(1),
            other: GroupId(0),
            cost: Duration::from_nanos(400),
        };
        let looked = |always: &[u16], slices: &[&[u16]]| {
            let groups = |ids: &[u16]| ids.iter().copied().map(GroupId).collect::<GroupIds>();
            let mut meter = meter().with(vec![beside]);
            for slice in slices {
                meter.add_open(&groups(slice), ms(100));
            }
            let hits = vec![1_000, 1_000];
            let spent = meter.look(&groups(always), hits, ms(1_500), ms(11_000));
            let sum: f64 = meter.total().by_load.iter().sum();
            assert!((sum - spent.cost).abs() < 1e-12);
            (spent.cost * 1e6).round()
        };
        // Both always, or the one that is dearer alone.
        assert_eq!(looked(&[0, 1], &[]), 1_400.0);
        assert_eq!(looked(&[1], &[]), 2_000.0);
        // The other one is attached for a tenth of the time; or all of it, while this one is sliced.
        assert_eq!(looked(&[1], &[&[0]]), 1_940.0);
        assert_eq!(looked(&[0], &[&[1]]), 1_400.0);
        // In the same slices, in every other one, or in turns.
        assert_eq!(looked(&[], &[&[0, 1]]), 1_400.0);
        assert_eq!(looked(&[], &[&[0, 1], &[1]]), 1_700.0);
        assert_eq!(looked(&[], &[&[0], &[1]]), 2_000.0);
    }

    #[test]
    fn an_edge_costs_the_hits_that_nobody_counted_once() {
        let mut meter = meter();
        meter.add_open(&GroupIds::from([GroupId(1)]), ms(100));
        meter.add_edge(&GroupIds::from([GroupId(1)]), ms(5));
        let spent = look(&mut meter, 2_000, 11_000);
        assert!((spent.cost - 0.0021).abs() < 1e-6, "{spent:?}");
        // Also where it was known later.
        meter.add_edge(&GroupIds::from([GroupId(1)]), ms(10));
        let spent = look(&mut meter, 2_000, 11_050);
        assert!((spent.cost - 0.0002).abs() < 1e-6, "{spent:?}");
        let spent = look(&mut meter, 2_000, 11_100);
        assert!(spent.cost.abs() < 1e-12, "{spent:?}");
    }

    #[test]
    fn what_is_attached_all_the_time_was_seen_all_the_time() {
        let mut meter = meter();
        let spent = meter.look(
            &GroupIds::from([GroupId(1)]),
            vec![0, 500],
            ms(1_500),
            ms(11_000),
        );
        assert!((spent.cost - 0.0005).abs() < 1e-12, "{spent:?}");
        assert!(is_rate(&meter, 500.0));
    }
}
