//! Which of what took a time was within what: on one thread, what begins and ends within something else is a part of it.
//!
//! What is within is told first, since it ends first. So each waits for a while before it leaves, and then goes with all that it is
//! within, or that is within it. Pure: times are passed in.

use std::{collections::BTreeMap, time::Duration};

use super::span::Span;

/// So long each waits for what it may be within.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// Of more than these, the oldest wait no longer.
const MOST: usize = 2048;

/// By how much the time that one mechanism tells may differ from another's, in nanoseconds.
const TOLERANCE_NS: u64 = 20_000;

/// What waits, with whatever it carries.
#[derive(Clone, Debug)]
pub struct Nest<T> {
    threads: BTreeMap<Thread, Vec<Held<T>>>,
    count: usize,
    spans: BTreeMap<u64, u64>,
}

/// A thread of somebody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thread {
    /// Whose: spans are counted for them.
    pub owner: u64,
    /// Its number on the host.
    pub number: u32,
}

#[derive(Clone, Debug)]
struct Held<T> {
    since: Duration,
    /// The root first, and what is known to be below it.
    spans: Vec<Span>,
    /// It was told what it is a part of: that is not to be found here.
    is_placed: bool,
    carried: T,
}

impl<T> Default for Nest<T> {
    fn default() -> Self {
        Self {
            threads: BTreeMap::new(),
            count: 0,
            spans: BTreeMap::new(),
        }
    }
}

impl<T> Nest<T> {
    /// Takes the spans of one trace, the root first. One that has a parent already stays below that, in its trace.
    pub fn hold(&mut self, thread: Thread, spans: Vec<Span>, carried: T, now: Duration) {
        if spans.is_empty() {
            return;
        }
        self.count += 1;
        *self.spans.entry(thread.owner).or_default() += spans.len() as u64;
        self.threads.entry(thread).or_default().push(Held {
            since: now,
            is_placed: spans[0].parent.is_some(),
            spans,
            carried,
        });
    }

    /// How many spans wait, of this owner.
    pub fn waiting_of(&self, owner: u64) -> u64 {
        self.spans.get(&owner).copied().unwrap_or_default()
    }

    /// How many spans wait.
    pub fn waiting(&self) -> u64 {
        self.spans.values().sum()
    }

    /// Those that waited long enough, and all that belongs to the same traces: each as it was taken, but for its trace and its root's parent.
    /// What is told later of the same time is a trace by itself.
    pub fn due(&mut self, now: Duration) -> Vec<(Vec<Span>, T)> {
        let mut all = self.release(|since| since + PATIENCE <= now);
        while self.count > MOST {
            let oldest = self.threads.values().flatten().map(|held| held.since).min();
            let Some(oldest) = oldest else {
                break;
            };
            all.extend(self.release(|since| since <= oldest));
        }
        all
    }

    /// All of them.
    pub fn all(&mut self) -> Vec<(Vec<Span>, T)> {
        self.release(|_| true)
    }

    /// Lets those go of which the root is so.
    fn release(&mut self, is_due: impl Fn(Duration) -> bool) -> Vec<(Vec<Span>, T)> {
        let mut released = Vec::new();
        for (thread, held) in &mut self.threads {
            if !held.iter().any(|one| is_due(one.since)) {
                continue;
            }
            let mut stays = Vec::new();
            for tree in trees(std::mem::take(held)) {
                if tree.first().is_some_and(|root| is_due(root.since)) {
                    let spans: usize = tree.iter().map(|one| one.spans.len()).sum();
                    let waiting = self.spans.entry(thread.owner).or_default();
                    *waiting = waiting.saturating_sub(spans as u64);
                    self.count -= tree.len();
                    released.extend(tree.into_iter().map(|one| (one.spans, one.carried)));
                } else {
                    stays.extend(tree.into_iter().map(alone));
                }
            }
            *held = stays;
        }
        self.threads.retain(|_, held| !held.is_empty());
        self.spans.retain(|_, spans| *spans > 0);
        released
    }
}

/// Whether something is within something else.
fn is_within(inner: &Span, outer: &Span) -> bool {
    inner.start_ns + TOLERANCE_NS >= outer.start_ns
        && inner.end_ns <= outer.end_ns + TOLERANCE_NS
        && outwardness(inner) < outwardness(outer)
}

/// Of two that may be within each other, so far as their times are known, the outer one has more of it. Who is within ends first. What takes
/// longer is the outer one where ends are told by different mechanisms; but not where it is longer by microseconds only: what probes of
/// calls within it cost is no part of how long a call takes, so it may be told as shorter than what it called.
fn outwardness(span: &Span) -> u64 {
    span.end_ns.saturating_add(length(span) / 20)
}

fn length(span: &Span) -> u64 {
    span.end_ns.saturating_sub(span.start_ns)
}

/// What belongs together, each with the outermost first: all of one trace, and each below the innermost that it is within.
fn trees<T>(mut held: Vec<Held<T>>) -> Vec<Vec<Held<T>>> {
    // Whatever one is within comes before it.
    held.sort_by_key(|one| std::cmp::Reverse(outwardness(&one.spans[0])));
    let mut trees: Vec<Vec<Held<T>>> = Vec::new();
    for mut one in held {
        let root = &one.spans[0];
        let may_have = |tree: &Vec<Held<T>>| is_within(root, &tree[0].spans[0]);
        let among = match one.is_placed {
            true => None,
            // What has a place of its own is within others all the same, and comes after them: what is within it follows it.
            false => trees
                .iter()
                .rposition(|tree| tree[0].is_placed && may_have(tree))
                .or_else(|| trees.iter().position(may_have)),
        };
        let Some(tree) = among.and_then(|among| trees.get_mut(among)) else {
            trees.push(vec![one]);
            continue;
        };
        // Of those that it is within the last is the innermost.
        let outer = tree.iter().rfind(|outer| is_within(root, &outer.spans[0]));
        let (trace, parent) = outer.map_or_else(
            || (tree[0].spans[0].trace, tree[0].spans[0].id),
            |outer| (outer.spans[0].trace, outer.spans[0].id),
        );
        one.spans[0].parent = Some(parent);
        for span in &mut one.spans {
            span.trace = trace;
        }
        tree.push(one);
    }
    trees
}

/// As it was before it was put below another: what may come is looked at anew. The number of its trace is that of the outermost.
fn alone<T>(mut one: Held<T>) -> Held<T> {
    if let Some(root) = one.spans.first_mut()
        && !one.is_placed
    {
        root.parent = None;
    }
    one
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        ids::{Ids, SpanId},
        span::SpanKind,
    };

    const MS: u64 = 1_000_000;
    const THREAD: Thread = Thread {
        owner: 1,
        number: 7,
    };

    fn span(ids: &mut Ids, start_ns: u64, end_ns: u64) -> Span {
        Span {
            trace: ids.trace(),
            id: ids.span(),
            parent: None,
            name: String::new(),
            start_ns,
            end_ns,
            kind: SpanKind::default(),
            attributes: Vec::new(),
            events: Vec::new(),
        }
    }

    #[test]
    fn what_is_within_is_below_the_innermost_that_it_is_within() {
        let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(1));
        let inner = span(&mut ids, 3 * MS, 4 * MS);
        let part = Span {
            parent: Some(inner.id),
            trace: inner.trace,
            ..span(&mut ids, 3 * MS, 3 * MS)
        };
        let middle = span(&mut ids, 2 * MS, 5 * MS);
        let outer = span(&mut ids, MS, 9 * MS);
        let beside = span(&mut ids, 10 * MS, 11 * MS);
        let elsewhere = span(&mut ids, 3 * MS, 4 * MS);
        // In the order in which they may be told.
        nest.hold(
            THREAD,
            vec![inner.clone(), part.clone()],
            "inner",
            Duration::ZERO,
        );
        nest.hold(THREAD, vec![outer.clone()], "outer", Duration::ZERO);
        nest.hold(THREAD, vec![middle.clone()], "middle", Duration::ZERO);
        nest.hold(THREAD, vec![beside.clone()], "beside", Duration::ZERO);
        let other = Thread {
            number: 8,
            ..THREAD
        };
        nest.hold(other, vec![elsewhere.clone()], "elsewhere", Duration::ZERO);
        assert_eq!(
            (nest.waiting(), nest.waiting_of(1), nest.waiting_of(2)),
            (6, 6, 0)
        );
        assert!(nest.due(PATIENCE - Duration::from_nanos(1)).is_empty());
        let due: BTreeMap<&str, Vec<Span>> = nest
            .due(PATIENCE)
            .into_iter()
            .map(|(spans, name)| (name, spans))
            .collect();
        let of = |name: &str| (due[name][0].trace, due[name][0].parent);
        assert_eq!(of("outer"), (outer.trace, None));
        assert_eq!(of("middle"), (outer.trace, Some(outer.id)));
        assert_eq!(of("inner"), (outer.trace, Some(middle.id)));
        assert_eq!(due["inner"][1].parent, Some(inner.id));
        assert_eq!(due["inner"][1].trace, outer.trace);
        assert_eq!(of("beside"), (beside.trace, None));
        assert_eq!(of("elsewhere"), (elsewhere.trace, None));
        assert_eq!(nest.waiting(), 0);
    }

    /// What each of two is below, once all is told.
    fn parents(inner: &Span, outer: &Span) -> BTreeMap<&'static str, Option<SpanId>> {
        let mut nest = Nest::default();
        nest.hold(THREAD, vec![inner.clone()], "inner", Duration::ZERO);
        nest.hold(THREAD, vec![outer.clone()], "outer", Duration::ZERO);
        let all = nest.all().into_iter();
        all.map(|(spans, name)| (name, spans[0].parent)).collect()
    }

    /// Of a call that does nothing but another the probes of that one are taken off.
    #[test]
    fn what_is_told_as_shorter_than_what_it_called_is_above_it_all_the_same() {
        let mut ids = Ids::from_seed(4);
        let inner = span(&mut ids, 3 * MS, 5 * MS);
        let outer = span(&mut ids, 3 * MS + 3_200, 5 * MS + 1_500);
        let all = parents(&inner, &outer);
        assert_eq!(all["inner"], Some(outer.id));
        assert_eq!(all["outer"], None);
    }

    /// Somebody else has told what it is a part of, on this thread or on any other.
    #[test]
    fn what_has_a_parent_keeps_it_and_what_is_within_it_follows_it() {
        let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(6));
        let (caller, callers) = (ids.span(), ids.trace());
        let inner = span(&mut ids, 4 * MS, 5 * MS);
        let placed = Span {
            trace: callers,
            parent: Some(caller),
            ..span(&mut ids, 3 * MS, 6 * MS)
        };
        let beside = span(&mut ids, 7 * MS, 8 * MS);
        let outer = span(&mut ids, MS, 9 * MS);
        let later = Duration::from_millis(1);
        for (one, name) in [(&inner, "inner"), (&placed, "placed"), (&beside, "beside")] {
            nest.hold(THREAD, vec![one.clone()], name, Duration::ZERO);
        }
        nest.hold(THREAD, vec![outer.clone()], "outer", later);
        let place = |due: Vec<(Vec<Span>, &'static str)>| -> BTreeMap<&str, _> {
            let due = due.into_iter();
            due.map(|(spans, name)| (name, (spans[0].trace, spans[0].parent)))
                .collect()
        };
        // It waits for nobody, and whoever is beside it for what both are within.
        let first = place(nest.due(PATIENCE));
        let expected = [
            ("inner", (callers, Some(placed.id))),
            ("placed", (callers, Some(caller))),
        ];
        assert_eq!(first, expected.into());
        let second = place(nest.due(PATIENCE + later));
        let expected = [
            ("beside", (outer.trace, Some(outer.id))),
            ("outer", (outer.trace, None)),
        ];
        assert_eq!(second, expected.into());
        // Looked at anew while it waits, it is what it was.
        nest.hold(THREAD, vec![placed.clone()], "placed", later);
        nest.hold(THREAD, vec![beside], "beside", Duration::ZERO);
        assert_eq!(nest.due(PATIENCE).len(), 1);
        assert_eq!(place(nest.all())["placed"], (callers, Some(caller)));
    }

    /// Clocks of two mechanisms differ by some microseconds.
    #[test]
    fn what_is_told_to_end_a_little_after_what_it_is_within_is_below_it() {
        let mut ids = Ids::from_seed(5);
        let inner = span(&mut ids, 3 * MS, 5 * MS + 15_000);
        let outer = span(&mut ids, 2 * MS, 5 * MS);
        let all = parents(&inner, &outer);
        assert_eq!(all["inner"], Some(outer.id));
    }

    #[test]
    fn of_too_many_the_oldest_wait_no_longer() {
        let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(2));
        for number in 0..MOST as u64 + 3 {
            let one = span(&mut ids, number * MS, number * MS + 9);
            nest.hold(THREAD, vec![one], number, Duration::from_nanos(number));
        }
        let due: Vec<u64> = nest
            .due(Duration::from_secs(1))
            .into_iter()
            .map(|(_, one)| one)
            .collect();
        assert_eq!(due, [0, 1, 2]);
        assert_eq!(nest.waiting(), MOST as u64);
    }

    proptest! {
        #[test]
        fn each_leaves_once_in_one_trace_with_all_that_it_is_within(
            all in vec((0..1000_u64, 1..1000_u64, 0..3_u32, 0..4000_u64, any::<bool>()), 1..60),
        ) {
            let (mut nest, mut ids) = (Nest::default(), Ids::from_seed(3));
            let mut left: Vec<(Vec<Span>, u32)> = Vec::new();
            let mut now = Duration::ZERO;
            let mut held = BTreeSet::new();
            let mut told = BTreeMap::new();
            for (start, length, number, wait, is_placed) in &all {
                let mut one = span(&mut ids, start * MS, (start + length) * MS);
                if *is_placed {
                    one.parent = Some(ids.span());
                    told.insert(one.id, (one.trace, one.parent));
                }
                held.insert(one.id);
                let thread = Thread { number: *number, ..THREAD };
                nest.hold(thread, vec![one], *number, now);
                now += Duration::from_millis(*wait);
                left.extend(nest.due(now));
                prop_assert_eq!(nest.waiting() + left.len() as u64, held.len() as u64);
            }
            left.extend(nest.all());
            prop_assert_eq!(nest.waiting(), 0);
            let by_id: BTreeMap<_, _> = left.iter().map(|(spans, thread)| (spans[0].id, (&spans[0], *thread))).collect();
            prop_assert_eq!(by_id.len(), all.len());
            for (span, thread) in by_id.values() {
                if let Some(told) = told.get(&span.id) {
                    prop_assert_eq!((span.trace, span.parent), *told);
                    continue;
                }
                let Some(parent) = span.parent else { continue };
                let (outer, of) = by_id[&parent];
                prop_assert!(is_within(span, outer) && of == *thread);
                prop_assert_eq!(span.trace, outer.trace);
            }
        }
    }
}
