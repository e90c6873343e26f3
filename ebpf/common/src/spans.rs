//! What is shared about spans: what one thread does between the beginning of a database transaction and its commit, as one thing.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Operations that a span consists of, at most: the slots of sites are numbered below this.
pub const OPERATIONS: usize = 16;

/// What calls of a span are told apart by, at most: first the slots of its operations, then column families of them as they are met.
pub const PARTS: usize = 64;

/// Bytes of what is put under the name of a span.
pub const VALUE_BYTES: usize = 32;

/// What a site's calls are to a span.
pub mod role {
    /// They are counted and timed, and no more.
    pub const TIMED: u8 = 0;
    /// A span begins.
    pub const BEGIN: u8 = 1;
    /// The transaction is gone: a span that is still there came to nothing.
    pub const DROP: u8 = 2;
    /// A span ends as it returns, unless it failed.
    pub const COMMIT: u8 = 3;
    /// They may name the span: by their key, where it is of eight bytes and in the family that has the names.
    pub const PUT: u8 = 4;
    /// They may take an earlier name back, likewise.
    pub const DELETE: u8 = 5;
    /// They are a phase of the span: what the thread uses meanwhile is told by itself.
    pub const PHASE: u8 = 6;
}

/// What a column family is to spans.
pub mod family {
    /// Nothing in particular.
    pub const OTHER: u32 = 0;
    /// Its keys of eight bytes are names of spans.
    pub const NAMES: u32 = 1;
    /// What is put into it are the units that a span consists of.
    pub const UNITS: u32 = 2;
}

/// How a span ended; the number of its [`Row`].
pub mod end {
    /// Committed, with a name.
    pub const NAMED: usize = 0;
    /// Committed, and earlier names were taken back.
    pub const REPLACED: usize = 1;
    /// Committed without a name.
    pub const NAMELESS: usize = 2;
    /// Not committed.
    pub const ABANDONED: usize = 3;
    /// Its end was not seen: counted, and nothing else.
    pub const UNSEEN: usize = 4;
    /// No span: calls of the thread between two of them, and within transactions that put nothing.
    pub const BETWEEN: usize = 5;
    /// How many there are.
    pub const COUNT: usize = 6;
}

/// What user space tells the programs while they run.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default)]
pub struct SpanControl {
    /// Not 0 while anything is counted.
    pub open: u32,
    /// Another one each time that counting begins: what was under way before has no end.
    pub generation: u32,
    /// What the traps add to every call, in nanoseconds.
    pub trap_ns: u64,
    /// Spans that take at least so many nanoseconds are told one by one.
    pub threshold_ns: u64,
    /// Its parity selects the half of [`SpanRow::maxima`] that is written.
    pub epoch: u32,
    /// Not 0 where column families are told apart.
    pub by_family: u32,
    /// The stack of a call that takes at least so many nanoseconds is copied, and that of a span's end where none did.
    pub stack_ns: u64,
    /// The name of the thread, NUL-padded.
    pub thread_name: [u8; 16],
    /// How the name of the column family begins that has the names of spans, and which of these bytes matter.
    pub names: [u64; 2],
    /// The same of the one that has the units.
    pub units: [u64; 2],
    /// By slot: a [`role`].
    pub roles: [u8; OPERATIONS],
}

/// Calls of one operation.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCalls {
    /// How many calls there were.
    pub calls: u64,
    /// How long they took together.
    pub time_ns: u64,
}

/// What the thread used, or had to wait for.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanUsage {
    /// CPU time.
    pub cpu_ns: u64,
    /// Time for which it could have run and had no CPU.
    pub queued_ns: u64,
    /// Page faults that had to wait for a disk.
    pub major_faults: u64,
    /// Page faults that had not.
    pub minor_faults: u64,
    /// How often it gave up its CPU, or lost it.
    pub switches: u64,
}

/// A span, as it is told: what follows are its [`SpanCalls`], by part, of as many parts as there may be any of.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// `CLOCK_MONOTONIC` at its end.
    pub time_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
    /// The last of its names.
    pub name: u64,
    /// What was put under that name; zeros unless that had so many bytes.
    pub value: [u8; VALUE_BYTES],
    /// How many names it was given.
    pub names: u32,
    /// How many names were taken back.
    pub taken_back: u32,
    /// How many units were put.
    pub units: u32,
    /// One of [`end`].
    pub end: u32,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// The number of the copy of a stack: that of its longest call, as that returned; 0 for none.
    pub stack: u32,
    /// The slot of that call.
    pub stack_slot: u32,
    /// Always 0.
    pub padding: u32,
    /// How long that call took.
    pub stack_ns: u64,
    /// Bytes of all keys and values that were put.
    pub bytes: u64,
    /// What the thread used meanwhile.
    pub usage: SpanUsage,
    /// What of that was in the phase.
    pub phase: SpanUsage,
}

/// What is told apart beyond the operations: one of them on one column family.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanPart {
    /// The slot of the operation.
    pub slot: u32,
    /// RocksDB's number for the column family.
    pub family: u32,
    /// Its name, NUL-padded, cut off where it is longer.
    pub name: [u8; 16],
}

/// What is known of a column family's handle, for one operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpanHandle {
    /// Where calls on it count.
    pub part: u32,
    /// One of [`family`].
    pub family: u32,
    /// The epoch in which it was last looked whether the handle is that family's.
    pub epoch: u32,
    /// RocksDB's number for it.
    pub id: u32,
}

/// All spans of one end, and the histogram of their durations beside it.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanRow {
    /// How many spans ended like that.
    pub count: u64,
    /// How long they took together.
    pub sum_ns: u64,
    /// The longest of an even and of an odd epoch: see [`crate::maximum`].
    pub maxima: [u64; 2],
    /// The name of the last one that had any.
    pub name: u64,
    /// How many names they were given.
    pub names: u64,
    /// How many names were taken back.
    pub taken_back: u64,
    /// How many units were put.
    pub units: u64,
    /// Bytes of all keys and values that were put.
    pub bytes: u64,
    /// Those that should have been told and found no room in the ring buffer.
    pub untold: u64,
    /// What the thread used meanwhile.
    pub usage: SpanUsage,
    /// What of that was in the phase.
    pub phase: SpanUsage,
}

/// Calls of all spans of one end, by part.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanParts(pub [SpanCalls; PARTS]);

/// The span that is under way. Only its thread writes here.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SpanState {
    /// The thread, 0 before one was found.
    pub thread: u32,
    /// [`SpanControl::generation`] when it was last met.
    pub generation: u32,
    /// Not 0 while a span is under way.
    pub open: u32,
    /// Puts of it, whatever their keys.
    pub puts: u32,
    /// When it began.
    pub began_ns: u64,
    /// Where its commit will say that it failed.
    pub error: u64,
    /// How many parts there are.
    pub parts: u32,
    /// What the family is of the call that was met last: one of [`family`].
    pub family: u32,
    /// What the thread had used by its beginning, and by that of its phase.
    pub used: [SpanUsage; 2],
    /// By slot: when the call began that is under way; 0 for none.
    pub entered: [u64; OPERATIONS],
    /// By slot: the part in which that counts.
    pub within: [u32; OPERATIONS],
    /// What is known of it so far.
    pub span: Span,
    /// Its calls so far, which follow it as it is told.
    pub calls: SpanParts,
}

layout! {
    SpanControl: 104, SpanUsage: 40, Span: 184, SpanRow: 160, SpanPart: 24, SpanHandle: 16,
    SpanState.calls: core::mem::offset_of!(SpanState, span) + core::mem::size_of::<Span>(),
}
