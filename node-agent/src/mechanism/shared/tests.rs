//! Who is counted for, who pays and who is told, with a program that is played.

use std::io;

use proptest::{collection::vec, prelude::*};

use super::{
    super::{GroupId, GroupIds},
    *,
};

/// A queue that is full soon.
const ROOM: usize = 4;

/// A program as the kernel might have it.
#[derive(Default)]
struct Played {
    now: u64,
    attached: bool,
    attaches: u64,
    /// For whom it counts.
    open: Vec<u8>,
    spent: BTreeMap<Option<u8>, u64>,
    lost: BTreeMap<u8, u64>,
    ring: Vec<NodeEvent<u8, u64>>,
    forgotten: Vec<(u8, Vec<u8>)>,
    /// What fails.
    attach_fails: bool,
    open_fails: bool,
    reading_fails: bool,
}

impl Played {
    fn readable(&self) -> Result<(), ReadError> {
        match self.reading_fails {
            true => Err(ReadError::of("PLAYED", io::ErrorKind::Other.into())),
            false => Ok(()),
        }
    }

    fn tell(&mut self, key: Option<u8>, event: u64) {
        self.ring.push(NodeEvent {
            key,
            time_ns: self.now,
            event,
        });
    }
}

impl NodeProgram for Played {
    type Subscriber = u8;
    type Key = u8;
    type Event = u64;

    const MAX_WAITING: usize = ROOM;
    const EVENTS_LOST: &'static str = "events";

    fn key(subscriber: &u8) -> u8 {
        *subscriber
    }

    fn attach(&mut self) -> Result<(), AttachError> {
        assert!(!self.attached, "it is attached once");
        // What fails half-way leaves something.
        self.attached = true;
        self.attaches += 1;
        match self.attach_fails {
            true => Err(AttachError::NoRoom("played")),
            false => Ok(()),
        }
    }

    fn detach(&mut self) -> Option<Links> {
        mem::take(&mut self.attached).then(|| Links::of(Vec::new()))
    }

    fn open(&mut self, subscriber: &mut u8, others: &[&u8]) -> Result<(), AttachError> {
        assert!(self.attached, "who is counted for is counted by something");
        assert_eq!(sorted(&self.open), sorted(others.iter().copied()));
        self.open.push(*subscriber);
        match self.open_fails {
            true => Err(AttachError::NoRoom("played")),
            false => Ok(()),
        }
    }

    fn close(&mut self, subscriber: &mut u8, others: &[&u8]) -> Result<(), ReadError> {
        assert!(self.attached);
        let own = self.open.iter().position(|one| one == subscriber);
        self.open.remove(own.unwrap());
        assert_eq!(sorted(&self.open), sorted(others.iter().copied()));
        self.readable()
    }

    fn forget(&mut self, subscriber: u8, others: &[&u8]) -> Result<(), ReadError> {
        let others = sorted(others.iter().copied());
        self.forgotten.push((subscriber, others));
        self.readable()
    }

    fn costs(&self) -> Result<Spent<u8>, ReadError> {
        self.readable()?;
        Ok(self
            .spent
            .iter()
            .map(|(key, spent)| (*key, *spent))
            .collect())
    }

    fn lost(&mut self, subscriber: &u8) -> Result<Losses, ReadError> {
        self.readable()?;
        let lost = self.lost.get(subscriber).copied().unwrap_or_default();
        Ok([(Name::Borrowed("counts"), lost)].into())
    }

    fn drain(&mut self) -> Vec<NodeEvent<u8, u64>> {
        mem::take(&mut self.ring)
    }

    fn now_ns(&self) -> u64 {
        self.now
    }
}

fn sorted<'a>(all: impl IntoIterator<Item = &'a u8>) -> Vec<u8> {
    let mut all: Vec<u8> = all.into_iter().copied().collect();
    all.sort_unstable();
    all
}

type Node = Arc<Mutex<Shared<Played>>>;

/// A program of which costs of these keys are known from the beginning.
fn node() -> Node {
    let spent = [None, Some(0), Some(1), Some(2)];
    Arc::new(Mutex::new(Shared::of(Played {
        spent: spent.map(|key| (key, 1_000)).into(),
        ..Played::default()
    })))
}

fn subscribe(node: &Node, key: u8) -> Handle<Played> {
    Handle::to(Arc::clone(node), |_| Ok::<_, AttachError>(key)).unwrap()
}

fn play<T>(node: &Node, play: impl FnOnce(&mut Played) -> T) -> T {
    let mut shared = lock(node);
    shared.program.now += 1;
    play(&mut shared.program)
}

fn lost(handle: &Handle<Played>, what: &'static str) -> u64 {
    let lost = handle.lost().unwrap();
    lost.get(what).copied().unwrap_or_default()
}

/// What may happen.
#[derive(Clone, Debug)]
enum Step {
    Subscribe(u8),
    Open(usize),
    Close(usize),
    End(usize),
    Drop(usize),
    Spend(Option<u8>, u64),
    Tell(Option<u8>),
    Lose(u8, u64),
    Charged(usize),
    Events(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0u8..3;
    let some_key = || prop::option::of(key());
    let who = || 0usize..8;
    let step = prop_oneof![
        3 => key().prop_map(Step::Subscribe),
        4 => who().prop_map(Step::Open),
        3 => who().prop_map(Step::Close),
        1 => who().prop_map(Step::End),
        1 => who().prop_map(Step::Drop),
        4 => (some_key(), 0u64..20).prop_map(|(key, cost)| Step::Spend(key, cost)),
        5 => some_key().prop_map(Step::Tell),
        2 => (key(), 1u64..5).prop_map(|(key, count)| Step::Lose(key, count)),
        1 => who().prop_map(Step::Charged),
        1 => who().prop_map(Step::Events),
    ];
    vec(step, 1..80)
}

/// What a subscriber should have.
struct Expected {
    key: u8,
    open: bool,
    ended: bool,
    handle: Option<Handle<Played>>,
    waiting: Vec<u64>,
    dropped: u64,
    lost: u64,
    /// While it is closed.
    charged: u64,
}

impl Expected {
    fn pays_for(&self, key: Option<u8>) -> bool {
        self.open && key.is_none_or(|key| key == self.key)
    }
}

/// Plays steps, and after each holds what everybody has against what they should have.
fn holds(steps: &[Step]) -> Result<(), TestCaseError> {
    let node = node();
    let mut all: Vec<Expected> = Vec::new();
    // What those paid who are gone, and what all should have paid.
    let (mut paid, mut payable) = (0, 0);
    let mut events = 0;
    for step in steps {
        play(&node, |_| {});
        let of = |which: usize, all: &[Expected]| (!all.is_empty()).then(|| which % all.len());
        match *step {
            Step::Subscribe(key) => all.push(Expected {
                key,
                open: false,
                ended: false,
                handle: Some(subscribe(&node, key)),
                waiting: Vec::new(),
                dropped: 0,
                lost: 0,
                charged: 0,
            }),
            Step::Open(which) => {
                if let Some(which) = of(which, &all) {
                    let one = &mut all[which];
                    one.handle.as_ref().unwrap().open().unwrap();
                    one.open = !one.ended;
                }
            }
            Step::Close(which) => {
                if let Some(which) = of(which, &all) {
                    let is_last = all[which].open && all.iter().filter(|one| one.open).count() == 1;
                    let one = &mut all[which];
                    let links = one.handle.as_ref().unwrap().close().unwrap();
                    prop_assert_eq!(links.is_some(), is_last);
                    one.open = false;
                    one.charged = one.handle.as_ref().unwrap().charged().unwrap();
                }
            }
            Step::End(which) | Step::Drop(which) => {
                if let Some(which) = of(which, &all) {
                    let is_last = all[which].open && all.iter().filter(|one| one.open).count() == 1;
                    let one = &mut all[which];
                    let handle = one.handle.as_ref().unwrap();
                    paid += handle.charged().unwrap();
                    if matches!(step, Step::Drop(_)) {
                        drop(all.remove(which));
                    } else {
                        prop_assert_eq!(handle.end().is_some(), is_last);
                        *one = Expected {
                            open: false,
                            ended: true,
                            handle: one.handle.take(),
                            waiting: Vec::new(),
                            dropped: 0,
                            lost: 0,
                            charged: 0,
                            key: one.key,
                        };
                    }
                }
            }
            Step::Spend(key, cost) => {
                play(&node, |played| {
                    *played.spent.entry(key).or_default() += cost
                });
                if all.iter().any(|one| one.pays_for(key)) {
                    payable += cost;
                }
            }
            Step::Tell(key) => {
                events += 1;
                play(&node, |played| played.tell(key, events));
                for one in all.iter_mut().filter(|one| one.pays_for(key)) {
                    match one.waiting.len() < ROOM {
                        true => one.waiting.push(events),
                        false => one.dropped += 1,
                    }
                }
            }
            Step::Lose(key, count) => {
                play(&node, |played| {
                    *played.lost.entry(key).or_default() += count
                });
                for one in all.iter_mut().filter(|one| one.pays_for(Some(key))) {
                    one.lost += count;
                }
            }
            Step::Charged(which) => {
                if let Some(which) = of(which, &all) {
                    all[which].handle.as_ref().unwrap().charged().unwrap();
                }
            }
            Step::Events(which) => {
                if let Some(which) = of(which, &all) {
                    let one = &mut all[which];
                    let told = one.handle.as_ref().unwrap().events();
                    prop_assert_eq!(told, mem::take(&mut one.waiting));
                }
            }
        }
        let open = all.iter().filter(|one| one.open).map(|one| &one.key);
        let (open, attached) = (sorted(open), play(&node, |played| played.attached));
        prop_assert_eq!(attached, !open.is_empty());
        prop_assert_eq!(play(&node, |played| sorted(&played.open)), open);
        let mut charged = paid;
        for one in &all {
            let handle = one.handle.as_ref().unwrap();
            let own = handle.charged().unwrap();
            charged += own;
            if !one.open {
                prop_assert_eq!(own, one.charged, "nobody pays while closed");
            }
            prop_assert_eq!(lost(handle, "counts"), one.lost);
            prop_assert_eq!(lost(handle, "events"), one.dropped);
        }
        prop_assert_eq!(charged, payable, "shares are the whole");
    }
    drop(all);
    prop_assert!(!play(&node, |played| played.attached));
    prop_assert_eq!(node.lock().unwrap().subscribers.len(), 0);
    Ok(())
}

proptest! {
    #[test]
    fn whoever_comes_and_goes_all_is_counted_paid_and_told_once(steps in steps()) {
        holds(&steps)?;
    }

    #[test]
    fn those_who_pay_together_pay_the_same_but_for_one_unit(
        many in 1usize..12,
        costs in vec(0u64..40, 1..60),
    ) {
        let mut split = CostSplit::default();
        let mut charged = vec![0; many];
        split.settle(77, charged.iter_mut().collect());
        let mut total = 77;
        for cost in costs {
            total += cost;
            split.settle(total, charged.iter_mut().collect());
            prop_assert_eq!(charged.iter().sum::<u64>(), total - 77);
            let (least, most) = (charged.iter().min().unwrap(), charged.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", charged);
        }
    }

    #[test]
    fn what_is_counted_always_and_what_in_slices_ends_by_itself(
        steps in vec((any::<bool>(), any::<bool>()), 1..40),
    ) {
        let mut counting = Counting::default();
        let (own, none) = (GroupIds::from([LOAD]), GroupIds::new());
        let (mut always, mut slice) = (false, false);
        for (is_slice, on) in steps {
            let before = always || slice;
            let links = match (is_slice, on) {
                (true, true) => counting.open_load(&own).map(|()| None).unwrap(),
                (true, false) => counting.close_load().unwrap(),
                (false, true) => counting.attach_load(&own).unwrap(),
                (false, false) => counting.attach_load(&none).unwrap(),
            };
            if is_slice { slice = on } else { always = on }
            prop_assert_eq!(counting.open, always || slice);
            prop_assert_eq!(links.is_some(), before && !counting.open);
        }
    }
}

#[test]
fn what_it_costs_is_paid_by_those_who_are_open_when_it_does() {
    let node = node();
    let spend = |key, cost| {
        play(&node, |played| {
            *played.spent.entry(key).or_default() += cost
        })
    };
    let (one, other) = (subscribe(&node, 1), subscribe(&node, 2));
    one.open().unwrap();
    spend(None, 10);
    other.open().unwrap();
    spend(None, 10);
    spend(Some(2), 100);
    drop(one.close().unwrap());
    spend(None, 6);
    spend(Some(1), 1_000);
    drop(other.close().unwrap());
    spend(None, 10_000);
    let charged = (one.charged().unwrap(), other.charged().unwrap());
    assert_eq!(charged, (10 + 5, 5 + 100 + 6));
}

#[test]
fn what_happened_while_it_was_open_is_its_own_however_late_it_is_told() {
    let node = node();
    let (one, other) = (subscribe(&node, 0), subscribe(&node, 0));
    play(&node, |played| played.tell(Some(0), 1));
    one.open().unwrap();
    play(&node, |played| played.tell(Some(0), 2));
    drop(one.close().unwrap());
    // A program that saw the gate open has it told afterwards.
    let late = play(&node, |played| {
        played.now -= 1;
        played.tell(None, 3);
        played.now += 1;
        played.now
    });
    play(&node, |played| played.tell(None, 4));
    assert!(late > 0);
    other.open().unwrap();
    play(&node, |played| played.tell(Some(0), 5));
    assert_eq!(one.events(), [2, 3]);
    assert_eq!(other.events(), [5]);
}

#[test]
fn what_cannot_be_attached_or_opened_leaves_nothing_behind() {
    let node = node();
    let one = subscribe(&node, 0);
    play(&node, |played| played.attach_fails = true);
    assert!(matches!(one.open(), Err(AttachError::NoRoom(_))));
    assert!(!play(&node, |played| mem::take(&mut played.attach_fails)
        && played.attached));
    play(&node, |played| played.open_fails = true);
    assert!(matches!(one.open(), Err(AttachError::NoRoom(_))));
    play(&node, |played| {
        assert!(!played.attached && played.open.is_empty());
        played.open_fails = false;
        *played.spent.entry(None).or_default() += 10;
    });
    assert_eq!(one.charged().unwrap(), 0);
    one.open().unwrap();
    play(&node, |played| *played.spent.entry(None).or_default() += 7);
    assert_eq!(
        (
            one.charged().unwrap(),
            play(&node, |played| played.attaches)
        ),
        (7, 3)
    );
}

#[test]
fn what_cannot_be_read_is_told_and_detached_all_the_same() {
    let node = node();
    let (one, other) = (subscribe(&node, 0), subscribe(&node, 0));
    one.open().unwrap();
    play(&node, |played| played.reading_fails = true);
    assert!(one.charged().is_err() && one.lost().is_err());
    assert!(matches!(other.open(), Err(AttachError::Map(_))));
    assert!(one.close().is_err());
    play(&node, |played| {
        assert!(!played.attached && played.open.is_empty());
        played.reading_fails = false;
    });
    assert!(one.close().unwrap().is_none(), "it is closed already");
    other.open().unwrap();
    play(&node, |played| played.reading_fails = true);
    assert!(other.end().is_none());
    assert!(!play(&node, |played| played.attached));
}

#[test]
fn who_ends_is_forgotten_once_and_has_nothing_any_more() {
    let node = node();
    let (one, same) = (subscribe(&node, 1), subscribe(&node, 1));
    one.open().unwrap();
    play(&node, |played| played.tell(None, 1));
    assert!(one.end().is_some());
    assert!(one.end().is_none() && one.close().unwrap().is_none());
    one.open().unwrap();
    assert!(!play(&node, |played| played.attached), "it is over");
    assert_eq!((one.events(), one.charged().unwrap()), (vec![], 0));
    assert!(one.with(|_, _| ()).is_none() && one.lost().unwrap().is_empty());
    drop((one, same));
    let forgotten = play(&node, |played| mem::take(&mut played.forgotten));
    assert_eq!(forgotten, [(1, vec![1]), (1, vec![])]);
}

const LOAD: GroupId = GroupId(3);

/// A mechanism that counts, or does not.
struct Counting {
    gate: Gate,
    open: bool,
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            gate: Gate::of(LOAD),
            open: false,
        }
    }
}

impl OneGroup for Counting {
    fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    fn open(&mut self) -> Result<(), AttachError> {
        assert!(!mem::replace(&mut self.open, true));
        Ok(())
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        assert!(mem::take(&mut self.open));
        Ok(Some(Links::of(Vec::new())))
    }
}

#[test]
fn a_load_that_is_somebody_elses_leaves_it_closed() {
    let mut counting = Counting::default();
    let others = GroupIds::from([GroupId(4)]);
    counting.open_load(&others).unwrap();
    assert!(counting.attach_load(&others).unwrap().is_none());
    assert!(!counting.gate.is_open() && !counting.open);
}
