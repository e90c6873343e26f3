//! What the BPF programs and the node-agent share: layouts, cookies, the histogram's scale.
//!
//! Everything here crosses the boundary between kernel and user space: `repr(C)`, fixed-width integers,
//! no padding that is not spelled out. Sizes and offsets are asserted at the end; that any bytes make such a type, and that it has
//! no padding, `zerocopy` proves where user space is compiled (feature `user`).
#![no_std]

/// Asserts how many bytes a type has, and where in it a field is: both sides count on it.
macro_rules! layout {
    ($($type:ident $(.$field:ident)?: $bytes:expr),+ $(,)?) => {
        $(const _: () = assert!(layout!(@ $type $($field)?) == $bytes);)+
    };
    (@ $type:ident) => { core::mem::size_of::<$type>() };
    (@ $type:ident $field:ident) => { core::mem::offset_of!($type, $field) };
}

pub mod block_io;
mod calls;
mod cookie;
pub mod counts;
pub mod health;
pub mod hits;
pub mod spans;
pub mod stacks;
pub mod syscalls;
pub mod tcp;
mod time;

pub use calls::*;
pub use cookie::{Cookie, FamilyArgument, Payload, Session};
pub use time::*;
#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// How exactly it is told when a process began: /proc counts clock ticks, of which the kernel's interface has a hundred a second.
pub const TICK_NS: u64 = 10_000_000;

/// Whether a process that began at this time since boot is the one that began in the tick from `since_ns` on.
#[inline(always)]
pub const fn is_since(began_ns: u64, since_ns: u64) -> bool {
    began_ns.wrapping_sub(since_ns) < TICK_NS
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

layout! {
    Field: 8, Exec: 4,
}
