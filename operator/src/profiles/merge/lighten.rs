//! Keeps a profile small while it grows.

use std::{cmp::Reverse, collections::HashSet};

use ckb_probe_profiles::{Frame, PRUNED, Profile, Stack, Stacks, headings::heading};

use crate::hash::fnv1a;

/// Folds the lightest stacks of each target into one for each heading, as [`Profile::prune`] does, until all have no more than so
/// many frames together, what is folded aside. Takes room for two numbers for each stack, where pruning takes it for each frame.
pub fn lighten(profile: &mut Profile, frames: usize) {
    let stacks = &profile.stacks;
    let depth = |stack: &Stack| match is_folded(stack) {
        true => 0,
        false => stack.frames.len(),
    };
    if stacks.iter().map(|stack| depth(&stack)).sum::<usize>() <= frames {
        return;
    }
    let mut order: Vec<(Reverse<u64>, u64, u32)> = stacks
        .iter()
        .map(|stack| {
            let depth = u32::try_from(depth(&stack)).unwrap_or(u32::MAX);
            (Reverse(weight(stacks, &stack)), digest(&stack), depth)
        })
        .collect();
    order.sort_unstable();
    let mut room = frames;
    let kept: HashSet<u64> = order
        .into_iter()
        .map_while(|(_, digest, depth)| {
            room = room.checked_sub(depth as usize)?;
            Some(digest)
        })
        .collect();
    profile.stacks = stacks.map(|stack| {
        if !is_folded(stack) && !kept.contains(&digest(stack)) {
            let heading = heading(stack).as_str();
            stack.frames = vec![Frame::user(PRUNED, ""), Frame::user(heading, "")];
            (stack.thread, stack.state, stack.wait) = ("", "", "");
        }
    });
}

/// The weight of what was folded, of the shown type.
pub fn pruned(stacks: &Stacks) -> u64 {
    let folded = stacks.iter().filter(is_folded);
    folded.fold(0, |sum: u64, stack| {
        sum.saturating_add(weight(stacks, &stack))
    })
}

fn is_folded(stack: &Stack) -> bool {
    let first = stack.frames.first();
    first.is_some_and(|first| first.name == PRUNED)
}

fn weight(stacks: &Stacks, stack: &Stack) -> u64 {
    stack
        .weights
        .get(stacks.shown())
        .copied()
        .unwrap_or_default()
}

/// The same for the same stack, in whatever order stacks come. Two that share one are kept or folded together.
fn digest(stack: &Stack) -> u64 {
    let labels = [stack.thread, stack.target, stack.state, stack.wait];
    let frames = stack
        .frames
        .iter()
        .flat_map(|frame| [frame.name, frame.module]);
    labels.into_iter().chain(frames).fold(0, |hash, text| {
        (hash ^ fnv1a(text.as_bytes()))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23)
    })
}
