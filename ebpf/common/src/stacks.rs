//! What the program `stacks` and its loader share.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A page: copies begin at one, and a page that is not there ends them.
pub const PAGE: usize = 4096;

/// Pages that are copied of a stack at most. The deepest of CKB's that was seen needs nine.
pub const STACK_PAGES: usize = 12;

/// Frames that are taken of the kernel's stack.
pub const KERNEL_FRAMES: usize = 64;

/// Return addresses that are told which the kernel has replaced: it has them return to itself, to see functions end.
pub const REPLACED: usize = 16;

/// Slots for the stacks of slow calls of a process: a power of two.
pub const SLOW_SLOTS: u32 = 64;

/// Pages of a [`Slot`].
pub const SLOT_PAGES: u32 = 1 + STACK_PAGES as u32;

/// Addresses of the kernel that are given names at a time.
pub const NAMES: usize = 32;

/// Functions of timers that are told apart while the tick's is looked for.
pub const TIMERS: u32 = 64;

/// A slot is nobody's.
pub const FREE: u32 = 0;
/// A program fills it.
pub const FILLING: u32 = 1;
/// It is to be read, wiped and freed.
pub const FILLED: u32 = 2;
/// It was read and wiped, and is not given out again yet: more copies would cost more than the budget pays.
pub const HELD: u32 = 3;

/// It is described, and its stack is to be copied by whoever reads.
pub const ASKED: u32 = 4;
/// Whoever reads has copied it, and it is to be seen whether the thread stood still meanwhile.
pub const COPIED: u32 = 5;

/// The thread was on a CPU.
pub const ON_CPU: u32 = 1;
/// It ran while its stack was copied, and not in the kernel alone: the copy is of no moment.
pub const MOVED: u32 = 2;
/// It has not run since it was looked at the last time: only who it is and its state are told, the rest is as it was.
pub const UNCHANGED: u32 = 4;
/// It belongs to the kernel, and has no stack of the process's.
pub const NO_USER: u32 = 8;
/// The page that its stack begins in was not there: of that one nothing was copied.
pub const BEGINS_LATER: u32 = 16;

/// What it stands for was freed, and not allocated.
pub const FREED: u32 = 32;

/// Where jemalloc is looked at, and what is known of it: version 5.3.
pub mod allocations {
    /// It stops to look, having counted what made it stop: `te_event_trigger`, whose second argument begins with whether that was
    /// allocated, and where it counts that, where it stopped the last time, and where it was to stop.
    pub const STOPS: u32 = 0;
    /// The third argument is allocated: `large_palloc`.
    pub const ALLOCATES: u32 = 1;
    /// Something is grown, or shrunk, to the fourth argument: `large_ralloc`.
    pub const GROWS: u32 = 2;
    /// The extent that is the second argument is freed: `large_dalloc`.
    pub const FREES: u32 = 3;
    /// The process says by itself that it has allocated: the probe `otel_memory:alloc`, by which it tells where, and for how many bytes that
    /// stands.
    pub const SAYS_ALLOCATED: u32 = 4;
    /// And that it frees what it has said that of: `otel_memory:free`, by which it tells where that is.
    pub const SAYS_FREED: u32 = 5;

    /// Of so many that it has said it has allocated it is remembered what they stand for: as it is freed it does not say that again.
    pub const REMEMBERED: u32 = 1 << 13;

    /// Where an extent has its size.
    pub const EXTENT_SIZE: u64 = 16;

    /// Threads keep no more than this for themselves, at a time: what is larger is seen each time.
    pub const TOLD: u64 = 32 << 10;

    /// Nothing is larger, but what is taken for something else.
    pub const MOST: u64 = 1 << 46;

    /// It has its own size, and stands for nothing else.
    pub const TOLD_ALONE: u64 = u64::MAX;

    /// A sample stands for so many bytes, times [`Order::period_ns`](super::Order::period_ns), at the least.
    pub const UNIT: u64 = super::PAGE as u64;

    /// What an extent of this size, with a number in the bits of a page, is to who asked for it. It may have one page more, by which
    /// jemalloc shifts where it begins, and then it is no class of sizes: of these there are four from each power of two to the next.
    pub const fn usable(extent: u64) -> u64 {
        let size = extent & !(super::PAGE as u64 - 1);
        let step = match size.checked_ilog2() {
            Some(log) if log >= 2 => 1 << (log - 2),
            _ => 1,
        };
        if size & (step - 1) == 0 {
            size
        } else {
            size - super::PAGE as u64
        }
    }
}

/// Bits of the CPU's word for a page fault: the page was there, and it was to be written.
pub const FAULT_PRESENT: u64 = 1;
pub const FAULT_WRITE: u64 = 2;

/// What a page fault may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A page that was not there is touched.
    Touch,
    /// A page that was there is written: it is copied if it is the process's own, and else only made writable again.
    Write,
    /// A page that was there must not be touched so: nothing is brought in.
    Neither,
}

/// What a page fault is by the CPU's word for it.
#[inline(always)]
pub const fn fault(error: u64) -> Fault {
    match error & (FAULT_PRESENT | FAULT_WRITE) {
        FAULT_PRESENT => Fault::Neither,
        both if both & FAULT_PRESENT != 0 => Fault::Write,
        _ => Fault::Touch,
    }
}

/// No timer's function is known yet: those that expire are noted.
pub const LEARN: u64 = 0;
/// Any timer serves as a tick.
pub const ANY: u64 = u64::MAX;

/// What the programs are to do.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Whose threads are sampled, in the host's pid namespace.
    pub process: u32,
    /// How many slots there are, less one: a power of two, less one.
    pub mask: u32,
    /// Time between two samples of a CPU; of page faults, of how many one is a sample; of allocations, see [`allocations::UNIT`].
    pub period_ns: u64,
    /// The function of the timer that is the tick, [`LEARN`] or [`ANY`].
    pub tick: u64,
    /// How long the kernel makes a tick.
    pub tick_ns: u64,
    /// Not 0: a thread that has not run since is not looked at again.
    pub skip_unchanged: u64,
    /// Since when the process has been: a later one of its number is not sampled. See [`is_since`](crate::is_since).
    pub since_ns: u64,
    /// The number of the slice of time in which it is looked, where it is not all of the time.
    pub slice: u64,
}

/// What a CPU has seen.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace {
    /// What its ticks have earned since the last sample, which takes a period of it.
    pub credit_ns: u64,
    /// When the last tick was.
    pub ticked_ns: u64,
    /// What its ticks have earned in all: for how long it ticked, without the time in which it was idle.
    pub ticking_ns: u64,
    /// How often it was looked at who runs meanwhile.
    pub taken: u64,
    /// How often that was a thread of the process; or how many pages it touched that were not there.
    pub met: u64,
    /// How many pages it wrote that were there, and not to be written.
    pub written: u64,
    /// Of these, those for which there was no slot.
    pub lost: u64,
    /// What those it met took, in nanoseconds: at the process's expense.
    pub spent_ns: u64,
    /// How many were no samples since there was little room: others stand for them, see [`by_room`].
    pub left_out: u64,
}

impl Pace {
    /// The CPU has ticked: whether it is to be looked at who runs.
    ///
    /// Ticks earn samples, not the time that has passed: an idle CPU does not tick, and if that time counted, the first tick of
    /// whatever runs next would always be a sample. So each tick is one with the same chance, wherever it comes. The first of a CPU finds
    /// a part of a period there already, by chance, or few ticks would be too few samples.
    #[inline(always)]
    pub fn ticks(&mut self, now_ns: u64, order: &Order, random: impl FnOnce() -> u32) -> bool {
        let gap = now_ns.saturating_sub(self.ticked_ns);
        if self.ticked_ns == 0 {
            self.credit_ns = (u64::from(random()) * order.period_ns) >> 32;
        }
        self.ticked_ns = now_ns;
        // Other timers come between ticks.
        let earned = if order.tick == ANY && gap < order.tick_ns {
            gap
        } else {
            order.tick_ns
        };
        self.ticking_ns += earned;
        self.credit_ns += earned;
        if self.credit_ns < order.period_ns {
            return false;
        }
        self.credit_ns -= order.period_ns;
        // A kernel that ticks less often than is asked owes nothing for that.
        if self.credit_ns > order.period_ns {
            self.credit_ns = order.period_ns;
        }
        self.taken += 1;
        true
    }
}

/// Parts of the slots, each of which is looked at to see how full they are.
pub const PARTS: u32 = 8;

/// How many samples one is to stand for, by how many of [`PARTS`] of the slots are not free: those that would come are taken by chance, one
/// of so many, before there is no room for any.
///
/// Whoever reads may come late, and does where the target leaves it no CPU: then what has no slot would be what came in a burst's end, and
/// whoever worked at its beginning would be told with it. What is taken by chance stands for what was not, whoever it was.
/// So 256 slots hold some 4,000 samples.
#[inline(always)]
pub const fn by_room(filled: u32) -> u32 {
    1 << filled.saturating_sub(1)
}

/// A thread at a moment.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// [`FREE`], [`FILLING`] or another.
    pub state: u32,
    /// The process.
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// [`ON_CPU`] and the others.
    pub flags: u32,
    /// Its instruction in user space.
    pub ip: u64,
    /// Its stack pointer there.
    pub sp: u64,
    /// Its frame pointer there.
    pub bp: u64,
    /// The register there that calls leave their return address in; 0 on a machine that has none.
    pub lr: u64,
    /// The system call that it is in; negative where it came into the kernel otherwise.
    pub call: i64,
    /// The first argument of that.
    pub argument: u64,
    /// Of a page fault that is a [`Fault::Write`], the address; else 0.
    pub written: u64,
    /// Of what is allocated or freed, how many bytes it stands for. `written` is then how far it went beyond where jemalloc was to stop,
    /// or [`allocations::TOLD_ALONE`].
    pub bytes: u64,
    /// How often it has stopped running since it began.
    pub switches: u64,
    /// When it came to a CPU the last time, on the scheduler's clock; 0 where the kernel does not say.
    pub arrived_ns: u64,
    /// The same of whoever reads: all but now.
    pub reader_arrived_ns: u64,
    /// The kernel's word for its state.
    pub task_state: u32,
    /// Pages that were copied, with the first one where that is missing; where it is [`ASKED`], those that are to be.
    pub pages: u32,
    /// Frames of the kernel's stack.
    pub kernel_frames: u32,
    /// How many it stands for, of those that are sampled, by [`by_room`]; of page faults times as many as one is a sample of. Of a slow
    /// call, the number of its copy.
    pub stands_for: u32,
    /// Its name, with zeros after it.
    pub name: [u8; 16],
    /// Addresses in the kernel, from the innermost on.
    pub kernel: [u64; KERNEL_FRAMES],
    /// The addresses that were replaced on its stack, from the innermost on; zeros among them are none.
    pub replaced: [u64; REPLACED],
}

/// A thread at a moment, and a copy of its stack: from the page on that its stack pointer is in.
#[repr(C)]
pub struct Slot {
    /// What is known of the thread.
    pub head: Head,
    /// Fills up to a page.
    pub padding: [u8; PAGE - size_of::<Head>()],
    /// The copy.
    pub stack: [[u8; PAGE]; STACK_PAGES],
}

/// How many pages are to be copied of a stack, by the stack pointer and the address of its thread's control block.
///
/// libc has the control block at the top of what it maps for a thread's stack. Where it lies elsewhere, no stack reaches over it
/// either; and where it is below the stack pointer, or not known (0), it tells nothing.
pub const fn pages_between(sp: u64, control_block: u64) -> u32 {
    let all = STACK_PAGES as u32;
    if control_block < sp {
        return all;
    }
    let pages = (control_block - (sp & !(PAGE as u64 - 1))).div_ceil(PAGE as u64);
    if pages < all as u64 {
        pages as u32
    } else {
        all
    }
}

layout! {
    Order: 56, Pace: 72, Head: 776, Slot: PAGE * (1 + STACK_PAGES), Head.replaced: 648, Head.ip: 16,
    Head.task_state: 104, Head.kernel: 136, Slot.stack: PAGE,
}

const _: () = assert!(SLOW_SLOTS.is_power_of_two());

// Classes of sizes are themselves; what has a page more is not.
const _: () = {
    assert!(allocations::usable(0xa000 | 5) == 0xa000);
    assert!(allocations::usable(0xa000 + 0x1000) == 0xa000);
    assert!(allocations::usable(0x10_0000) == 0x10_0000);
    assert!(allocations::usable(0x10_1000 | 0xfff) == 0x10_0000);
    assert!(allocations::usable(0x1c_1000) == 0x1c_0000);
};
