//! What is known on a node of all who have functions of its kernel probed: a probe there is run for everybody who calls the function, so what it
//! costs others is not for one process's budget alone to bound.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::{debt::BystanderDebt, tier::Costs};
use crate::{
    kernel::{KernelTier, Trial, Tried},
    observe::ProcessId,
};

/// Between two times that functions of the kernel begin to be probed for one process: what was not called while it was tried is attached then,
/// whatever it costs by now.
pub(super) const BETWEEN: Duration = Duration::from_secs(5);

/// Whoever is to begin waits so long for others who begin.
const TO_BEGIN: Duration = Duration::from_secs(3);

/// And whoever is to attach for others who do. It is little: how long attaching takes is what slices are planned by.
const TO_ATTACH: Duration = Duration::from_millis(200);

/// What was tried is known for so long: how often a function is called does not stay the same.
const KNOWN: Duration = Duration::from_secs(600);

/// So many names are remembered, by tier.
const NAMES: usize = 1 << 14;

/// Of a node. Clones are of the same.
#[derive(Clone, Default)]
pub struct KernelRegistry {
    known: Arc<Mutex<Known>>,
    /// What was found out when somebody first asked, for as long as the agent runs: to find out attaches, twice.
    means: Arc<Mutex<Option<(KernelTier, Costs)>>>,
    debt: Arc<Mutex<BystanderDebt>>,
    sharing: Arc<AtomicUsize>,
    begin: Arc<Turns>,
    attach: Arc<Turns>,
}

/// Whose turn it is: one at a time on a node. What begins costs others before it is known how much, and where several were to attach at once,
/// the kernel would have each wait for all, and others pay for all of them meanwhile.
#[derive(Default)]
struct Turns {
    taken: Mutex<bool>,
    free: Condvar,
}

impl Turns {
    /// Waits for a turn, for so long; None where it is another's by then.
    fn take(self: &Arc<Self>, patience: Duration) -> Option<Turn> {
        let taken = locked(&self.taken);
        let waited = self
            .free
            .wait_timeout_while(taken, patience, |taken| *taken);
        let (mut taken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() {
            return None;
        }
        *taken = true;
        Some(Turn(Arc::clone(self)))
    }
}

/// The turn of one, until this is dropped.
pub(super) struct Turn(Arc<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        *locked(&self.0.taken) = false;
        self.0.free.notify_one();
    }
}

#[derive(Default)]
struct Known {
    trials: Vec<(KernelTier, Trials)>,
    begins: Begins,
}

/// Which functions the kernel lets be probed, how often they are called, and what it takes to come and go: to find out attaches to them.
#[derive(Debug, Default)]
struct Trials(BTreeMap<String, (Tried, Instant)>);

impl Trials {
    fn get(&self, name: &str, now: Instant) -> Option<&Tried> {
        let (tried, at) = self.0.get(name)?;
        (now.saturating_duration_since(*at) < KNOWN).then_some(tried)
    }

    /// Those that were not tried of late.
    fn untried<'a>(&self, functions: &BTreeSet<&'a str>, now: Instant) -> Vec<&'a str> {
        let functions = functions.iter().copied();
        functions
            .filter(|name| self.get(name, now).is_none())
            .collect()
    }

    /// That came of it.
    fn learn(&mut self, Trial(tried): Trial, now: Instant) {
        if self.0.len() + tried.len() > NAMES {
            self.0.clear();
        }
        let tried = tried.into_iter();
        self.0
            .extend(tried.map(|(name, tried)| (name, (tried, now))));
    }

    /// What is known of these.
    fn known(&self, functions: &BTreeSet<&str>, now: Instant) -> Trial {
        let known = functions.iter().filter_map(|name| {
            let tried = self.get(name, now)?;
            Some(((*name).to_string(), *tried))
        });
        Trial(known.collect())
    }
}

/// When functions were begun to be probed, by process.
#[derive(Debug, Default)]
struct Begins(BTreeMap<ProcessId, Instant>);

impl Begins {
    /// How long this process is to wait since they began for it a moment ago.
    fn wait(&mut self, process: ProcessId, now: Instant) -> Option<Duration> {
        self.0
            .retain(|_, begun| now.saturating_duration_since(*begun) < BETWEEN);
        let begun = self.0.get(&process)?;
        Some(BETWEEN.saturating_sub(now.saturating_duration_since(*begun)))
    }

    /// They begin for this process now.
    fn note(&mut self, process: ProcessId, now: Instant) {
        self.0.insert(process, now);
    }
}

impl KernelRegistry {
    fn known(&self) -> MutexGuard<'_, Known> {
        locked(&self.known)
    }

    /// By what way functions are probed, and what that costs, as is known or `find` finds out; one does so at a time.
    pub(super) fn means<E>(
        &self,
        find: impl FnOnce() -> Result<(KernelTier, Costs), E>,
    ) -> Result<(KernelTier, Costs), E> {
        let mut known = locked(&self.means);
        if let Some(means) = *known {
            return Ok(means);
        }
        Ok(*known.insert(find()?))
    }

    /// Waits for the turn to find what there is to attach to, to try that, and to load; None where others still do.
    pub(super) fn turn_to_begin(&self) -> Option<Turn> {
        self.begin.take(TO_BEGIN)
    }

    /// Waits for the turn to attach what was loaded; None where others still do.
    pub(super) fn turn_to_attach(&self) -> Option<Turn> {
        self.attach.take(TO_ATTACH)
    }

    /// Others have paid so many CPU-seconds more, who may pay `all` CPU-seconds per second together.
    pub(super) fn charge(&self, cost: f64, all: f64) {
        locked(&self.debt).charge(cost, all, Instant::now());
    }

    /// How long nobody is to begin, since others have paid too much; None where that is made good.
    pub(super) fn owing(&self, all: f64) -> Option<Duration> {
        locked(&self.debt).wait(all, Instant::now())
    }

    /// How long this process is to wait before functions of the kernel are probed for it again; None where it need not.
    pub(super) fn wait(&self, process: ProcessId) -> Option<Duration> {
        self.known().begins.wait(process, Instant::now())
    }

    /// Functions of the kernel begin to be probed for this process now.
    pub(super) fn begins(&self, process: ProcessId) {
        self.known().begins.note(process, Instant::now());
    }

    /// What came of trying these functions by a tier. `try_all` does so with those that nobody has tried of late; one does so at a time.
    pub(super) fn tried<E>(
        &self,
        tier: KernelTier,
        functions: &BTreeSet<&str>,
        try_all: impl FnOnce(&[&str]) -> Result<Trial, E>,
    ) -> Result<Trial, E> {
        let mut known = self.known();
        let place = known.trials.iter().position(|(of, _)| *of == tier);
        let place = place.unwrap_or_else(|| {
            known.trials.push((tier, Trials::default()));
            known.trials.len() - 1
        });
        let trials = &mut known.trials[place].1;
        let now = Instant::now();
        let untried = trials.untried(functions, now);
        // What is learnt may take the place of all that is known.
        let Trial(mut all) = trials.known(functions, now);
        if !untried.is_empty() {
            let trial = try_all(&untried)?;
            all.extend(trial.0.clone());
            trials.learn(trial, now);
        }
        Ok(Trial(all))
    }

    /// One more who shares what others may pay.
    pub(super) fn share(&self) -> NodeShare {
        self.sharing.fetch_add(1, Ordering::Relaxed);
        NodeShare(Arc::clone(&self.sharing))
    }

    /// How many share it: so many processes have functions of the kernel probed.
    pub(super) fn sharing(&self) -> usize {
        self.sharing.load(Ordering::Relaxed)
    }
}

/// What these hold is right at any time.
fn locked<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A share of what those may pay who call the functions and are not asked. It is given back when this is dropped.
pub(super) struct NodeShare(Arc<AtomicUsize>);

impl NodeShare {
    fn all(&self) -> usize {
        self.0.load(Ordering::Relaxed).max(1)
    }

    /// Of so much for all of them, what this one has.
    pub(super) fn of(&self, all: f64) -> f64 {
        all / self.all() as f64
    }

    /// How many others there are.
    pub(super) fn others(&self) -> usize {
        self.all() - 1
    }
}

impl Drop for NodeShare {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn process(pid: u32) -> ProcessId {
        ProcessId {
            pid,
            start_ticks: 1,
        }
    }

    #[test]
    fn what_is_asked_anew_five_times_a_second_begins_every_five_seconds() {
        let mut begins = Begins::default();
        let start = Instant::now();
        let at = |step: u32| start + step * Duration::from_millis(200);
        let mut begun = 0;
        for step in 0..300 {
            if begins.wait(process(1), at(step)).is_none() {
                begins.note(process(1), at(step));
                begun += 1;
            }
        }
        assert_eq!(begun, 12, "in a minute");
        let left = begins.wait(process(1), at(276));
        assert_eq!(left, Some(Duration::from_millis(4_800)));
        // Others do not wait for that, nor does a later process of the number; and nothing is kept of who is not asked about any more.
        let later = ProcessId {
            start_ticks: 2,
            ..process(1)
        };
        assert_eq!(begins.wait(process(2), at(276)), None);
        assert_eq!(begins.wait(later, at(276)), None);
        assert_eq!(begins.wait(process(3), at(1_000)), None);
        assert!(begins.0.is_empty());
    }

    /// Each was called as often as its name has letters.
    fn trial(names: &[&str]) -> Trial {
        let tried = |name: &&str| {
            let tried = Tried {
                admitted: *name != "odd",
                calls: name.len() as u64,
                lasted: Duration::from_millis(1),
                edge: Duration::from_millis(1),
            };
            (name.to_string(), tried)
        };
        Trial(names.iter().map(tried).collect())
    }

    #[test]
    fn a_function_is_tried_once_by_each_tier_whoever_asks() {
        let registry = KernelRegistry::default();
        let mut tried = Vec::new();
        let mut ask = |tier, names: &[&'static str]| {
            let known = registry.tried(tier, &names.iter().copied().collect(), |untried| {
                tried.push(untried.join(" "));
                Ok::<_, Infallible>(trial(untried))
            });
            assert_eq!(known, Ok(trial(names)));
        };
        ask(KernelTier::Multi, &["odd", "vfs_read"]);
        ask(KernelTier::Multi, &["odd", "vfs_read"]);
        ask(KernelTier::Multi, &["odd", "vfs_read", "vfs_write"]);
        ask(KernelTier::PerfEvent, &["odd"]);
        assert_eq!(tried, ["odd vfs_read", "vfs_write", "odd"]);
    }

    #[test]
    fn what_was_tried_ten_minutes_ago_is_not_known_any_more() {
        let (mut trials, start) = (Trials::default(), Instant::now());
        let functions = BTreeSet::from(["vfs_read", "vfs_write"]);
        trials.learn(trial(&["vfs_read"]), start);
        assert_eq!(trials.untried(&functions, start), ["vfs_write"]);
        assert_eq!(trials.known(&functions, start), trial(&["vfs_read"]));
        let later = start + KNOWN;
        assert_eq!(trials.untried(&functions, later).len(), 2);
        assert_eq!(trials.known(&functions, later), trial(&[]));
        trials.learn(trial(&["vfs_read", "vfs_write"]), later);
        assert_eq!(trials.untried(&functions, later), [""; 0]);
    }

    #[test]
    fn what_calls_cost_is_found_out_once_whoever_asks_and_goes() {
        let registry = KernelRegistry::default();
        let costs = |ns| Costs {
            hit: Duration::from_nanos(2 * ns),
            miss: Duration::from_nanos(ns),
            beside: Duration::ZERO,
            trap_ns: ns,
        };
        // What is not found out may be the next time.
        assert_eq!(registry.means(|| Err("not now")), Err("not now"));
        let mut found = 0;
        for ns in 1..=25 {
            let means = registry.clone().means(|| {
                found += 1;
                Ok::<_, Infallible>((KernelTier::Multi, costs(ns)))
            });
            assert_eq!(means, Ok((KernelTier::Multi, costs(1))));
        }
        assert_eq!(found, 1);
    }

    #[test]
    fn one_begins_at_a_time_and_who_waits_too_long_is_told() {
        let turns = Arc::new(Turns::default());
        let first = turns.take(Duration::ZERO).unwrap();
        assert!(turns.take(Duration::ZERO).is_none());
        let others = Arc::clone(&turns);
        let waits = std::thread::spawn(move || others.take(Duration::from_secs(60)));
        drop(first);
        let second = waits.join().unwrap().unwrap();
        assert!(turns.take(Duration::from_millis(1)).is_none());
        drop(second);
        assert!(turns.take(Duration::ZERO).is_some());
        // To begin is no turn to attach, and of a node there is one of each.
        let registry = KernelRegistry::default();
        let begins = registry.turn_to_begin();
        let attaches = registry.turn_to_attach();
        assert!(begins.is_some() && attaches.is_some());
        assert!(registry.clone().turn_to_attach().is_none());
    }

    #[test]
    fn what_others_paid_for_one_keeps_all_from_beginning() {
        let registry = KernelRegistry::default();
        let share = registry.share();
        registry.charge(0.5, 0.01);
        // Who asked is gone.
        drop(share);
        let wait = registry.clone().owing(0.01);
        assert!(wait > Some(Duration::from_secs(47)), "{wait:?}");
    }

    #[test]
    fn names_without_end_are_not_remembered() {
        let (mut trials, now) = (Trials::default(), Instant::now());
        let names: Vec<String> = (0..NAMES).map(|number| number.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        trials.learn(trial(&names), now);
        assert_eq!(trials.0.len(), NAMES);
        trials.learn(trial(&["one more"]), now);
        assert_eq!(trials.0.len(), 1);
    }

    #[test]
    fn what_is_asked_is_known_where_all_that_was_known_is_forgotten_for_it() {
        let registry = KernelRegistry::default();
        let ask = |names: &[&str]| {
            let functions = names.iter().copied().collect();
            let try_all = |untried: &[&str]| Ok::<_, Infallible>(trial(untried));
            registry.tried(KernelTier::Multi, &functions, try_all)
        };
        let before = ["odd", "vfs_read"];
        assert_eq!(ask(&before), Ok(trial(&before)));
        let more: Vec<String> = (0..NAMES).map(|number| number.to_string()).collect();
        let more = more.iter().map(String::as_str);
        let all: Vec<&str> = more.chain(before).collect();
        assert_eq!(ask(&all), Ok(trial(&all)));
        assert_eq!(registry.known().trials[0].1.0.len(), NAMES);
    }

    #[test]
    fn all_who_probe_share_what_others_pay() {
        let registry = KernelRegistry::default();
        let first = registry.share();
        assert_eq!((first.of(0.16), first.others()), (0.16, 0));
        let second = registry.clone().share();
        assert_eq!((first.of(0.16), second.of(0.16)), (0.08, 0.08));
        assert_eq!((first.others(), second.others()), (1, 1));
        drop(first);
        assert_eq!((second.of(0.16), second.others()), (0.16, 0));
    }
}
