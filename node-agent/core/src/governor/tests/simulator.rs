//! A target, the kernel, and an agent that does what the governor says, in steps of a millisecond: what probing costs, and what is
//! told of what the target did.

mod record;

use ckb_probe_crds::{Balance, Lasted, Passed, SliceShape, Spread};
pub use record::{Record, Told};

use super::*;

/// What a target does at a time in seconds: how many CPUs it keeps busy, and how often a second it does each operation.
pub type Activity = Box<dyn Fn(f64) -> (f64, Vec<f64>)>;

/// What is simulated.
pub struct Workload {
    /// CPU time of a hit, of each operation, as it is believed to be; and how many times that it is.
    pub costs: Vec<Duration>,
    pub dearer: f64,
    /// What the target does.
    pub activity: Activity,
    /// What probing costs besides its hits at a time in seconds, in CPU-seconds per second: samplers do.
    pub besides: Box<dyn Fn(f64) -> f64>,
    /// How often a second each operation is hit on the wall, as is foreseen before any is attached; empty: nobody knows, and all are at first.
    pub foreseen: Vec<f64>,
    /// Every 100 ms each rate changes at random, by this part of it at most.
    pub noise: f64,
    pub ratio: f64,
    /// CPU-seconds per second that are granted besides.
    pub floor: f64,
    /// Milliseconds that attaching and detaching take, on the average; and how many times longer or shorter at most.
    pub attach: u64,
    pub detach: u64,
    pub uneven: f64,
    /// Milliseconds from when it is time to count until what counts is told from what was before.
    pub read: u64,
    pub seed: u64,
}

impl Workload {
    /// One percent, and a thousandth of a core, for a target that does this.
    pub fn of(operations: usize, activity: impl Fn(f64) -> (f64, Vec<f64>) + 'static) -> Self {
        Self {
            costs: vec![Duration::from_nanos(1_100); operations],
            dearer: 1.0,
            activity: Box::new(activity),
            besides: Box::new(|_| 0.0),
            foreseen: Vec::new(),
            noise: 0.0,
            ratio: 0.01,
            floor: 0.001,
            attach: 8,
            detach: 12,
            uneven: 1.0,
            read: 0,
            seed: 1,
        }
    }

    /// One whose activity does not change.
    pub fn steady(costs: &[f64], rates: &[f64], cpu: f64) -> Self {
        let rates = rates.to_vec();
        let costs = costs.iter().copied().map(Duration::from_secs_f64);
        Self {
            costs: costs.collect(),
            floor: 0.0,
            ..Self::of(0, move |_| (cpu, rates.clone()))
        }
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
    let mut record = Record::default();
    for now in 0..(seconds * 1e3) as u64 {
        if now >= agent.wake {
            agent.step(now, &mut record);
        }
        let (cost, allowed, full) = agent.live(now);
        record.cost.push(cost);
        record.allowed.push(allowed);
        record.full.push(full);
    }
    agent.look((seconds * 1e3) as u64);
    agent.end_cells(agent.time());
    record.told = agent.told;
    record
}

fn passed(from: (Duration, u64), to: (Duration, u64)) -> Passed {
    Passed {
        own: (to.0 - from.0).as_secs_f64(),
        wall: (to.1 - from.1) as f64 / 1e3,
    }
}

/// How one operation is attached in the kernel.
#[derive(Clone, Copy, Default)]
struct Link {
    always: bool,
    /// Always attached, it counts from then on; detached, it costs until then.
    settled: u64,
    in_slice: bool,
    /// Which cells are its own.
    cells: Option<Turn>,
    /// The cell that runs: as it was drawn, when it began, and what its slice counted.
    cell: Option<(SliceShape, f64, Option<f64>)>,
    /// How long the slice of that lasted, and what was before.
    lasted: Option<Lasted>,
    balance: Balance,
}

/// The slice of the moment, and until when it attaches or detaches.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    None,
    Attaching(u64),
    Attached,
    /// It is to count, since then in the process's own time, and does at a time on the wall.
    Reading(Duration, u64),
    Open,
    Detaching(u64),
}

/// What was counted of one operation since the last look, and for how many milliseconds.
#[derive(Clone, Copy, Default)]
struct Seen {
    hits: f64,
    open: f64,
    attached: f64,
}

struct Agent<'a> {
    scene: &'a Workload,
    random: Random,
    costs: Vec<f64>,
    noise: Vec<f64>,
    plan: Option<Plan>,
    cycle: Cycle,
    /// Since when the slice counts, and when that was on the wall.
    counting: (Duration, u64),
    /// CPU-seconds that probing is believed to have cost, and that the target used itself: in all, and when the slice began to count.
    spent: [(f64, f64); 2],
    /// The same: since when the last one is gone; and what passed since then until the next one was to come.
    free: Option<(Duration, u64)>,
    before: Passed,
    now: u64,
    estimator: Estimator,
    links: Vec<Link>,
    told: Vec<Told>,
    stage: Stage,
    seen: Vec<Seen>,
    read: u64,
    wake: u64,
    idle_looks: u32,
    cpu: f64,
    cpu_read: f64,
    besides: f64,
}

impl<'a> Agent<'a> {
    fn new(scene: &'a Workload) -> Self {
        let operations = scene.costs.len();
        let foreseen: Vec<Option<f64>> = scene.foreseen.iter().copied().map(Some).collect();
        let mut agent = Self {
            scene,
            random: Random(scene.seed),
            costs: scene
                .costs
                .iter()
                .map(|cost| cost.as_secs_f64() * scene.dearer)
                .collect(),
            noise: vec![1.0; operations],
            plan: None,
            cycle: Cycle::default(),
            counting: (Duration::ZERO, 0),
            spent: [(0.0, 0.0); 2],
            free: None,
            before: Passed::default(),
            now: 0,
            estimator: Estimator::new(&scene.costs).foreseeing(&foreseen),
            links: vec![
                Link {
                    always: true,
                    ..Link::default()
                };
                operations
            ],
            told: vec![Told::default(); operations],
            stage: Stage::None,
            seen: vec![Seen::default(); operations],
            read: 0,
            wake: 50,
            idle_looks: 0,
            cpu: 0.0,
            cpu_read: 0.0,
            besides: 0.0,
        };
        if !foreseen.is_empty() {
            agent.begin();
        }
        agent
    }

    /// Attaches what may be all the time as far as is foreseen, and leaves the rest to slices.
    fn begin(&mut self) {
        self.plan = Some(self.planned_after(Spent::default()));
        let always = self.planned();
        for (link, always) in self.links.iter_mut().zip(always) {
            link.always = always;
        }
        self.begin_cells();
    }

    fn planned_after(&self, spent: Spent) -> Plan {
        let duty = self.estimator.time().duty();
        let budget = Budget {
            ratio: self.scene.ratio,
            floor: self.scene.floor / duty,
            duty,
            known: self.estimator.time().age(),
            edge: self.lead() - Duration::from_millis(self.scene.attach) / 2
                + Duration::from_millis(self.scene.detach) / 2,
            turnaround: self.lead() + Duration::from_millis(self.scene.detach),
        };
        let (loads, last) = (self.estimator.loads(), self.plan.as_ref());
        plan(&loads, self.estimator.cpu(), budget, spent, last)
    }

    fn time(&self) -> Duration {
        self.estimator.time().now()
    }

    fn lead(&self) -> Duration {
        Duration::from_micros(self.scene.attach * 1250 + 9000)
    }

    /// Reads what was counted, and plans.
    fn look(&mut self, now: u64) {
        if now == self.read {
            return;
        }
        let elapsed = Duration::from_millis(now - self.read);
        let sights: Vec<Observation> = self
            .seen
            .iter_mut()
            .zip(&self.links)
            .map(|(seen, link)| {
                let hits = seen.hits.floor();
                let sight = Observation {
                    hits: hits as u64,
                    open: Duration::from_secs_f64(seen.open / 1e3),
                    attached: Duration::from_secs_f64(seen.attached / 1e3),
                    saved: 0.0,
                    sliced: !link.always,
                };
                *seen = Seen {
                    hits: seen.hits - hits,
                    ..Seen::default()
                };
                sight
            })
            .collect();
        let cpu = Duration::from_secs_f64(self.cpu - self.cpu_read);
        let besides = std::mem::take(&mut self.besides);
        let before = self.time();
        let mut spent = self.estimator.observe(elapsed, cpu, besides, &sights);
        self.spent[0].0 += spent.cost;
        self.spent[0].1 += spent.own;
        let works = self.time() - before > elapsed / 4;
        self.idle_looks = if works { 0 } else { self.idle_looks + 1 };
        spent.floor = self.scene.floor * elapsed.as_secs_f64();
        self.plan = Some(self.planned_after(spent));
        (self.read, self.cpu_read) = (now, self.cpu);
    }

    fn step(&mut self, now: u64, record: &mut Record) {
        self.now = now;
        match self.stage {
            Stage::Attaching(until) if now >= until => {
                self.look(now);
                self.stage = Stage::Attached;
                self.cycle.attached(self.time());
            }
            Stage::Reading(since, until) if now >= until => self.count(now, since),
            Stage::Detaching(until) if now >= until => {
                self.look(now);
                self.stage = Stage::None;
                self.cycle.detached(self.time());
                self.free = Some((self.time(), now));
            }
            _ => {}
        }
        if now >= self.next_look() {
            self.look(now);
            record.plans.extend(
                self.plan
                    .iter()
                    .map(|plan| (now as f64 / 1e3, plan.clone())),
            );
            self.review(now);
        }
        while let Some(switch) = self.cycle.step(self.time()) {
            match switch {
                Switch::Attach => {
                    self.stage = Stage::Attaching(now + self.about(self.scene.attach));
                    let free = self.free.take();
                    self.before =
                        free.map_or_else(Passed::default, |free| passed(free, (self.time(), now)));
                    for link in &mut self.links {
                        link.in_slice = link.cells.is_some_and(|turn| self.cycle.takes(turn));
                    }
                }
                Switch::Count if self.scene.read > 0 => {
                    self.stage = Stage::Reading(self.time(), now + self.scene.read);
                    break;
                }
                Switch::Count => self.count(now, self.time()),
                Switch::Detach => {
                    self.stage = Stage::Detaching(now + self.about(self.scene.detach));
                    let ended = (self.time(), now);
                    let before = std::mem::take(&mut self.before);
                    let slice = passed(self.counting, ended);
                    let [(cost, own), (cost_before, own_before)] = self.spent;
                    let probing = (cost - cost_before) / (own - own_before).max(1e-9) * slice.own;
                    for link in self.links.iter_mut().filter(|link| link.in_slice) {
                        let lasted = link.lasted.get_or_insert_default();
                        lasted.slice.add(slice);
                        lasted.before.add(before);
                        lasted.probing += probing;
                    }
                }
                Switch::EndCell => self.end_cell(now),
            }
        }
        let busy = match self.stage {
            Stage::Attaching(until) | Stage::Reading(_, until) | Stage::Detaching(until) => until,
            _ => u64::MAX,
        };
        self.wake = self.next_look().min(busy).max(now + 1);
    }

    /// What counts begins now; it was to since then.
    fn count(&mut self, now: u64, since: Duration) {
        self.look(now);
        self.stage = Stage::Open;
        self.cycle.counting(self.time().saturating_sub(since));
        self.counting = (self.time(), now);
        self.spent[1] = self.spent[0];
        for link in self.links.iter_mut().filter(|link| link.in_slice) {
            if let Some((_, _, seen)) = &mut link.cell {
                seen.get_or_insert(0.0);
            }
        }
    }

    /// So many milliseconds, more or less, as the kernel's grace periods are.
    fn about(&mut self, milliseconds: u64) -> u64 {
        if self.scene.uneven <= 1.0 {
            return milliseconds;
        }
        let times = self.scene.uneven.powf(2.0 * self.random.next() - 1.0);
        (milliseconds as f64 * times) as u64
    }

    fn next_look(&self) -> u64 {
        let left = self.cycle.next().map_or(50, |due| {
            let left = due.saturating_sub(self.time()).as_secs_f64() * 1e3;
            let patience = ((left / 4.0) as u64).clamp(8, 50);
            ((left * 0.5) as u64)
                .max((1 << self.idle_looks.min(8)).min(patience))
                .min(50)
        });
        self.read + left.max(1)
    }

    fn planned(&self) -> Vec<bool> {
        let plan = self.plan.as_ref().unwrap();
        plan.attachments.iter().map(|one| *one == Always).collect()
    }

    fn review(&mut self, now: u64) {
        let mut always = self.planned();
        if !self.cycle.is_idle() {
            for (always, link) in always.iter_mut().zip(&self.links) {
                *always &= link.always;
            }
        }
        self.change(now, &always);
        if self.cycle.is_idle() && self.plan.as_ref().is_some_and(|plan| plan.slices.is_some()) {
            self.begin_cells();
        }
    }

    fn change(&mut self, now: u64, always: &[bool]) {
        if self
            .links
            .iter()
            .zip(always)
            .all(|(link, always)| link.always == *always)
        {
            return;
        }
        if !self.cycle.is_idle() {
            self.leave(now, always);
            return;
        }
        self.end_cells(self.time());
        self.stage = Stage::None;
        self.free = None;
        for (link, always) in self.links.iter_mut().zip(always) {
            if link.always != *always {
                link.always = *always;
                link.settled = now
                    + if *always {
                        self.scene.attach
                    } else {
                        self.scene.detach
                    };
            }
        }
        self.begin_cells();
    }

    /// What is not always attached any more joins the cell under way: to cut that off for what its slice may have seen would bias it.
    fn leave(&mut self, now: u64, always: &[bool]) {
        let time = self.time().as_secs_f64();
        let slice = self.cycle.slice().unwrap();
        for (link, always) in self.links.iter_mut().zip(always) {
            if link.always && !always {
                link.always = false;
                link.settled = now + self.scene.detach;
                link.in_slice = false;
                link.cells = Some(Turn::Every);
                link.cell = Some((slice.shape(), time, None));
            }
        }
    }

    fn begin_cells(&mut self) {
        let slices = self.plan.as_ref().and_then(|plan| plan.slices);
        let (lead, time) = (self.lead(), self.time());
        self.cycle
            .restart(slices, lead, time, || self.random.next());
        self.note_cells(time);
    }

    fn note_cells(&mut self, time: Duration) {
        let Some(slice) = self.cycle.slice() else {
            return;
        };
        let time = time.as_secs_f64();
        let plan = self.plan.as_ref().unwrap();
        let how = plan.attachments.iter().zip(&plan.turns);
        for (link, (attachment, turn)) in self.links.iter_mut().zip(how) {
            link.cells = (*attachment == Sliced && !link.always).then_some(*turn);
            link.cell = link.cells.map(|turn| match turn {
                Turn::Every => (slice.shape(), time, None),
                Turn::Even | Turn::Odd => (slice.shape_of_two(), time, None),
            });
        }
    }

    fn end_cell(&mut self, now: u64) {
        let (time, lead) = (self.time(), self.lead());
        let over = self.cycle.bounds().map_or(time, |cell| cell.end);
        let slices = self.plan.as_ref().and_then(|plan| plan.slices);
        if !self.cycle.is_second() {
            self.cycle
                .next_cell(slices, lead, time, || self.random.next());
            for i in 0..self.links.len() {
                if self.links[i].cells == Some(Turn::Every) {
                    self.end_cell_of(i, over);
                    let shape = self.cycle.slice().unwrap().shape();
                    self.links[i].cell = Some((shape, over.as_secs_f64(), None));
                }
            }
            return;
        }
        self.end_cells(over);
        let always = self.planned();
        if self
            .links
            .iter()
            .zip(&always)
            .any(|(link, always)| link.always != *always)
        {
            self.cycle = Cycle::default();
            self.change(now, &always);
            return;
        }
        self.cycle
            .next_cell(slices, lead, time, || self.random.next());
        self.note_cells(over);
    }

    fn end_cells(&mut self, time: Duration) {
        for i in 0..self.links.len() {
            self.end_cell_of(i, time);
        }
    }

    /// As the books do.
    fn end_cell_of(&mut self, i: usize, time: Duration) {
        let time = time.as_secs_f64();
        let (link, told) = (&mut self.links[i], &mut self.told[i]);
        let Some((shape, began, seen)) = link.cell.take() else {
            return;
        };
        let part = ((time - began) / shape.cell).clamp(0.0, 1.0);
        let (mut count, mut variance) = (0.0, told.spread.cut(part, shape.cell));
        if let Some(seen) = seen {
            let factor = match link.lasted.take() {
                Some(lasted) => link.balance.observe(&shape, &lasted),
                None => link.balance.factor(),
            };
            count = seen * factor * shape.weight();
            variance += told.spread.observe(seen * factor, &shape);
            told.doubtful += link.balance.doubt() * (count - seen).max(0.0);
            told.slices += u32::from(seen > 0.0);
            told.cells += 1;
        }
        told.count += count;
        told.variance += variance;
        told.end_stretch(self.now, count, variance, seen.is_some());
    }

    /// What target and kernel do in a millisecond. Returns the CPU-seconds of probing, what it was allowed, and what it would be if all were
    /// attached.
    fn live(&mut self, now: u64) -> (f64, f64, f64) {
        let at = now as f64 / 1e3;
        let (cpu, rates) = (self.scene.activity)(at);
        if now.is_multiple_of(100) {
            for noise in &mut self.noise {
                *noise = 1.0 + self.scene.noise * (2.0 * self.random.next() - 1.0);
            }
        }
        let (mut cost, mut full) = (0.0, 0.0);
        for (i, link) in self.links.iter_mut().enumerate() {
            let happened = rates[i] * self.noise[i] / 1e3;
            let in_slice = link.in_slice && self.stage != Stage::None;
            let open = link.in_slice && self.stage == Stage::Open;
            let edge = in_slice && matches!(self.stage, Stage::Attaching(_) | Stage::Detaching(_));
            let in_place = if link.always || now < link.settled {
                1.0
            } else if edge {
                // Its sites come, or go, one after another.
                0.5
            } else {
                f64::from(u8::from(in_slice))
            };
            let counts = link.always && now >= link.settled || in_slice && !edge;
            cost += happened * self.costs[i] * in_place;
            full += happened * self.costs[i];
            self.seen[i].attached += in_place;
            if counts {
                self.seen[i].hits += happened;
                self.seen[i].open += 1.0;
            }
            let told = &mut self.told[i];
            told.done += happened;
            if link.always && now >= link.settled {
                told.count += happened;
            } else if open && let Some((_, _, Some(seen))) = &mut link.cell {
                *seen += happened;
            }
            if !link.always && link.cell.is_none() {
                told.missed += happened;
            }
        }
        let besides = (self.scene.besides)(at) / 1e3;
        self.besides += besides;
        let own = cpu / 1e3;
        // What probing takes is the target's time on the CPU, too.
        self.cpu += cost + own;
        (
            cost + besides,
            own * self.scene.ratio + self.scene.floor / 1e3,
            full,
        )
    }
}
