//! A target, the kernel, and an agent that does what the governor says, in steps of a millisecond.

use super::*;

/// What is simulated.
pub struct Workload {
    /// CPU time of a hit, of each operation.
    pub costs: Vec<Duration>,
    /// Hits per second of each operation.
    pub rates: Vec<f64>,
    /// The part of the rates at a time in seconds, and what the target uses itself, in CPU-seconds per second.
    pub activity: Box<dyn Fn(f64) -> (f64, f64)>,
    /// What probing costs besides its hits at a time in seconds, in CPU-seconds per second: samplers do.
    pub besides: Box<dyn Fn(f64) -> f64>,
    /// Every 100 ms each rate changes at random, by this part of it at most.
    pub noise: f64,
    pub ratio: f64,
    /// Milliseconds that attaching and detaching take.
    pub attach: u64,
    pub detach: u64,
    /// What the governor believes them to cost together: half of the time that they take.
    pub edge: u64,
    pub seed: u64,
}

impl Workload {
    /// One percent for a target whose activity does not change.
    pub fn steady(costs: &[f64], rates: &[f64], cpu: f64) -> Self {
        Self {
            costs: costs.iter().copied().map(Duration::from_secs_f64).collect(),
            rates: rates.to_vec(),
            activity: Box::new(move |_| (1.0, cpu)),
            besides: Box::new(|_| 0.0),
            noise: 0.0,
            ratio: 0.01,
            attach: 8,
            detach: 12,
            edge: 10,
            seed: 1,
        }
    }
}

/// What happened.
#[derive(Default)]
pub struct Record {
    ratio: f64,
    /// CPU-seconds in each millisecond: of probing, and of the target itself.
    cost: Vec<f64>,
    own: Vec<f64>,
    /// One for each 50 ms; the first is made at 0.05 s.
    plans: Vec<Plan>,
}

impl Record {
    /// What probing cost, as a share of its budget, in the worst span of so many seconds that begins in `from`.
    pub fn worst(&self, from: std::ops::Range<f64>, span: f64) -> f64 {
        let [first, end, span] = [from.start, from.end, span].map(|time| (time * 1e3) as usize);
        let last = end.min(self.cost.len() - span);
        let mut cost: f64 = self.cost[first..first + span].iter().sum();
        let mut own: f64 = self.own[first..first + span].iter().sum();
        let mut worst = cost / own;
        for begin in first..last {
            cost += self.cost[begin + span] - self.cost[begin];
            own += self.own[begin + span] - self.own[begin];
            worst = worst.max(cost / own);
        }
        worst / self.ratio
    }

    /// What probing cost from a time on, as a share of its budget.
    pub fn mean(&self, from: f64) -> f64 {
        let first = (from * 1e3) as usize;
        let cost: f64 = self.cost[first..].iter().sum();
        let own: f64 = self.own[first..].iter().sum();
        cost / own / self.ratio
    }

    /// The plans made from a time on.
    pub fn plans(&self, from: f64) -> &[Plan] {
        &self.plans[(from * 20.0).round() as usize - 1..]
    }

    /// How often the attachment of the operation that changed most did, from a time on.
    pub fn changes(&self, from: f64) -> usize {
        let plans = self.plans(from);
        let changes = |i: usize| {
            let differs = |pair: &&[Plan]| pair[0].attachments[i] != pair[1].attachments[i];
            plans.windows(2).filter(differs).count()
        };
        let operations = plans[0].attachments.len();
        (0..operations).map(changes).max().unwrap_or_default()
    }

    /// The longest period from a time on, in seconds.
    pub fn period(&self, from: f64) -> f64 {
        let slices = self.plans(from).iter().filter_map(|plan| plan.slices);
        slices.fold(0.0, |longest, slices| {
            longest.max(slices.period.as_secs_f64())
        })
    }
}

/// A sequence that looks random and is the same for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

pub fn run(scene: &Workload, seconds: f64) -> Record {
    let mut agent = Agent::new(scene);
    let mut record = Record {
        ratio: scene.ratio,
        ..Record::default()
    };
    for now in 0..(seconds * 1e3) as u64 {
        if now > 0 && now.is_multiple_of(50) {
            agent.tick(now);
            record.plans.push(agent.plan.clone());
        }
        agent.slice(now);
        let (cost, own) = agent.live(now);
        record.cost.push(cost);
        record.own.push(own);
    }
    record
}

/// How one operation is attached in the kernel.
#[derive(Clone, Copy, Default)]
struct Link {
    always: bool,
    /// Always attached, it counts from then on; detached, it costs until then.
    settled: u64,
    in_slice: bool,
}

/// The slice of the moment, and until when it attaches or detaches.
#[derive(Clone, Copy, PartialEq)]
enum Slice {
    None,
    Attaching(u64),
    Open,
    Detaching(u64),
}

/// What was counted of one operation since the last tick, and for how many milliseconds.
#[derive(Clone, Copy, Default)]
struct Seen {
    hits: f64,
    open: u64,
    attached: f64,
}

impl Seen {
    /// What the kernel tells of it; a part of a hit is left for later.
    fn take(&mut self) -> Observation {
        let sight = Observation {
            hits: self.hits as u64,
            open: Duration::from_millis(self.open),
            attached: Duration::from_secs_f64(self.attached / 1e3),
            ..Observation::default()
        };
        let hits = self.hits - self.hits.floor();
        *self = Self {
            hits,
            ..Self::default()
        };
        sight
    }
}

struct Agent<'a> {
    scene: &'a Workload,
    random: Random,
    /// CPU-seconds of a hit.
    costs: Vec<f64>,
    noise: Vec<f64>,
    plan: Plan,
    cycle: Cycle,
    estimator: Estimator,
    links: Vec<Link>,
    slice: Slice,
    slices: u64,
    seen: Vec<Seen>,
    read: u64,
    cpu: f64,
    cpu_read: Duration,
    besides: f64,
}

impl<'a> Agent<'a> {
    fn new(scene: &'a Workload) -> Self {
        let operations = scene.costs.len();
        let estimator = Estimator::new(&scene.costs);
        Self {
            scene,
            random: Random(scene.seed),
            costs: scene.costs.iter().map(Duration::as_secs_f64).collect(),
            noise: vec![1.0; operations],
            plan: plan(
                &estimator.loads(),
                estimator.cpu(),
                budget(scene),
                Spent::default(),
                None,
            ),
            cycle: Cycle::new(Duration::ZERO),
            estimator,
            links: vec![Link::default(); operations],
            slice: Slice::None,
            slices: 0,
            seen: vec![Seen::default(); operations],
            read: 0,
            cpu: 0.0,
            cpu_read: Duration::ZERO,
            besides: 0.0,
        }
    }

    /// What an agent does every 50 ms, and after a slice: read, plan, attach.
    fn tick(&mut self, now: u64) {
        let sights: Vec<Observation> = self.seen.iter_mut().map(Seen::take).collect();
        let clock = Duration::from_millis((self.cpu * 100.0) as u64 * 10);
        let cpu = clock - self.cpu_read;
        let elapsed = Duration::from_millis(now - self.read);
        let besides = std::mem::take(&mut self.besides);
        let spent = self.estimator.observe(elapsed, cpu, besides, &sights);
        self.plan = plan(
            &self.estimator.loads(),
            self.estimator.cpu(),
            budget(self.scene),
            spent,
            Some(&self.plan),
        );
        (self.read, self.cpu_read) = (now, clock);
        for (link, attachment) in self.links.iter_mut().zip(&self.plan.attachments) {
            let always = *attachment == Attachment::Always;
            if always != link.always {
                let takes = if always {
                    self.scene.attach
                } else {
                    self.scene.detach
                };
                link.always = always;
                link.settled = now + takes;
            }
        }
    }

    /// What an agent does in between: slices.
    fn slice(&mut self, now: u64) {
        let time = Duration::from_millis(now);
        match self.slice {
            Slice::Attaching(until) if now >= until => {
                self.slice = Slice::Open;
                self.cycle.opened(time);
            }
            Slice::Detaching(until) if now >= until => {
                self.slice = Slice::None;
                self.tick(now);
                self.cycle.closed(&self.plan, time);
            }
            _ => {}
        }
        match self.cycle.step(&self.plan, time, self.random.next()) {
            Some(Switch::Attach) => {
                self.slice = Slice::Attaching(now + self.scene.attach);
                let plan = self.plan.attachments.iter().zip(&self.plan.turns);
                for (link, (attachment, turn)) in self.links.iter_mut().zip(plan) {
                    link.in_slice = *attachment == Attachment::Sliced && turn.takes(self.slices);
                }
                self.slices += 1;
            }
            Some(Switch::Detach) => self.slice = Slice::Detaching(now + self.scene.detach),
            None => {}
        }
    }

    /// What target and kernel do in a millisecond. Returns the CPU-seconds of probing and of the target itself.
    fn live(&mut self, now: u64) -> (f64, f64) {
        let (activity, cpu) = (self.scene.activity)(now as f64 / 1e3);
        if now.is_multiple_of(100) {
            for noise in &mut self.noise {
                *noise = 1.0 + self.scene.noise * (2.0 * self.random.next() - 1.0);
            }
        }
        let mut cost = 0.0;
        for (i, link) in self.links.iter().enumerate() {
            let happened = self.scene.rates[i] * activity * self.noise[i] / 1e3;
            let in_slice = link.in_slice && self.slice != Slice::None;
            let open = link.in_slice && self.slice == Slice::Open;
            let in_place = match in_slice && !open {
                _ if link.always || now < link.settled || open => 1.0,
                // Its sites come, or go, one after another.
                true => 0.5,
                false => 0.0,
            };
            cost += happened * self.costs[i] * in_place;
            self.seen[i].attached += in_place;
            if link.always && now >= link.settled || open {
                self.seen[i].hits += happened;
                self.seen[i].open += 1;
            }
        }
        let besides = (self.scene.besides)(now as f64 / 1e3) / 1e3;
        self.besides += besides;
        self.cpu += cost + cpu / 1e3;
        (cost + besides, cpu / 1e3)
    }
}

fn budget(scene: &Workload) -> Budget {
    Budget {
        ratio: scene.ratio,
        edge: Duration::from_millis(scene.edge),
    }
}
