//! What the program tells the kind of that name in the agent, which has this very file as a module.

use ckb_probe_common::counts::KEY_BYTES;

/// A process called exec, and it succeeded.
pub const EXEC: u32 = 1;
/// A process ended.
pub const END: u32 = 2;

/// Execs are told one by one.
pub const TELL_EXECS: u32 = 1;
/// With their arguments; else with their number only.
pub const TELL_ARGUMENTS: u32 = 2;
/// Ends are told one by one.
pub const TELL_ENDS: u32 = 4;
/// Also those with code 0.
pub const TELL_SUCCESSES: u32 = 8;

/// The sums of a row.
pub mod sum {
    /// Successful execs.
    pub const EXECS: usize = 0;
    /// Ends.
    pub const ENDS: usize = 1;
    /// Ends by a code other than 0.
    pub const FAILURES: usize = 2;
    /// Ends by a signal.
    pub const KILLS: usize = 3;
    /// Those for lack of memory among them.
    pub const OUT_OF_MEMORY: usize = 4;
    /// How long those that ended had been there, in nanoseconds.
    pub const LIFETIME: usize = 5;
}

/// The distribution of how long those that ended had been there.
pub const LIFETIME: u32 = 0;

/// Bytes of the arguments that are told.
pub const ARGUMENT_BYTES: usize = 512;

/// What is told of an exec; of the arguments as much as there is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Exec {
    /// The parent's number in the host's pid namespace.
    pub parent: u32,
    /// How many arguments there are, the program's name among them.
    pub count: u32,
    /// Bytes of all of them, with a NUL after each.
    pub bytes: u32,
    /// Bytes of them that follow.
    pub copied: u32,
    /// The parent's name, NUL-padded.
    pub parent_name: [u8; 16],
    /// The first of them.
    pub arguments: [u8; ARGUMENT_BYTES],
}

/// What is told of an end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct End {
    /// The parent's number in the host's pid namespace.
    pub parent: u32,
    /// What `wait` would say: the signal in the lower 7 bits, 0x80 if it left a core, or else the code from bit 8 on.
    pub status: u32,
    /// Since it was forked.
    pub lifetime_ns: u64,
    /// 1 if the kernel chose it to free memory.
    pub out_of_memory: u32,
    /// Explicit padding, zero.
    pub padding: u32,
    /// The parent's name, NUL-padded.
    pub parent_name: [u8; 16],
}

/// The row of a process of this name.
#[inline(always)]
pub const fn key(name: [u8; 16]) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let mut index = 0;
    while index < name.len() {
        key[index] = name[index];
        index += 1;
    }
    key
}

const _: () = {
    use core::mem::{offset_of, size_of};
    assert!(offset_of!(Exec, arguments) == 32);
    assert!(size_of::<Exec>() == 32 + ARGUMENT_BYTES);
    assert!(size_of::<End>() == 40);
};
