//! What the BPF programs and the node-agent share: layouts, cookies, the histogram's scale.
//!
//! Everything here crosses the boundary between kernel and user space: `repr(C)`, fixed-width integers,
//! no padding that is not spelled out. Sizes and offsets are asserted at the end; that any bytes make such a type, and that it has
//! no padding, `zerocopy` proves where user space is compiled (feature `user`).
#![no_std]

pub mod block_io;
mod cookie;
pub mod counts;
pub mod health;
pub mod hits;
pub mod spans;
pub mod stacks;
pub mod syscalls;
pub mod tcp;

pub use cookie::{Cookie, FamilyArgument, Payload, Session};
#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How exactly it is told when a process began: /proc counts clock ticks, of which the kernel's interface has a hundred a second.
pub const TICK_NS: u64 = 10_000_000;

/// Whether a process that began at this time since boot is the one that began in the tick from `since_ns` on.
#[inline(always)]
pub const fn is_since(began_ns: u64, since_ns: u64) -> bool {
    began_ns.wrapping_sub(since_ns) < TICK_NS
}

/// Buckets of a histogram: 16 to each power of two, up to 2^42 ns.
pub const BUCKETS: usize = 624;

/// The bucket that a duration of `nanos` falls into; the last one takes whatever is longer.
///
/// A handful of compares and shifts: `leading_zeros` compiles to three times as many instructions on BPF,
/// which has none of its own.
#[inline(always)]
pub const fn bucket(nanos: u64) -> u32 {
    if nanos < 16 {
        return nanos as u32;
    }
    let mut shift = 0;
    let mut value = nanos;
    if value >= 1 << 36 {
        value >>= 32;
        shift += 32;
    }
    if value >= 1 << 20 {
        value >>= 16;
        shift += 16;
    }
    if value >= 1 << 12 {
        value >>= 8;
        shift += 8;
    }
    if value >= 1 << 8 {
        value >>= 4;
        shift += 4;
    }
    if value >= 1 << 6 {
        value >>= 2;
        shift += 2;
    }
    if value >= 1 << 5 {
        value >>= 1;
        shift += 1;
    }
    // Now 16 <= value < 32: bucket 16 * (shift + 1) + (value - 16).
    let index = (shift << 4) + value as u32;
    if index < BUCKETS as u32 {
        index
    } else {
        BUCKETS as u32 - 1
    }
}

/// What the kernel side keeps of one slot, on each CPU: all but the histogram.
///
/// The number of timed calls is the sum of the slot's [`Histogram`]: one number less to keep in step.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Default)]
pub struct Totals {
    /// Nanoseconds spent in the calls.
    pub sum_ns: u64,
    /// Payload bytes of the calls.
    pub bytes: u64,
    /// Calls at or above the slow threshold.
    pub slow: u64,
    /// Calls that were counted and not timed.
    pub untimed: u64,
    /// About how many calls were taken up, those of the operation's column families too: cheap to read often. Not counted
    /// atomically: for the overhead's estimate only.
    pub hits: u64,
    /// The longest call of an even and of an odd epoch: see [`maximum`].
    pub maxima: [u64; 2],
    /// About how many calls there were of processes that are not the target: of the kernel's functions, which all call.
    pub others: u64,
    /// By [`Group`]: calls that were taken up and have not ended, over all CPUs: a call may end on another than it began on, so one
    /// CPU's number wraps. What is taken up either ends, or is counted as untimed, or is in here: no call is in no figure.
    pub in_flight: [u64; Group::PLACES],
}

/// The calls of one slot by duration, on each CPU.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct Histogram {
    /// See [`bucket`].
    pub buckets: [u64; BUCKETS],
}

/// How [`Totals::maxima`] holds a duration: the epoch above, the duration in the lower 48 bits.
///
/// The reader advances the epoch and then reads what the one before left, while the programs write to the other
/// half. So every report interval has a maximum of its own, none is lost in between, and nothing needs clearing.
#[inline(always)]
pub const fn maximum(epoch: u32, duration_ns: u64) -> u64 {
    let duration = if duration_ns < TIME_MASK {
        duration_ns
    } else {
        TIME_MASK
    };
    ((epoch as u64) << TIME_BITS) | duration
}

/// The duration in a maximum, if it is of this epoch.
#[inline(always)]
pub const fn maximum_of(epoch: u32, maximum: u64) -> Option<u64> {
    if maximum >> TIME_BITS == (epoch as u64) & 0xffff {
        Some(maximum & TIME_MASK)
    } else {
        None
    }
}

/// Nanoseconds are kept in 48 bits where they share a word: three days.
pub const TIME_BITS: u32 = 48;

/// The bits of a time that are kept.
pub const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// The most bytes that a call is believed to carry. A size is whatever a target has where its payload's should be: one that no
/// machine has room for is none, and is lost instead of making a sum of all others worthless.
pub const MAX_PAYLOAD: u64 = 1 << 40;

/// Operations of a target: their slots are numbered by a byte.
pub const MAX_OPERATIONS: usize = 256;

/// What user space tells the programs while they run. One for each target.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct Control {
    /// Its parity selects the half of [`Totals::maxima`] that is written.
    pub epoch: u32,
    /// Numbers the slices: a call that began in one does not end in another.
    pub slice: u32,
    /// What the traps add to the duration of every call as it is seen from the programs, in nanoseconds: the loader
    /// sets what it measured on a function that does nothing, and no call is charged with it.
    pub trap_ns: u64,
    /// The slot of the first column family.
    pub first_family: u32,
    /// The process whose calls of the kernel's functions are recorded. Attachments to its own functions see no other's.
    pub process: u32,
    /// The causes whose calls are all seen: a bit for each number. Of the others it is not known whether they are under way.
    pub causes: u32,
    /// Always 0.
    pub padding: u32,
    /// Since when the process has been: a later one of its number is not meant.
    pub since_ns: u64,
    /// By operation: what one of its calls adds, in nanoseconds, to a call in which it is made.
    pub inner_ns: [u32; MAX_OPERATIONS],
    /// By operation: calls that take at least so many nanoseconds are slow.
    pub slow_thresholds_ns: [u64; MAX_OPERATIONS],
    /// By operation: which of its calls are taken up, and which are recorded.
    pub gates: [Gate; MAX_OPERATIONS],
    /// By operation: which of its arguments are texts, a bit for each, of calls whose arguments are kept.
    pub texts: [u8; MAX_OPERATIONS],
    /// By operation: not 0 where the stacks of slow calls are copied.
    pub stacks: [u8; MAX_OPERATIONS],
}

impl Control {
    /// For a process whose operations have so many slots: nothing is taken up, nothing is slow, and no stacks are copied.
    pub const fn of(process: u32, since_ns: u64, slots: u32, trap_ns: u64) -> Self {
        Self {
            epoch: 0,
            slice: 0,
            trap_ns,
            first_family: slots,
            process,
            causes: 0,
            padding: 0,
            since_ns,
            inner_ns: [0; MAX_OPERATIONS],
            slow_thresholds_ns: [u64::MAX; MAX_OPERATIONS],
            gates: [Gate(0); MAX_OPERATIONS],
            texts: [0; MAX_OPERATIONS],
            stacks: [0; MAX_OPERATIONS],
        }
    }

    /// What a call of an operation adds to one in which it is made.
    #[inline(always)]
    pub const fn inner_ns(&self, operation: u32) -> u64 {
        self.inner_ns[operation as usize & (MAX_OPERATIONS - 1)] as u64
    }

    /// What is done with the calls of an operation.
    #[inline(always)]
    pub const fn gate(&self, operation: u32) -> Gate {
        self.gates[operation as usize & (MAX_OPERATIONS - 1)]
    }
}

/// Attachments that come and go together.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// In place all of the time.
    First = 0,
    /// The same: where an operation is attached anew, that is as the other one of the two, before the old attachment goes. Its
    /// [`Gate`] says which is in charge, so that no call is missed and none is counted twice.
    Second = 1,
    /// In place for slices of time.
    Sliced = 2,
}

impl Group {
    /// How many there are.
    pub const COUNT: usize = 3;

    /// How many an attach cookie can name. Where there is a place for each, a mask is all that a number of one needs to be an index:
    /// of what is compared before, the verifier of Linux 6.1 does not always know by then.
    pub const PLACES: usize = 4;

    /// Every one.
    pub const ALL: [Self; Self::COUNT] = [Self::First, Self::Second, Self::Sliced];

    /// The other one of the two that are in place all of the time.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second | Self::Sliced => Self::First,
        }
    }

    /// Its bit in a [`Gate`].
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What the programs do with the calls of an operation: a bit for each [`Group`] whose calls are taken up at their entry (4), one for
/// each whose calls are recorded as they end (4), and which generation of its calls that is (8): those of an earlier one have been
/// accounted for already, wherever they end.
#[repr(transparent)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate(pub u32);

impl Gate {
    const RECORDED: u32 = 4;
    const GENERATION: u32 = 8;

    /// Whether calls of this group are taken up.
    #[inline(always)]
    pub const fn takes_up(self, group: u32) -> bool {
        self.0 >> group & 1 != 0
    }

    /// Whether calls of this group are recorded as they end.
    #[inline(always)]
    pub const fn records(self, group: u32) -> bool {
        self.0 >> (group + Self::RECORDED) & 1 != 0
    }

    /// Whether this group sees to the ends of what others may have seen begin: it takes up what begins, or no group does any more.
    #[inline(always)]
    pub const fn attends(self, group: u32) -> bool {
        let takes_up = self.0 & ((1 << Self::RECORDED) - 1);
        self.takes_up(group) || takes_up == 0 && self.records(group)
    }

    /// The generation.
    #[inline(always)]
    pub const fn generation(self) -> u32 {
        self.0 >> Self::GENERATION & 0xff
    }

    /// Takes up calls of this group, and records them.
    #[must_use]
    pub const fn opened(self, group: Group) -> Self {
        Self(self.0 | group.bit() | group.bit() << Self::RECORDED)
    }

    /// Takes up no more calls of this group; those that are in flight are recorded.
    #[must_use]
    pub const fn leaving(self, group: Group) -> Self {
        Self(self.0 & !group.bit())
    }

    /// The same, and they are not.
    #[must_use]
    pub const fn closed(self, group: Group) -> Self {
        Self(self.0 & !(group.bit() | group.bit() << Self::RECORDED))
    }

    /// Those that are in flight are of an earlier generation.
    #[must_use]
    pub const fn renewed(self) -> Self {
        let next = (self.generation() + 1) & 0xff;
        Self(self.0 & ((1 << Self::GENERATION) - 1) | next << Self::GENERATION)
    }
}

/// What could not be recorded, on each CPU.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Default)]
pub struct Losses {
    /// Calls whose beginning found the table of calls in flight full: in no figure.
    pub calls: u64,
    /// Calls whose payload size could not be remembered from entry to return, or is above [`MAX_PAYLOAD`]. The calls themselves
    /// are counted.
    pub sizes: u64,
}

/// Names a call in flight: its thread, the stack pointer its return will have, and the operation that it counts as.
///
/// The stack pointer tells a recursive call from its caller, so both are measured. Several operations may have one function:
/// each of them sees the same call to its end.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct CallKey {
    /// See [`CallKey::new`].
    pub owner: u64,
    /// The stack pointer after the return.
    pub stack: u64,
}

impl CallKey {
    /// That of a call of a thread (24 bits: the kernel numbers no more than four million), as an operation's (8), in a slice (32;
    /// 0 for what is always attached).
    #[inline(always)]
    pub const fn new(slice: u32, slot: u32, thread: u32, stack: u64) -> Self {
        let low = (slot & 0xff) << 24 | thread & 0xff_ffff;
        Self {
            owner: (slice as u64) << 32 | low as u64,
            stack,
        }
    }
}

/// What is remembered of a call from its entry to its return.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct CallStart {
    /// `bpf_ktime_get_ns` at entry.
    pub time_ns: u64,
    /// Bytes known at entry, or the address where they will be found at return.
    pub bytes: u64,
    /// As what it was taken up.
    pub mark: Mark,
}

/// As what a call was taken up: the slot that it counts in (16 bits), the [`Group`] (8) and the generation (8).
#[repr(transparent)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(pub u64);

impl Mark {
    /// Packs it.
    #[inline(always)]
    pub const fn new(slot: u32, group: u32, generation: u32) -> Self {
        Self(((slot & 0xffff) | (group & 0xff) << 16 | generation << 24) as u64)
    }

    /// The slot.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        self.0 as u32 & 0xffff
    }

    /// The number of the group.
    #[inline(always)]
    pub const fn group(self) -> u32 {
        self.0 as u32 >> 16 & 0xff
    }

    /// The generation.
    #[inline(always)]
    pub const fn generation(self) -> u32 {
        self.0 as u32 >> 24
    }

    /// Whether a call that was taken up so is to be recorded as it ends.
    #[inline(always)]
    pub const fn passes(self, gate: Gate) -> bool {
        gate.records(self.group() & 3) && gate.generation() == self.generation()
    }
}

/// A cell of the table of calls in flight: free while the key's owner is 0.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Cell {
    /// Whose it is.
    pub key: CallKey,
    /// What is remembered.
    pub start: CallStart,
}

/// How many cells there are: a power of two. A call whose cell is taken goes to a hash map.
pub const CELLS: u32 = 4096;

/// The cell of a call.
#[inline(always)]
pub const fn cell_index(key: &CallKey) -> u32 {
    let (low, stack) = (key.owner as u32, key.stack);
    // Threads of a process are numbered closely, their stacks lie megabytes apart, frames some words.
    (low.wrapping_mul(37) ^ low >> 24 ^ (stack >> 4) as u32 ^ (stack >> 20) as u32) & (CELLS - 1)
}

/// Names the column family of an operation.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct FamilyKey {
    /// The address of its handle in the target.
    pub handle: u64,
    /// The operation's slot.
    pub slot: u64,
}

/// What is known of a column family's handle.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct FamilySlot {
    /// The slot that its calls count in.
    pub slot: u32,
    /// The epoch in which it was last looked whether the handle is that family's.
    pub epoch: u32,
}

/// A column family of an operation, as it was first seen. Its slot is [`Control::first_family`] plus its index.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// The operation's slot.
    pub slot: u32,
    /// RocksDB's number for it.
    pub id: u32,
    /// Its name in RocksDB, NUL-padded, cut off where it is longer.
    pub name: [u8; 56],
}

/// Work that RocksDB does on its own account, or a wait that it imposes.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Default)]
pub struct Cause {
    /// How many have begun and not ended, while all of them were seen; [`Control`] says whether they are.
    pub running: u64,
    /// When the last one ended, by `bpf_ktime_get_ns`.
    pub ended_ns: u64,
}

/// The largest number of a cause; they count from 1.
pub const MAX_CAUSE: u8 = 7;

/// One slow call.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowCall {
    /// `CLOCK_MONOTONIC` at return.
    pub time_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Its payload bytes, 0 where they are not known.
    pub bytes: u64,
    /// The slot it was counted in.
    pub slot: u32,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// The causes that were under way at some time during the call: bit n for cause n.
    pub during: u32,
    /// The number of the copy of its stack; 0 where there is none.
    pub stack: u32,
    /// The thread's name, NUL-padded.
    pub thread_name: [u8; 16],
}

/// Where a field of one of the kernel's structures lies, on the kernel that runs. The loader tells the programs.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// Bytes from the beginning of the structure.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
}

/// How many arguments of a call are kept at most: those that are passed in registers.
pub const MAX_ARGUMENTS: usize = 6;

/// The arguments of a call, as they were at its entry.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arguments {
    /// In their order.
    pub values: [u64; MAX_ARGUMENTS],
    /// The slot that the call counts in.
    pub slot: u64,
}

/// How much of an argument that is a text is told, with the NUL at its end.
pub const TEXT_BYTES: usize = 48;

/// Begins a text that could not be read: its page was not in memory. No text in UTF-8 has this byte.
pub const UNREADABLE: u8 = 0xff;

/// What follows a slow call whose arguments are kept.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowArguments {
    /// The values of the arguments.
    pub values: [u64; MAX_ARGUMENTS],
    /// What those point to that are texts, as they stand at the return; NUL-padded; [`UNREADABLE`] where it
    /// cannot be read.
    pub texts: [[u8; TEXT_BYTES]; MAX_ARGUMENTS],
}

/// A slow call with its arguments.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowCallWithArguments {
    /// The call.
    pub call: SlowCall,
    /// Its arguments.
    pub arguments: SlowArguments,
}

/// A process that called exec.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// Its number in the host's pid namespace.
    pub pid: u32,
}

/// Stands for the kfunc `bpf_session_cookie` in the object: see the loader.
pub const KFUNC_SESSION_COOKIE: i32 = 0x6b63_0001;

/// Stands for the kfunc `bpf_session_is_return`.
pub const KFUNC_SESSION_IS_RETURN: i32 = 0x6b63_0002;

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(size_of::<Totals>() == 96);
    assert!(offset_of!(Totals, maxima) == 40);
    assert!(size_of::<Histogram>() == BUCKETS * 8);
    assert!(size_of::<Control>() == 40 + 18 * MAX_OPERATIONS);
    assert!(offset_of!(Control, gates) == 40 + 12 * MAX_OPERATIONS);
    assert!(size_of::<Arguments>() == 56);
    assert!(size_of::<SlowCallWithArguments>() == 56 + 48 + 6 * TEXT_BYTES);
    assert!(offset_of!(Control, trap_ns) == 8);
    assert!(size_of::<Losses>() == 16);
    assert!(size_of::<CallKey>() == 16);
    assert!(size_of::<CallStart>() == 24);
    assert!(size_of::<Cell>() == 40);
    assert!(size_of::<FamilyKey>() == 16);
    assert!(size_of::<FamilySlot>() == 8);
    assert!(size_of::<Family>() == 64);
    assert!(size_of::<Cause>() == 16);
    assert!(size_of::<SlowCall>() == 56);
    assert!(offset_of!(SlowCall, thread_name) == 40);
    assert!(size_of::<Field>() == 8);
    assert!(size_of::<Exec>() == 4);
};
