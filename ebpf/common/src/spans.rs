//! What is shared about spans: what one thread does between the beginning of a database transaction and its commit, as one thing.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Operations that a span consists of, at most: the slots of sites are numbered below this.
pub const OPERATIONS: usize = 16;

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
    /// Always 0.
    pub padding: u32,
    /// The name of the thread, NUL-padded.
    pub thread_name: [u8; 16],
    /// How the name of the column family begins that has the names of spans, and which of these bytes matter.
    pub family: [u64; 2],
    /// By slot: a [`role`].
    pub roles: [u8; OPERATIONS],
}

/// Calls of one operation.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCalls {
    /// How many.
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
    /// How often it gave up its CPU, or lost it.
    pub switches: u64,
}

/// A span, as it is told.
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
    /// How many names it was given.
    pub names: u32,
    /// How many names were taken back.
    pub taken_back: u32,
    /// One of [`end`].
    pub end: u32,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// What it used meanwhile.
    pub usage: SpanUsage,
    /// By slot.
    pub operations: [SpanCalls; OPERATIONS],
}

/// All spans of one end, and the histogram of their durations beside it.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanRow {
    /// How many.
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
    /// Those that should have been told and found no room in the ring buffer.
    pub untold: u64,
    /// What the thread used meanwhile.
    pub usage: SpanUsage,
    /// By slot.
    pub operations: [SpanCalls; OPERATIONS],
}

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
    /// A handle of the family that has the names, and one of another, as they were last met.
    pub handles: [u64; 2],
    /// What the thread had used by its beginning.
    pub used: SpanUsage,
    /// By slot: when the call began that is under way; 0 for none.
    pub entered: [u64; OPERATIONS],
    /// What is known of it so far.
    pub span: Span,
}

layout! {
    SpanControl: 80, SpanUsage: 32, Span: 72 + 16 * OPERATIONS, SpanRow: 96 + 16 * OPERATIONS,
}
