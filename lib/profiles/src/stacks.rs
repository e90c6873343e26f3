//! Stacks with their weights, as an algebra.

mod lighten;
mod mode;
mod prune;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexSet;

pub use mode::{ProfileMode, SampleType};
pub use prune::{PRUNED, Pruned};

/// No weight is greater: what is added to it is lost. It is what pprof has room for, and 292 years of nanoseconds.
pub const WEIGHT_LIMIT: u64 = i64::MAX as u64;

/// One function on a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame<'a> {
    /// What people call it: demangled, and short ([`crate::names::shorten`]).
    pub name: &'a str,
    /// The file that it is in (`ckb`, `libc.so.6`), [`Frame::KERNEL`], or nothing where that is not known.
    pub module: &'a str,
}

impl<'a> Frame<'a> {
    /// The module of the kernel's functions, by the name that perf gives it.
    pub const KERNEL: &'static str = "[kernel.kallsyms]";

    /// A function of the kernel.
    pub fn kernel(name: &'a str) -> Self {
        let module = Self::KERNEL;
        Self { name, module }
    }

    /// A function of the process.
    pub fn user(name: &'a str, module: &'a str) -> Self {
        Self { name, module }
    }

    /// Whether it is a function of the kernel.
    pub fn is_kernel(&self) -> bool {
        self.module == Self::KERNEL
    }
}

/// One stack, and what was seen of it. What is not known of it is the empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stack<'a> {
    /// The functions, from the thread's entry to the one that ran or waited. User frames come before those of the kernel.
    pub frames: Vec<Frame<'a>>,
    /// The thread's name (`verify_blocks`).
    pub thread: &'a str,
    /// The process that was profiled (`default/ckb-0/ckb`).
    pub target: &'a str,
    /// What the thread did, as a person says it (`sleeping`), for dumps of threads.
    pub state: &'a str,
    /// What it waited for (`futex`, `read of 000123.sst`).
    pub wait: &'a str,
    /// How much of each sample type was seen, in their order. Missing ones are 0, and there are no more than types.
    pub weights: &'a [u64],
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct StackKey {
    /// Thread, target, state, wait: places in the table of texts.
    labels: [u32; 4],
    /// Name and module of each.
    frames: Box<[[u32; 2]]>,
}

/// Stacks by thread and target, with their weights: they merge in any order, and none of their weight is lost.
#[derive(Clone, Debug)]
pub struct Stacks {
    types: Vec<SampleType>,
    shown: usize,
    texts: IndexSet<Arc<str>>,
    rows: HashMap<StackKey, Box<[u64]>>,
}

/// Two profiles of different things do not merge.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a profile of {one} and one of {other} cannot be put together: take two of the same mode")]
pub struct Mismatch {
    one: String,
    other: String,
}

impl Stacks {
    /// No stacks yet, of a mode.
    pub fn of(mode: ProfileMode) -> Self {
        Self::new(mode.sample_types(), mode.shown())
    }

    /// No stacks yet. `shown` is the place of the sample type that is shown where nobody asks for another.
    pub fn new(types: Vec<SampleType>, shown: usize) -> Self {
        let shown = shown.min(types.len().saturating_sub(1));
        Self {
            types,
            shown,
            texts: IndexSet::new(),
            rows: HashMap::new(),
        }
    }

    /// What the weights are, in their order.
    pub fn types(&self) -> &[SampleType] {
        &self.types
    }

    /// The place of the type that is shown where nobody asks for another.
    pub fn shown(&self) -> usize {
        self.shown
    }

    /// The mode, unless the profile is somebody else's.
    pub fn mode(&self) -> Option<ProfileMode> {
        let mut all = ProfileMode::ALL.iter().copied();
        all.find(|mode| mode.sample_types() == self.types)
    }

    /// How many different stacks there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing was seen.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds what was seen of a stack. A stack that weighs nothing is none.
    pub fn add(&mut self, stack: &Stack) {
        let weights = &stack.weights[..stack.weights.len().min(self.types.len())];
        if weights.iter().all(|weight| *weight == 0) {
            return;
        }
        let labels = [stack.thread, stack.target, stack.state, stack.wait];
        let row = StackKey {
            labels: labels.map(|text| self.text(text)),
            frames: (stack.frames.iter())
                .map(|frame| [self.text(frame.name), self.text(frame.module)])
                .collect(),
        };
        self.add_row(row, weights);
    }

    /// Adds all of another profile.
    ///
    /// # Errors
    ///
    /// When it is of something else.
    pub fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        if self.types != other.types {
            return Err(Mismatch {
                one: mode::list(&self.types),
                other: mode::list(&other.types),
            });
        }
        let here: Vec<u32> = other.texts.iter().map(|text| self.text(text)).collect();
        for (row, weights) in &other.rows {
            let row = StackKey {
                labels: row.labels.map(|text| here[text as usize]),
                frames: (row.frames.iter())
                    .map(|frame| frame.map(|text| here[text as usize]))
                    .collect(),
            };
            self.add_row(row, weights);
        }
        Ok(())
    }

    /// The stacks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = Stack<'_>> {
        self.rows.iter().map(|(row, weights)| {
            let [thread, target, state, wait] = row.labels.map(|text| self.at(text));
            Stack {
                frames: (row.frames.iter())
                    .map(|frame| frame.map(|text| self.at(text)))
                    .map(|[name, module]| Frame { name, module })
                    .collect(),
                thread,
                target,
                state,
                wait,
                weights,
            }
        })
    }

    /// The stacks, the heaviest of the shown type first. The order depends on nothing but what they are.
    pub fn sorted(&self) -> Vec<Stack<'_>> {
        let mut stacks: Vec<Stack> = self.iter().collect();
        stacks.sort_unstable_by(|one, other| {
            let heavier = other
                .weights
                .get(self.shown)
                .cmp(&one.weights.get(self.shown));
            heavier.then_with(|| one.cmp(other))
        });
        stacks
    }

    /// How much there is of a sample type in all.
    pub fn total(&self, place: usize) -> u64 {
        let weights = self.rows.values().filter_map(|weights| weights.get(place));
        weights.fold(0, |sum, weight| plus(sum, *weight))
    }

    /// The same with each stack made another: those that become equal are one.
    pub fn map(&self, mut change: impl FnMut(&mut Stack)) -> Self {
        let mut changed = Self::new(self.types.clone(), self.shown);
        for mut stack in self.iter() {
            change(&mut stack);
            changed.add(&stack);
        }
        changed
    }

    /// Those stacks of which it holds.
    pub fn filter(&self, mut holds: impl FnMut(&Stack) -> bool) -> Self {
        let mut kept = Self::new(self.types.clone(), self.shown);
        for stack in self.iter().filter(|stack| holds(stack)) {
            kept.add(&stack);
        }
        kept
    }

    /// The same with functions called otherwise. Each name is asked for once.
    pub fn renamed(&self, mut rename: impl FnMut(&str) -> String) -> Self {
        let mut names: HashMap<&str, String> = HashMap::new();
        for name in self
            .iter()
            .flat_map(|stack| stack.frames)
            .map(|frame| frame.name)
        {
            names.entry(name).or_insert_with(|| rename(name));
        }
        let mut renamed = Self::new(self.types.clone(), self.shown);
        for mut stack in self.iter() {
            for frame in &mut stack.frames {
                frame.name = names.get(frame.name).map_or(frame.name, String::as_str);
            }
            renamed.add(&stack);
        }
        renamed
    }

    fn add_row(&mut self, row: StackKey, weights: &[u64]) {
        let empty = || vec![0; self.types.len()].into_boxed_slice();
        let sums = self.rows.entry(row).or_insert_with(empty);
        for (sum, weight) in sums.iter_mut().zip(weights) {
            *sum = plus(*sum, *weight);
        }
    }

    fn text(&mut self, text: &str) -> u32 {
        let place = match self.texts.get_index_of(text) {
            Some(place) => place,
            None => self.texts.insert_full(text.into()).0,
        };
        // Four thousand million texts are more than memory holds.
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    fn at(&self, place: u32) -> &str {
        self.texts.get_index(place as usize).map_or("", |text| text)
    }
}

/// In which order they came, and how they are kept, does not matter.
impl PartialEq for Stacks {
    fn eq(&self, other: &Self) -> bool {
        self.types == other.types && self.shown == other.shown && self.sorted() == other.sorted()
    }
}

fn plus(one: u64, other: u64) -> u64 {
    one.saturating_add(other).min(WEIGHT_LIMIT)
}

/// When it was that a profile was taken. All zero: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// When it began, in nanoseconds since 1970.
    pub start_ns: u64,
    /// How long it lasted.
    pub duration_ns: u64,
}

impl Window {
    /// From the beginning of the first to the end of the last.
    pub fn spanning(self, other: Self) -> Self {
        if self == Self::default() || other == Self::default() {
            return if self == Self::default() { other } else { self };
        }
        let end = |window: Self| window.start_ns.saturating_add(window.duration_ns);
        let start_ns = self.start_ns.min(other.start_ns);
        Self {
            start_ns,
            duration_ns: end(self).max(end(other)) - start_ns,
        }
    }
}

/// Stacks, and how they were seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What was seen.
    pub stacks: Stacks,
    /// When the stacks were taken.
    pub window: Window,
    /// How much of the shown type lies between two samples: 10,101,010 at 99 samples a second. 0: not known.
    pub period: u64,
}

impl Profile {
    /// Nothing yet.
    pub fn of(mode: ProfileMode) -> Self {
        Self {
            stacks: Stacks::of(mode),
            window: Window::default(),
            period: 0,
        }
    }

    /// Adds all of another one. Where periods differ, the longest is told.
    ///
    /// # Errors
    ///
    /// When it is of something else.
    pub fn merge(&mut self, other: &Self) -> Result<(), Mismatch> {
        self.stacks.merge(&other.stacks)?;
        self.window = self.window.spanning(other.window);
        self.period = self.period.max(other.period);
        Ok(())
    }
}
