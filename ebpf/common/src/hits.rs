//! What is looked at where a process meets a probe that tells something: the arguments of USDT probes.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::{SlowCall, TEXT_BYTES};

/// How many registers there are, by the numbers that instructions have for them. Of arm64 the last one is the stack pointer.
const OWN: u8 = if cfg!(any(target_arch = "aarch64", bpf_target_arch = "aarch64")) {
    32
} else {
    16
};

/// The registers that an [`Operand`] counts from 0: the machine's, and two more.
pub const REGISTERS: usize = OWN as usize + 2;

/// What stands for no register: it is always 0.
pub const ZERO: u8 = OWN;

/// The address of the probe's own instruction.
pub const SITE: u8 = OWN + 1;

/// Where an argument is as its probe is met: the sum of a register, of a multiple of another one and of a number, or what is in
/// memory at that address.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operand {
    /// The number.
    pub displacement: i64,
    /// The register.
    pub base: u8,
    /// The other one.
    pub index: u8,
    /// By so many bits it is shifted.
    pub scale: u8,
    /// Not 0: of the sum, the lower 32 bits count.
    pub is_short: u8,
    /// Not 0: the sum is an address.
    pub is_in_memory: u8,
    /// So many bits of the sum are below the argument.
    pub below: u8,
    /// So many bytes are the argument: 1, 2, 4 or 8; 0 where there is no argument.
    pub bytes: u8,
    /// A number of [`ValueKind`].
    pub kind: u8,
}

/// What an argument is.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A number without a sign.
    Unsigned = 0,
    /// A number with a sign.
    Signed = 1,
    /// A pointer to a text that ends with NUL.
    Text = 2,
    /// A pointer to a text, and there is none.
    Null = 3,
}

/// What a hit says.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// That its probe is met.
    #[default]
    Met = 0,
    /// That something begins.
    Begins = 1,
    /// That it ends.
    Ends = 2,
    /// That a function begins, and that it ends as this call of it returns.
    EndsAtReturn = 3,
}

/// What is looked at at one place of a probe.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hit {
    /// The argument by whose values hits are told apart, if that is asked for.
    pub by: Operand,
    /// The argument that a beginning and its end have in common; if there is none, that is the thread.
    pub key: Operand,
    /// The argument of a beginning that is a `traceparent`, if that is asked for.
    pub parent: Operand,
    /// The argument that is a text to be told as a whole, where hits emit one.
    pub payload: Operand,
    /// The slot of the first of these values.
    pub first_slot: u32,
    /// The place of the first of these values among all.
    pub first_value: u32,
    /// A number of [`Role`].
    pub role: u32,
    /// Always 0.
    pub padding: u32,
}

/// Values that are told apart, each of one operation. More count with their operation's others.
pub const VALUES: u32 = 32;

/// Of those, so many are known by themselves, so that it can be told how many they are.
pub const FOLDED_VALUES: u32 = 64;

/// A value of an argument.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The operation's slot.
    pub slot: u32,
    /// A number of [`ValueKind`].
    pub kind: u32,
    /// A text, NUL-padded, cut off where it is longer; a number as eight bytes.
    pub bytes: [u8; TEXT_BYTES],
}

/// How much of a `traceparent` is told, with the NUL at its end: one of the version that there is has 55 bytes, and of what goes on after
/// those it shows that it does.
pub const TRACEPARENT_BYTES: usize = 64;

/// What something began with, as its caller wrote it.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    /// A text, NUL-padded, cut off where it is longer.
    pub text: [u8; TRACEPARENT_BYTES],
}

/// A slow call with the `traceparent` that it began with.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowCallWithParent {
    /// The call.
    pub call: SlowCall,
    /// What it began with.
    pub parent: Traceparent,
}

/// A text that a probe emits is told up to so many bytes, without the NUL at its end. A longer one is not told.
pub const PAYLOAD_BYTES: usize = 2048;

/// What is read of one: of what goes on after [`PAYLOAD_BYTES`] and its NUL, that it does.
pub const PAYLOAD_ROOM: usize = PAYLOAD_BYTES + 8;

/// A text that a probe emitted: [`PAYLOAD_ROOM`] bytes follow, of which `length` are the text.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// `CLOCK_MONOTONIC` as it was met.
    pub time_ns: u64,
    /// The operation's slot.
    pub slot: u32,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// The name of the thread, NUL-padded.
    pub thread_name: [u8; 16],
    /// How many bytes the text has.
    pub length: u64,
}

/// The same with what follows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct PayloadRecord {
    /// Whose text it is.
    pub head: Payload,
    /// The text, and whatever was there before.
    pub text: [u8; PAYLOAD_ROOM],
}

/// What could not be told of an operation's hits, on each CPU.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitLosses {
    /// Hits of which the argument could not be read: its page was not in memory. Where it was to tell them apart they are counted with the
    /// operation's others.
    pub unread: u64,
    /// Ends of which no beginning is known.
    pub unbegun: u64,
    /// Payloads that found no room in the ring buffer.
    pub payloads: u64,
    /// Payloads that could not be read: nothing is there, or its page was not in memory.
    pub unread_payloads: u64,
    /// Payloads of more than [`PAYLOAD_BYTES`].
    pub long_payloads: u64,
}

layout! {
    Operand: 16, Hit: 80, Value: 56, Traceparent: 64, SlowCallWithParent: 56 + 64, Payload: 40,
    PayloadRecord.text: 40, PayloadRecord: 40 + PAYLOAD_ROOM,
}
