//! What each is below: by its thread, and by its key.

use std::{cmp::Reverse, collections::BTreeMap, iter::successors};

use super::{Held, Key};
use crate::span::Span;

/// By how much the time that one mechanism tells may differ from another's, in nanoseconds.
const TOLERANCE_NS: u64 = 20_000;

/// Whatever one is within on its thread comes before it.
pub(super) fn outermost_first<T>(all: &mut [Held<T>]) {
    all.sort_by_key(|one| Reverse(outwardness(&one.spans[0])));
}

/// The parent of each of these, of which the outermost are first. Following parents ends, always.
pub(super) fn of<T>(all: &[Held<T>]) -> Vec<Option<usize>> {
    let mut parents = by_thread(all);
    by_key(all, &mut parents);
    parents
}

/// What this one is below, from the innermost on.
pub(super) fn above(
    parents: &[Option<usize>],
    index: usize,
) -> impl Iterator<Item = usize> + use<'_> {
    successors(parents[index], |parent| parents[*parent])
}

/// Each below the innermost that it is within.
fn by_thread<T>(all: &[Held<T>]) -> Vec<Option<usize>> {
    let mut threads: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    let mut parents = Vec::with_capacity(all.len());
    for (index, one) in all.iter().enumerate() {
        let before = one
            .within
            .thread
            .map(|thread| threads.entry(thread).or_default());
        let may_have = |outer: &usize| is_within(&one.spans[0], &all[*outer].spans[0]);
        let parent = before
            .as_ref()
            .filter(|_| !one.is_placed)
            .and_then(|before| before.iter().copied().rfind(may_have));
        parents.push(parent);
        if let Some(before) = before {
            before.push(index);
        }
    }
    parents
}

/// Each below the one of its key that began last before it, and had not ended then: unless what it is within on its thread is below that
/// one, too, and so is closer.
fn by_key<T>(all: &[Held<T>], parents: &mut [Option<usize>]) {
    let mut keyed: Vec<(u64, usize, &Key)> = all
        .iter()
        .enumerate()
        .filter_map(|(index, one)| Some((one.spans[0].start_ns, index, one.within.key.as_ref()?)))
        .collect();
    keyed.sort_unstable_by_key(|(start_ns, index, _)| (*start_ns, *index));
    let mut begun: BTreeMap<&Key, Vec<usize>> = BTreeMap::new();
    for (start_ns, index, key) in keyed {
        let earlier = begun.entry(key).or_default();
        let is_open = |outer: &usize| {
            let outer = &all[*outer].spans[0];
            outer.start_ns < start_ns && start_ns < outer.end_ns
        };
        if !all[index].is_placed
            && let Some(outer) = earlier.iter().copied().rfind(is_open)
        {
            let is_closer = above(parents, index).any(|one| one == outer);
            // By their threads, whose times are told with some tolerance.
            let is_below = above(parents, outer).any(|one| one == index);
            if !is_closer && !is_below {
                parents[index] = Some(outer);
            }
        }
        earlier.push(index);
    }
}

/// Whether something is within something else.
pub(super) fn is_within(inner: &Span, outer: &Span) -> bool {
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
