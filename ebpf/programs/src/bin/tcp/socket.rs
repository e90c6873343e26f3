//! A TCP socket of the kernel's, and what is told of it.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_socket_cookie, bpf_jiffies64, bpf_skc_to_tcp_sock};
use ckb_probe_common::tcp::{Kept, Socket, family, state};
use ckb_probe_programs::{fields, storage};

fields!(
    FIELDS:
    /// Of `socket`: its `sock`.
    SOCKET,
    /// Of `task_struct`.
    PROCESS,
    // The others are of `tcp_sock`.
    STATE, FAMILY, REMOTE_4, REMOTE_6, REMOTE_PORT, PORT, LOCAL_PORT, DROPS, BYTES_SENT, BYTES_RECEIVED, RTT, RETRANSMITS, SEGMENTS,
    WINDOW_LIMITED, BUFFER_LIMITED,
    /// What it is limited by at present; not all kernels have it where it can be read, and then it is no field of any size.
    LIMIT,
    LIMITED_SINCE, FLAGS,
);

/// The bit of `enum sock_flags` that says that the peer sends no more: its FIN is here.
const SOCK_DONE: u64 = 1 << 1;

/// `enum tcp_chrono`.
const TCP_CHRONO_RWND_LIMITED: u64 = 2;
const TCP_CHRONO_SNDBUF_LIMITED: u64 = 3;

/// A `tcp_sock`, which the verifier knows as one.
#[derive(Clone, Copy)]
pub struct TcpSocket(*const c_void);

impl TcpSocket {
    /// A `sock`, if it is one of TCP.
    #[inline(always)]
    pub fn of(socket: *const c_void) -> Option<Self> {
        if socket.is_null() {
            return None;
        }
        // SAFETY: the kernel handed it out.
        let socket = unsafe { bpf_skc_to_tcp_sock(socket.cast_mut()) };
        (!socket.is_null()).then_some(Self(socket.cast_const().cast()))
    }

    #[inline(always)]
    pub fn stored(self) -> storage::Socket {
        // SAFETY: the kernel handed it out, and it was seen not to be null.
        unsafe { storage::Socket::of(self.0) }
    }

    /// The state of the connection.
    #[inline(always)]
    pub fn state(self) -> u8 {
        // SAFETY: a socket, and the loader has seen that the field has this size.
        unsafe { FIELDS.trusted::<STATE, u8>(self.0) }
    }

    /// As it stands now, in this state. It goes on meanwhile: each figure is right for itself.
    ///
    /// Of ten thousand sockets none is in the caches: what this costs is the lines of memory that it touches. So what only some
    /// sockets have is read of those.
    #[inline(always)]
    pub fn describe(self, kept: &Kept, state: u8, event: u8, time_ns: u64) -> Socket {
        let tcp = self.0;
        // SAFETY: a socket.
        let cookie = unsafe { bpf_get_socket_cookie(tcp.cast_mut()) };
        // SAFETY: the loader has seen that the fields have these sizes.
        unsafe {
            let family = FIELDS.trusted::<FAMILY, u16>(tcp) as u8;
            let mut socket = Socket {
                cookie,
                began_ns: kept.began_ns,
                established_ns: kept.established_ns,
                time_ns,
                bytes_sent: FIELDS.trusted::<BYTES_SENT, u64>(tcp),
                bytes_received: FIELDS.trusted::<BYTES_RECEIVED, u64>(tcp),
                remote: [0; 16],
                process: kept.process,
                rtt: FIELDS.trusted::<RTT, u32>(tcp),
                retransmits: FIELDS.trusted::<RETRANSMITS, u32>(tcp),
                segments: FIELDS.trusted::<SEGMENTS, u32>(tcp),
                window_limited: FIELDS.trusted::<WINDOW_LIMITED, u32>(tcp),
                buffer_limited: FIELDS.trusted::<BUFFER_LIMITED, u32>(tcp),
                drops: 0,
                local_port: FIELDS.trusted::<PORT, u16>(tcp),
                remote_port: u16::from_be(FIELDS.trusted::<REMOTE_PORT, u16>(tcp)),
                state,
                family,
                direction: kept.direction as u8,
                event,
                payer: 0,
                padding: [0; 2],
            };
            // Given back, as it is being closed.
            if socket.local_port == 0 {
                socket.local_port = u16::from_be(FIELDS.trusted::<LOCAL_PORT, u16>(tcp));
            }
            if socket.state == state::LISTEN {
                socket.drops = FIELDS.trusted::<DROPS, u32>(tcp);
            }
            if family == family::INET6 {
                socket.remote = FIELDS.value::<REMOTE_6, [u8; 16]>(tcp).unwrap_or([0; 16]);
            } else {
                let address = FIELDS.trusted::<REMOTE_4, u32>(tcp).to_ne_bytes();
                socket.remote[0] = address[0];
                socket.remote[1] = address[1];
                socket.remote[2] = address[2];
                socket.remote[3] = address[3];
            }
            // The kernel counts the FIN as a byte.
            if FIELDS.trusted::<FLAGS, u64>(tcp) & SOCK_DONE != 0 {
                socket.bytes_received = socket.bytes_received.saturating_sub(1);
            }
            // What limits it now is counted by the kernel when it ends.
            let limit = FIELDS.number::<LIMIT>(tcp).unwrap_or(0);
            if limit == TCP_CHRONO_RWND_LIMITED || limit == TCP_CHRONO_SNDBUF_LIMITED {
                let since = FIELDS.trusted::<LIMITED_SINCE, u32>(tcp);
                let lasted = (bpf_jiffies64() as u32).wrapping_sub(since);
                if limit == TCP_CHRONO_RWND_LIMITED {
                    socket.window_limited = socket.window_limited.wrapping_add(lasted);
                } else {
                    socket.buffer_limited = socket.buffer_limited.wrapping_add(lasted);
                }
            }
            socket
        }
    }
}
