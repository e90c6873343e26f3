//! Keeps a profile small while it grows.

use std::{
    cmp::Reverse,
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{Frame, PRUNED, Profile, Stack, Stacks};
use crate::categories::category;

/// About what a stack takes besides its frames, and what a text does besides its letters: their places in two tables.
const STACK_BYTES: usize = 192;
const TEXT_BYTES: usize = 80;

impl Profile {
    /// Folds the lightest stacks of each target into one for each category, as [`Profile::prune`] does, until all have no more than
    /// so many frames together, what is folded aside. Takes room for two numbers for each stack, where pruning takes it for each
    /// frame.
    pub fn lighten(&mut self, frames: usize) {
        let stacks = &self.stacks;
        if stacks.depth() <= frames {
            return;
        }
        let mut order: Vec<(Reverse<u64>, u64, u32)> = stacks
            .iter()
            .map(|stack| {
                let depth = u32::try_from(depth(&stack)).unwrap_or(u32::MAX);
                (Reverse(stacks.weight(&stack)), digest(&stack), depth)
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
        self.stacks = stacks.map(|stack| {
            if !is_folded(stack) && !kept.contains(&digest(stack)) {
                let category = category(stack).as_str();
                stack.frames = vec![Frame::user(PRUNED, ""), Frame::user(category, "")];
                (stack.thread, stack.state, stack.wait) = ("", "", "");
            }
        });
    }

    /// Does so until it takes no more than so many bytes of memory, or nothing is left that is not folded.
    pub fn lighten_to(&mut self, bytes: usize) {
        let mut depth = self.stacks.depth();
        while self.stacks.bytes() > bytes && depth > 0 {
            self.lighten(depth / 2);
            depth = self.stacks.depth();
        }
    }
}

impl Stacks {
    /// The weight of what was folded, of the shown type.
    pub fn pruned(&self) -> u64 {
        let folded = self.iter().filter(is_folded);
        folded.fold(0, |sum: u64, stack| sum.saturating_add(self.weight(&stack)))
    }

    /// About what all of it takes of memory.
    pub fn bytes(&self) -> usize {
        let rows = self.rows.keys();
        let rows: usize = rows
            .map(|row| STACK_BYTES + size_of_val(&*row.frames))
            .sum();
        let texts = self.texts.iter();
        let texts: usize = texts.map(|text| TEXT_BYTES + text.len()).sum();
        rows + texts
    }

    /// How many frames there are on all stacks that are not folded.
    fn depth(&self) -> usize {
        self.iter().map(|stack| depth(&stack)).sum()
    }

    fn weight(&self, stack: &Stack) -> u64 {
        stack.weights.get(self.shown).copied().unwrap_or_default()
    }
}

impl Stack<'_> {
    /// About what it takes of memory where none of its texts is there yet.
    pub fn bytes(&self) -> usize {
        let frames = self.frames.iter();
        let texts = frames.flat_map(|frame| [frame.name, frame.module]);
        let texts: usize = texts.map(|text| TEXT_BYTES + text.len()).sum();
        STACK_BYTES + texts + self.frames.len() * size_of::<[u32; 2]>()
    }
}

fn is_folded(stack: &Stack) -> bool {
    let first = stack.frames.first();
    first.is_some_and(|first| first.name == PRUNED)
}

fn depth(stack: &Stack) -> usize {
    match is_folded(stack) {
        true => 0,
        false => stack.frames.len(),
    }
}

/// The same for the same stack, in whatever order stacks come. Two that share one are kept or folded together.
fn digest(stack: &Stack) -> u64 {
    let mut hasher = DefaultHasher::new();
    let labels = [stack.thread, stack.target, stack.state, stack.wait];
    (labels, &stack.frames).hash(&mut hasher);
    hasher.finish()
}
