//! What is shared about the health of an embedded database: errors of its background work, and writes that it holds back.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Functions that tell of it, at most: the slots of sites are numbered below this.
pub const SLOTS: usize = 16;

/// Rows, at most; what finds no room is counted as lost.
pub const MAX_ROWS: u32 = 512;

/// Column families whose state is known, at most.
pub const MAX_FAMILIES: u32 = 256;

/// Bytes of a column family's name, the NUL at its end among them.
pub const NAME_BYTES: usize = 24;

/// Bytes of what an error says, the NUL at its end among them: the name of a file is at the end of it.
pub const ERROR_BYTES: usize = 256;

/// What the calls of a site's function tell.
pub mod role {
    /// Whether a piece of background work succeeded: the status that it returns.
    pub const OUTCOME: u8 = 0;
    /// That an error is taken down, with its reason and its status.
    pub const ERROR: u8 = 1;
    /// That it was tried to get over that error, and how all is since.
    pub const RECOVERY: u8 = 2;
    /// Whether writes to a column family are held back from now on.
    pub const JUDGE: u8 = 3;
    /// Within [`JUDGE`]: what that is found by, and the cause.
    pub const VERDICT: u8 = 4;
    /// Within [`JUDGE`]: writes are delayed.
    pub const DELAY: u8 = 5;
    /// Within [`JUDGE`]: writes are stopped.
    pub const STOP: u8 = 6;
    /// How long a wait takes.
    pub const WAIT: u8 = 7;
    /// Whether there is room for a compaction of a column family.
    pub const ROOM: u8 = 8;
    /// Within [`ROOM`]: what is missing is written to a log.
    pub const LOG: u8 = 9;
}

/// What user space tells the programs while they run.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default)]
pub struct HealthControl {
    /// Not 0 while anything is counted.
    pub open: u32,
    /// Another one each time that counting begins: what was under way before has no end.
    pub generation: u32,
    /// By slot: a [`role`].
    pub roles: [u8; SLOTS],
}

/// The head of a status, as a byte each: code, subcode, severity.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusHead {
    /// What sort of failure; 0 for none.
    pub code: u8,
    /// More exactly.
    pub subcode: u8,
    /// How bad it is.
    pub severity: u8,
    /// Not 0 where memory is not laid out as that of a status is, or could not be read: nothing else is known then.
    pub is_unknown: u8,
}

/// What a column family's writes are held back by, as the database has it.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Judgement {
    /// One of [`held`].
    pub held: u8,
    /// Whether the cause was seen.
    pub has_cause: u8,
    /// The database's number for it, which is another in each version.
    pub cause: u16,
}

/// How writes are held back.
pub mod held {
    /// They are not.
    pub const NOT: u8 = 0;
    /// They are delayed.
    pub const DELAYED: u8 = 1;
    /// They are stopped.
    pub const STOPPED: u8 = 2;
}

/// What is counted together.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HealthKey {
    /// The slot.
    pub slot: u32,
    /// Of an error: the database's number for its reason.
    pub reason: u32,
    /// Of an outcome, and of an error.
    pub status: StatusHead,
    /// Of a judgement.
    pub judgement: Judgement,
    /// Of a judgement, and of room: the number of the column family.
    pub family: u32,
    /// The beginning of its name, NUL-padded.
    pub name: [u8; NAME_BYTES],
    /// Always 0.
    pub padding: u32,
}

/// What was counted.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthSums {
    /// How often.
    pub count: u64,
    /// How long it took, or lasted.
    pub time_ns: u64,
}

/// A column family, as it was judged last.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FamilyState {
    /// Since when, or since when that is added up: `CLOCK_MONOTONIC`.
    pub since_ns: u64,
    /// Of this judgement.
    pub key: HealthKey,
    /// Memtables that wait to be written to files.
    pub memtables: u32,
    /// Files of level 0.
    pub level0_files: u32,
    /// Bytes that compactions have yet to rewrite, by the database's own estimate.
    pub pending_bytes: u64,
}

/// A call that is under way.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthCall {
    /// When it began.
    pub began_ns: u64,
    /// The column family's structure, where it is about one; of background work, where its status is to be.
    pub about: u64,
    /// Of a judgement: what the cause was found by. Of room: what there is, and what is needed.
    pub numbers: [u64; 2],
    /// Of room: what its line in the log is made by; 0 where it was not logged.
    pub text: u64,
    /// [`HealthControl::generation`] as it began.
    pub generation: u32,
    /// Of a judgement.
    pub judgement: Judgement,
    /// Of a judgement: memtables that wait.
    pub memtables: u32,
    /// Always 0.
    pub padding: u32,
}

/// Which call that is.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthCallKey {
    /// The thread.
    pub thread: u32,
    /// A [`role`] for what others within it look for, and else 256 and the slot.
    pub what: u32,
}

/// Something that went wrong, and is told.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthEvent {
    /// `CLOCK_MONOTONIC`.
    pub time_ns: u64,
    /// How long it took, where that is known.
    pub duration_ns: u64,
    /// Where it was counted.
    pub key: HealthKey,
    /// Of room: how many bytes there are, and how many are needed, where it was logged; else 0.
    pub numbers: [u64; 2],
    /// The thread.
    pub thread: u32,
    /// Always 0.
    pub padding: u32,
    /// Its name, NUL-padded.
    pub thread_name: [u8; 16],
    /// What an error says; of room, how its line in the log is made. NUL-padded.
    pub text: [u8; ERROR_BYTES],
}

/// The gravest error that was taken down, and whether it is over.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastError {
    /// Where it was counted.
    pub key: HealthKey,
    /// Not 0 until it is over.
    pub lasts: u32,
}

/// What could not be recorded.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthLosses {
    /// Calls that found no room in any row, or whose column family could not be read.
    pub calls: u64,
    /// Events that found the ring buffer full.
    pub events: u64,
}

const _: () = {
    use core::mem::size_of;
    assert!(size_of::<HealthControl>() == 24);
    assert!(size_of::<HealthKey>() == 48);
    assert!(size_of::<FamilyState>() == 72);
    assert!(size_of::<HealthCall>() == 56);
    assert!(size_of::<HealthEvent>() == 360);
    assert!(size_of::<LastError>() == 52);
};
