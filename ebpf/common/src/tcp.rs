//! What the program `sockets` and its loader share.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Processes that are watched at a time.
pub const MAX_PROCESSES: usize = 256;

/// Sockets of which one pass tells at most: each takes memory on the agent's account, in the kernel and beside it.
pub const MAX_TOLD: u64 = 16_384;

/// Files at which one pass looks at most: as many as hold up whoever makes it for some ten milliseconds. A CKB node has a few thousand.
pub const MAX_FILES: u64 = 1 << 16;

/// Who opened a connection: nobody knows.
pub const UNKNOWN: u8 = 0;
/// The process did.
pub const OUTGOING: u8 = 1;
/// The peer opened the connection.
pub const INCOMING: u8 = 2;

/// Why a socket is told of: somebody looks.
pub const SEEN: u8 = 0;
/// It was established.
pub const OPENED: u8 = 1;
/// The connection was closed.
pub const CLOSED: u8 = 2;
/// No socket: at the end of a pass, how many descriptors it met of sockets that it did not tell of, in place of the cookie, and one
/// for all at which it did not look.
pub const LEFT_OUT: u8 = 3;

/// States of a socket, by the kernel's numbers (include/net/tcp_states.h).
pub mod state {
    /// Both ends send.
    pub const ESTABLISHED: u8 = 1;
    /// The process has asked for a connection.
    pub const SYN_SENT: u8 = 2;
    /// A peer has.
    pub const SYN_RECV: u8 = 3;
    /// No connection.
    pub const CLOSE: u8 = 7;
    /// Waits for connections.
    pub const LISTEN: u8 = 10;
}

/// Address families.
pub mod family {
    /// IPv4.
    pub const INET: u8 = 2;
    /// IPv6, and IPv4 within it.
    pub const INET6: u8 = 10;
}

/// A process whose sockets are watched.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Since when it has been: a later one of its number is not watched. See [`is_since`](crate::is_since).
    pub since_ns: u64,
    /// Where it is counted what of its own is not told: a number below [`MAX_PROCESSES`], no other's.
    pub place: u32,
    /// Whose share of the ring buffer its sockets take: a number below [`MAX_PROCESSES`].
    pub payer: u32,
}

/// What is kept with a socket of a watched process, and goes with it. A socket that accepts hands a copy to each connection
/// that it accepts, which is how those are known from their first moment on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The process, in the host's pid namespace; 0 for none.
    pub process: u32,
    /// Who opened it.
    pub direction: u32,
    /// When it began, on the monotonic clock; 0 where that was not seen.
    pub began_ns: u64,
    /// When it was established, if that was seen.
    pub established_ns: u64,
    /// The last pass that told of it.
    pub pass: u64,
}

/// How far a pass over sockets has come.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// When it began, on the monotonic clock.
    pub began_ns: u64,
    /// Files that it met.
    pub files: u64,
    /// Sockets that it told of.
    pub told: u64,
    /// Descriptors of others.
    pub left_out: u64,
}

/// A TCP socket as it stands, or as it stood when it was closed.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Socket {
    /// Its number, which no other socket has or had since the kernel booted: its cookie.
    pub cookie: u64,
    /// When it began, on the monotonic clock; 0 where that was not seen.
    pub began_ns: u64,
    /// When it was established, if that was seen.
    pub established_ns: u64,
    /// When the socket was read; of one that a pass tells of, when the pass began.
    pub time_ns: u64,
    /// Payload bytes sent, with those that were sent again.
    pub bytes_sent: u64,
    /// Payload bytes received; the kernel's own count has one more where the peer has closed its end.
    pub bytes_received: u64,
    /// The peer's address, in network order; of IPv4 the first four bytes.
    pub remote: [u8; 16],
    /// The process, in the host's pid namespace.
    pub process: u32,
    /// The smoothed round-trip time, in eighths of a microsecond; 0 where there is none yet.
    pub rtt: u32,
    /// Segments that were sent again.
    pub retransmits: u32,
    /// Segments sent, with those.
    pub segments: u32,
    /// For how long the peer's window was full, in ticks.
    pub window_limited: u32,
    /// For how long its own buffer was full, in ticks.
    pub buffer_limited: u32,
    /// What it dropped: of a listening socket, connections.
    pub drops: u32,
    /// The port on this side.
    pub local_port: u16,
    /// The peer's.
    pub remote_port: u16,
    /// Its state; of one that was closed the one before.
    pub state: u8,
    /// Its address family.
    pub family: u8,
    /// Who opened it.
    pub direction: u8,
    /// Why it is told of.
    pub event: u8,
    /// [`Watched::payer`].
    pub payer: u16,
    /// Explicit padding, zero.
    pub padding: [u8; 2],
}

/// What the programs counted, on each CPU.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Met {
    /// How often a socket of any process changed its state.
    pub changes: u64,
}

layout! {
    Watched: 16, Kept: 32, Socket: 104, Met: 8, Socket.remote: 48, Socket.state: 96,
}
