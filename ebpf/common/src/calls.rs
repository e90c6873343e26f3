//! Calls of functions, from their beginning to their end: what the programs of `calls` share with user space.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

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
    /// What timed calls did with files, where that is asked: see [`Files`].
    pub file_io: FileIo,
}

/// What calls read from files and write to them, by the kernel's own account of the threads that make them.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileIo {
    /// Calls of the kernel that read.
    pub reads: u64,
    /// What they read.
    pub read_bytes: u64,
    /// What was written.
    pub written_bytes: u64,
    /// Calls in which anything was read.
    pub readers: u64,
}

/// What is told of what calls read from files and write to them: a bit for each.
#[repr(transparent)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files(pub u8);

impl Files {
    /// What is asked for.
    pub const fn of(read: bool, written: bool) -> Self {
        Self(read as u8 | (written as u8) << 1)
    }

    /// What they read.
    #[inline(always)]
    pub const fn read(self) -> bool {
        self.0 & 1 != 0
    }

    /// What they write.
    #[inline(always)]
    pub const fn written(self) -> bool {
        self.0 & 2 != 0
    }

    /// Anything.
    #[inline(always)]
    pub const fn any(self) -> bool {
        self.0 != 0
    }
}

/// What a thread had read and written as its call began. As long as what a CPU takes from memory at a time, so that threads on several
/// do not wait for one another.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct FileIoCell {
    /// The address of the kernel's structure of the thread; 0 where there is none.
    pub owner: u64,
    /// Its account.
    pub account: FileIo,
    /// Always 0.
    pub padding: [u64; 3],
}

/// How many there are: a power of two.
pub const FILE_IO_CELLS: u32 = 512;

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
    /// By operation: what is told of what its calls read and write. Such calls are not made within one another.
    pub files: [Files; MAX_OPERATIONS],
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
            files: [Files(0); MAX_OPERATIONS],
        }
    }

    /// What a call of an operation adds to one in which it is made.
    #[inline(always)]
    pub const fn inner_ns(&self, operation: u32) -> u64 {
        self.inner_ns[operation as usize & (MAX_OPERATIONS - 1)] as u64
    }

    /// What is told of what the calls of an operation read and write.
    #[inline(always)]
    pub const fn files(&self, operation: u32) -> Files {
        self.files[operation as usize & (MAX_OPERATIONS - 1)]
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

    /// The number of the thread.
    #[inline(always)]
    pub const fn thread(&self) -> u32 {
        self.owner as u32 & 0xff_ffff
    }

    /// The operation's number.
    #[inline(always)]
    pub const fn operation(&self) -> u32 {
        self.owner as u32 >> 24
    }

    /// Whether it is of a slice, and not of what is always attached.
    #[inline(always)]
    pub const fn is_sliced(&self) -> bool {
        self.owner >> 32 != 0
    }

    /// Whether it is of a thread: no thread that probes are met by has the number 0.
    #[inline(always)]
    pub const fn is_of_a_thread(&self) -> bool {
        self.owner & 0xff_ffff != 0
    }
}

/// What is remembered of a call from its entry to its return.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct CallStart {
    /// `bpf_ktime_get_ns` at entry.
    pub time_ns: u64,
    /// Bytes known at entry, or the address where they will be found at return; of what ends elsewhere than it began, the number of the thread
    /// in which it did, and above that 1 where it has a `traceparent` ([`Begun`]); of a call that ends such as it returns, the argument by
    /// which that is known.
    pub bytes: u64,
    /// As what it was taken up.
    pub mark: Mark,
}

/// What is remembered of the beginning of what ends elsewhere: the thread (24 bits), and whether it has a `traceparent` (1).
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun(pub u64);

impl Begun {
    const HAS_PARENT: u64 = 1 << 24;

    /// In this thread.
    #[inline(always)]
    pub const fn of(thread: u32, has_parent: bool) -> Self {
        let thread = thread as u64 & (Self::HAS_PARENT - 1);
        Self(thread | if has_parent { Self::HAS_PARENT } else { 0 })
    }

    /// The number of the thread.
    #[inline(always)]
    pub const fn thread(self) -> u32 {
        (self.0 & (Self::HAS_PARENT - 1)) as u32
    }

    /// Whether it has a `traceparent`.
    #[inline(always)]
    pub const fn has_parent(self) -> bool {
        self.0 & Self::HAS_PARENT != 0
    }
}

/// As what a call was taken up: the slot that it counts in (16 bits), the [`Group`] (8) and the generation (8).
#[repr(transparent)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(pub u64);

impl Mark {
    /// The mark of a call that counts in `slot`, was attached with `group`, and began in `generation`.
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
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
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

/// The bits of all causes.
const CAUSES: u32 = (1 << (MAX_CAUSE + 1)) - 1;

/// One slow call.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlowCall {
    /// `CLOCK_MONOTONIC` at return.
    pub time_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// Its payload bytes, 0 where they are not known; of what ends elsewhere than it began, the argument that both have in common.
    pub bytes: u64,
    /// The slot it was counted in.
    pub slot: u32,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// The causes that were under way at some time during the call: bit n for cause n. Above [`MAX_CAUSE`], of what ends elsewhere than it
    /// began, the number of the thread in which it did (24 bits): [`SlowCall::began_on`].
    pub during: u32,
    /// The number of the copy of its stack; 0 where there is none.
    pub stack: u32,
    /// The thread's name, NUL-padded.
    pub thread_name: [u8; 16],
}

impl SlowCall {
    /// The causes, and the thread in which it began.
    #[inline(always)]
    pub const fn during(causes: u32, began_on: u32) -> u32 {
        causes & CAUSES | began_on << CAUSES.count_ones()
    }

    /// The number of the thread in which it began, of what ends elsewhere.
    pub const fn began_on(&self) -> u32 {
        self.during >> CAUSES.count_ones()
    }
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

layout! {
    Totals: 128, FileIo: 32, FileIoCell: 64, Control: 40 + 19 * MAX_OPERATIONS, Arguments: 56, SlowCallWithArguments: 56 + 48 + 6 * TEXT_BYTES,
    Losses: 16, CallKey: 16, CallStart: 24, Cell: 40, FamilyKey: 16, FamilySlot: 8, Family: 64, Cause: 16,
    SlowCall: 56, Totals.maxima: 40, Control.gates: 40 + 12 * MAX_OPERATIONS, Control.trap_ns: 8,
    SlowCall.thread_name: 40,
}
