//! What was seen, by thread, stack and what it waited for; and how that is told.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    sync::Arc,
    time::Duration,
};

use super::{Touched, allocator, room::StackRoom, wait::FROZEN};
use crate::{observe::FunctionName, text};

/// So many different stacks are told apart, with so many frames in all, and as many as there is room for: what comes on top of them is
/// counted by thread.
const STACK_LIMIT: usize = 1 << 16;
const FRAMES_LIMIT: usize = 1 << 20;

/// And so many names of threads then: a thread may change its own as often as it likes.
const THREAD_LIMIT: usize = 1 << 10;

/// Threads whose names came on top of these.
const OTHERS: [u8; 16] = *b"[others]\0\0\0\0\0\0\0\0";

/// How the kernel begins to handle the tick, or a page fault: on x86-64, and then on arm64, where it tells nobody of page faults. What ran
/// before is below.
const INTERRUPTS: [&str; 7] = [
    "asm_exc_page_fault",
    "asm_sysvec_apic_timer_interrupt",
    "asm_sysvec_hyperv_stimer0",
    "asm_common_interrupt",
    "el0t_64_irq",
    "el0t_32_irq",
    "el1h_64_irq",
];

/// Stands for the frames that are missing.
pub const TRUNCATED: &str = "[truncated]";

/// What makes samples the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) thread: [u8; 16],
    /// The numbers of functions, from the innermost on.
    pub(super) user: Arc<[u32]>,
    pub(super) complete: bool,
    /// Whether one of them is a guess.
    pub(super) guessed: bool,
    pub(super) kernel: Arc<[u64]>,
    pub(super) wait: Option<Arc<str>>,
    /// Whether it frees, where it is sampled who allocates.
    pub(super) frees: bool,
}

impl Key {
    /// How many frames it has.
    pub(super) fn frames(&self) -> usize {
        self.user.len() + self.kernel.len()
    }

    /// A thread of which nothing else is known.
    pub(super) fn of_thread(thread: [u8; 16]) -> Self {
        Self {
            thread,
            user: Arc::from([]),
            complete: false,
            guessed: false,
            kernel: Arc::from([]),
            wait: None,
            frees: false,
        }
    }
}

/// Whose code a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeOrigin {
    /// The process's.
    User,
    /// The kernel's.
    Kernel,
    /// Nobody's: it says what is waited for, or that frames are missing.
    Said,
}

/// A function in a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// What it is called; its file's name in brackets, where it has none.
    pub name: Arc<str>,
    /// The base name of the file that it is in; empty where there is none.
    pub file: Arc<str>,
    /// Whose it is.
    pub place: CodeOrigin,
}

impl Call {
    pub(super) fn said(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            file: Arc::from(""),
            place: CodeOrigin::Said,
        }
    }

    pub(super) fn user(name: &FunctionName) -> Self {
        let unnamed = || match &*name.file {
            "" => Arc::from("[unknown]"),
            file => Arc::from(format!("[{file}]")),
        };
        Self {
            name: name.function.clone().unwrap_or_else(unnamed),
            file: Arc::clone(&name.file),
            place: CodeOrigin::User,
        }
    }

    fn kernel(name: &Arc<str>) -> Self {
        Self {
            name: Arc::clone(name),
            file: Arc::from(""),
            place: CodeOrigin::Kernel,
        }
    }
}

/// What some threads did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Their name.
    pub thread: String,
    /// The calls, from the outermost on.
    pub calls: Vec<Call>,
    /// How often they were seen so.
    pub count: u64,
    /// How much time that stands for.
    pub time: Duration,
    /// How much memory, where that is sampled, in bytes: touched, or allocated.
    pub memory: u64,
    /// How much was freed, where it is sampled who allocates, in bytes.
    pub freed: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// In order of thread and calls.
    pub samples: Vec<Sample>,
    /// How many times a second it was looked.
    pub frequency: f64,
    /// For how long.
    pub took: Duration,
    /// Stacks that were taken.
    pub taken: u64,
    /// Of these, those that reach to where the thread began.
    pub complete: u64,
    /// Of them, those in which a caller was guessed.
    pub guessed: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Those that were left out by chance, since more came than were read: others stand for them.
    pub left_out: u64,
    /// Whether they were taken as any timer expired, for want of a tick.
    pub by_any_timer: bool,
    /// How the time on a CPU was told, where that is sampled.
    pub on_cpu: Option<OnCpu>,
    /// What was touched in all, where that is sampled.
    pub touched: Option<Touched>,
    /// What was allocated in all, where that is sampled.
    pub allocated: Option<Allocated>,
}

/// What the allocator itself counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// Bytes that were allocated.
    pub bytes: u64,
    /// Bytes that were freed; None: that is not known. Of a process that says itself what it allocates, it is known of those that were said while it
    /// was looked, so not where that was in slices; nor where it does not say what it frees.
    pub freed: Option<u64>,
    /// How many samples came in step with the allocator: to the byte as the one before on their thread did, with the same stack.
    pub in_step: u64,
    /// The process has said so itself.
    pub said: bool,
}

/// Time on a CPU, told twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnCpu {
    /// By the process's own CPU clock, which its samples are made to come to.
    pub clock: Duration,
    /// What they stood for by themselves: each for the time between two looks at a CPU.
    pub sampled: Duration,
}

impl OnCpu {
    /// What the samples stood for by themselves, of what the clock says, in percent. Where the process ran for no time, nothing is amiss.
    pub fn sampled_percent(&self) -> f64 {
        match self.clock.is_zero() {
            true => 100.0,
            false => 100.0 * self.sampled.as_secs_f64() / self.clock.as_secs_f64(),
        }
    }

    /// What a sample that stands for so many nanoseconds stands for by the clock.
    pub(super) fn by_clock(&self, each: f64) -> f64 {
        match self.sampled.is_zero() {
            true => each,
            false => each * self.clock.as_secs_f64() / self.sampled.as_secs_f64(),
        }
    }
}

impl Profile {
    /// How many of the stacks reach to where the thread began, in percent.
    pub fn complete_percent(&self) -> f64 {
        match self.taken {
            0 => 100.0,
            taken => 100.0 * self.complete as f64 / taken as f64,
        }
    }
}

/// What the threads of a process do now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Threads {
    /// Of each, in the order of their numbers.
    pub states: Vec<State>,
    /// How many there were besides: more than are told.
    pub left_out: u64,
}

/// What a thread does now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The number of the thread.
    pub thread: u32,
    /// The name of the thread.
    pub name: String,
    /// Its state, as a word.
    pub state: &'static str,
    /// The time since it came to a CPU the last time; None where the kernel does not say, or it runs.
    pub since: Option<Duration>,
    /// What it waits for.
    pub wait: Option<Arc<str>>,
    /// The calls, from the innermost on.
    pub calls: Vec<Call>,
}

/// A thread as it was seen.
pub(super) struct Seen {
    pub(super) key: Key,
    pub(super) moved: bool,
    pub(super) is_running: bool,
    pub(super) task_state: u32,
    pub(super) since: Option<u64>,
}

impl Seen {
    pub(super) fn state(
        self,
        thread: u32,
        functions: &[FunctionName],
        kernel: &HashMap<u64, Arc<str>>,
    ) -> State {
        let mut calls = calls(&self.key, functions, kernel, false);
        calls.retain(|call| Some(&call.name) != self.key.wait.as_ref());
        calls.reverse();
        State {
            thread,
            name: text::of_padded(&self.key.thread),
            state: match (self.is_running, self.task_state) {
                (true, _) => "running",
                (false, 0) => "runnable",
                _ if self.key.wait.as_deref() == Some(FROZEN) => "frozen",
                (false, state) if state & 1 != 0 => "sleeping",
                (false, state) if state & 2 != 0 => "uninterruptible",
                (false, state) if state & (4 | 8) != 0 => "stopped",
                _ => "other",
            },
            since: self
                .since
                .filter(|_| !self.is_running)
                .map(Duration::from_nanos),
            wait: self.key.wait.clone(),
            calls: if self.is_running { Vec::new() } else { calls },
        }
    }
}

/// What a unit of what was counted stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Each {
    /// So much time.
    Nanoseconds(f64),
    /// So much memory.
    Bytes(f64),
    /// So much memory that was allocated, or freed.
    Allocated {
        /// Of what was allocated, and of what was freed.
        bytes: [f64; 2],
        /// Whether the process says so itself.
        said: bool,
    },
}

/// What was seen so far.
pub(super) struct Gathered {
    /// How often, and how much of whatever is counted.
    seen: HashMap<Key, (u64, u64)>,
    /// Of all stacks together.
    frames: usize,
    room: StackRoom,
    pub(super) taken: u64,
    pub(super) complete: u64,
    pub(super) guessed: u64,
}

impl Gathered {
    /// Nothing so far, and room for this.
    pub(super) fn within(room: StackRoom) -> Self {
        Self {
            seen: HashMap::new(),
            frames: 0,
            room,
            taken: 0,
            complete: 0,
            guessed: 0,
        }
    }

    pub(super) fn add(&mut self, mut key: Key, weight: u64) {
        self.taken += 1;
        self.complete += u64::from(key.complete);
        self.guessed += u64::from(key.guessed);
        if !self.seen.contains_key(&key) {
            let frames = key.frames();
            let is_full = self.seen.len() >= STACK_LIMIT || self.frames + frames > FRAMES_LIMIT;
            if is_full || !self.room.take(frames) {
                let frees = key.frees;
                key = self.by_thread(key.thread);
                key.frees = frees;
            } else {
                self.frames += frames;
            }
        }
        let (count, sum) = self.seen.entry(key).or_default();
        *count += 1;
        // A process that says by itself what it allocates may say anything.
        *sum = sum.saturating_add(weight);
    }

    /// What stands for stacks that there is no room for.
    fn by_thread(&self, thread: [u8; 16]) -> Key {
        let key = Key::of_thread(thread);
        if self.seen.len() >= STACK_LIMIT + THREAD_LIMIT && !self.seen.contains_key(&key) {
            return Key::of_thread(OTHERS);
        }
        key
    }

    /// All that was counted.
    pub(super) fn sum(&self) -> u64 {
        let sums = self.seen.values().map(|(_, sum)| *sum);
        sums.fold(0, u64::saturating_add)
    }

    /// The same of what was allocated, and of what was freed.
    pub(super) fn sums(&self) -> [u64; 2] {
        let mut sums = [0_u64; 2];
        for (key, (_, sum)) in &self.seen {
            let side = &mut sums[usize::from(key.frees)];
            *side = side.saturating_add(*sum);
        }
        sums
    }

    pub(super) fn kernel_addresses(&self) -> Vec<u64> {
        let keys = self.seen.keys();
        let mut addresses: Vec<u64> = keys.flat_map(|key| key.kernel.iter().copied()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    /// All of it, where each unit of what was counted stands for so many nanoseconds, or bytes of memory.
    pub(super) fn samples(
        &self,
        functions: &[FunctionName],
        kernel: &HashMap<u64, Arc<str>>,
        is_running: bool,
        each: Each,
    ) -> Vec<Sample> {
        let mut samples: BTreeMap<(String, Vec<Call>), (u64, [u64; 2])> = BTreeMap::new();
        for (key, (count, sum)) in &self.seen {
            let thread = text::of_padded(&key.thread);
            let mut calls = calls(key, functions, kernel, is_running);
            if let Each::Allocated { said, .. } = each {
                allocator::leave_callers(&mut calls, said);
            }
            let (counts, sums) = samples.entry((thread, calls)).or_default();
            *counts += count;
            sums[usize::from(key.frees)] += sum;
        }
        samples
            .into_iter()
            .map(|((thread, calls), (count, [sum, freed]))| {
                let times = |sum: u64, each: f64| (sum as f64 * each) as u64;
                let (time, memory, freed) = match each {
                    Each::Nanoseconds(each) => (times(sum, each), 0, 0),
                    Each::Bytes(each) => (0, times(sum, each), 0),
                    Each::Allocated {
                        bytes: [each, of_freed],
                        ..
                    } => (0, times(sum, each), times(freed, of_freed)),
                };
                Sample {
                    thread,
                    calls,
                    count,
                    time: Duration::from_nanos(time),
                    memory,
                    freed,
                }
            })
            .collect()
    }
}

/// From the outermost on. `is_running`: by a tick, whose own frames are no matter.
fn calls(
    key: &Key,
    functions: &[FunctionName],
    kernel: &HashMap<u64, Arc<str>>,
    is_running: bool,
) -> Vec<Call> {
    let mut calls = Vec::new();
    if !key.complete {
        calls.push(Call::said(TRUNCATED));
    }
    let user = key.user.iter().rev();
    let user = user.filter_map(|number| functions.get(*number as usize));
    calls.extend(user.map(Call::user));
    let names: Vec<&Arc<str>> = key
        .kernel
        .iter()
        .filter_map(|address| kernel.get(address))
        .collect();
    let of_tick = match is_running {
        true => names
            .iter()
            .position(|name| INTERRUPTS.contains(&&***name))
            .map_or(names.len(), |at| at + 1),
        false => 0,
    };
    calls.extend(names[of_tick..].iter().rev().map(|name| Call::kernel(name)));
    calls.extend(key.wait.as_deref().map(Call::said));
    calls
}

/// One line for each sample, as flame graphs are drawn of: thread and calls, with `;` between, and then how much.
pub fn folded(samples: &[Sample], weight: impl Fn(&Sample) -> u64) -> String {
    let plain = |name: &str| name.replace(';', ":").replace('\n', " ");
    let mut lines = String::new();
    for sample in samples {
        lines.push_str(&plain(&sample.thread));
        for call in &sample.calls {
            lines.push(';');
            lines.push_str(&plain(&call.name));
            if call.place == CodeOrigin::Kernel {
                lines.push_str("_[k]");
            }
        }
        // Writing to a string cannot fail.
        let _ = writeln!(lines, " {}", weight(sample));
    }
    lines
}

#[cfg(test)]
mod tests;
