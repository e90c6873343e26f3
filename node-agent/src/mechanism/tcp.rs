//! TCP sockets of a process: looked at from time to time, and at their end.
//!
//! At each reading, though not more often than once a second, and never so often that it takes more than a hundredth of a
//! core, an iterator of the kernel's goes through the process's files. Between two such passes a connection may come and go:
//! a tracepoint tells of each as it is established, and as it is closed with its last figures. The tracepoint is the node's, and attached once.

mod totals;
mod watch;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ckb_probe_crds::{Name, Reason};
use nix::time::{ClockId, clock_getres};
use totals::SocketTotals;
pub use totals::blank;
use watch::Watch;

use super::{
    Accepted, BeginContext, Breakdown, Event, Lost, Mechanism, OneBegun, Reading, Refusal, Single,
    Subscription, identity, reason_of,
    shared::{Gate, Handle, NodeProgram as _, OneGroup, Shared},
};
use crate::{
    kernel::{
        AttachError, Links, Pass, Passes, ReadError,
        memory::{self, Reservation},
    },
    observe::{monotonic, thread_time},
};

/// What a change of a socket's state costs whoever changes it. Measured on Linux 6.18: see docs/tcp.md.
const COST: Duration = Duration::from_nanos(300);

/// Between two passes, at least.
const PASS: Duration = Duration::from_secs(1);

/// A pass takes at most this part of a core's time.
const PART: u32 = 100;

/// What a kind wants of the sockets of a process.
#[derive(Clone, Debug)]
pub struct TcpConfig {
    /// What is measured of them, in the kind's words.
    pub measures: Measures,
    /// What they count as.
    pub naming: Arc<dyn Naming>,
}

/// Tells sockets apart.
pub trait Naming: std::fmt::Debug + Send + Sync {
    /// The row, and the part of it, that a socket counts in; None where it is not asked for.
    fn place(&self, end: &Endpoint) -> Option<(String, Option<String>)>;

    /// Whether rows have parts.
    fn parted(&self) -> bool;
}

/// A socket, as far as it does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Who opened it.
    pub role: Role,
    /// The peer's address.
    pub remote: IpAddr,
    /// The peer's port.
    pub remote_port: u16,
    /// The process's port.
    pub local_port: u16,
}

/// What a socket is to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It connects to a peer.
    Outgoing,
    /// A peer connects to it.
    Incoming,
    /// It waits for peers.
    Listening,
}

/// The names of what is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measures {
    /// Level: connections.
    pub connections: Name,
    /// Level: those that are established.
    pub established: Name,
    /// Level: sockets that listen.
    pub listening: Name,
    /// Distribution: smoothed round-trip times at each pass.
    pub rtt: Name,
    /// Distribution: of those that were closed.
    pub lifetime: Name,
    /// Sum: payload bytes.
    pub sent: Name,
    /// Sum: payload bytes.
    pub received: Name,
    /// Sum: segments sent.
    pub segments: Name,
    /// Sum: segments sent again.
    pub retransmits: Name,
    /// Sum: connections that were established.
    pub opened: Name,
    /// Sum: connections that were closed.
    pub closed: Name,
    /// Sum: connections that came to nothing.
    pub failed: Name,
    /// Sum: segments that sockets which listen dropped.
    pub dropped: Name,
    /// Sum: nanoseconds with the peer's window full.
    pub window_limited: Name,
    /// Sum: nanoseconds with the own buffer full.
    pub buffer_limited: Name,
}

/// The sockets of one process, being watched.
pub struct Sockets {
    handle: Handle<Watch>,
    passes: Passes,
    next_pass: Option<Instant>,
    ledger: SocketTotals,
    /// For what is known of sockets.
    room: Reservation,
    measures: Measures,
    gate: Gate,
    costs: [Option<Duration>; 1],
}

impl Single for TcpConfig {
    fn begin_one(&self, context: BeginContext<'_>) -> Result<OneBegun, Refusal> {
        let group = || Watch::load().map(Shared::of);
        let watch = context.node.shared(group).map_err(refusal)?;
        let process = identity(context.process);
        let enroll = |watch: &mut Watch| watch.enroll(process, context.namespace);
        let handle = Handle::to(watch, enroll).map_err(refusal)?;
        let passes = handle.lock().program.sockets.over(process.number);
        let sockets = Sockets {
            passes: passes.map_err(refusal)?,
            handle,
            next_pass: None,
            ledger: SocketTotals::new(self.naming.clone(), tick()),
            room: memory::budget().empty(),
            measures: self.measures.clone(),
            gate: Gate::of(context.first),
            costs: [Some(COST)],
        };
        let opened = Accepted {
            subscriptions: vec![Subscription {
                group: context.first,
                row: None,
                parts: if self.naming.parted() {
                    Breakdown::All
                } else {
                    Breakdown::None
                },
                blank: blank(&self.measures),
                ..Subscription::default()
            }],
            ..Accepted::default()
        };
        Ok((Box::new(sockets), opened))
    }
}

fn refusal(error: AttachError) -> Refusal {
    match reason_of(&error) {
        Reason::UnsupportedByKernel => Refusal::new(
            Reason::UnsupportedByKernel,
            format!(
                "{error}: TCP sockets can be measured on Linux 6.1 and later, with type information"
            ),
        ),
        reason => Refusal::new(reason, error.to_string()),
    }
}

/// The kernel's unit of the times that it counts for a socket: that of its coarse clocks.
fn tick() -> Duration {
    let tick = clock_getres(ClockId::CLOCK_MONOTONIC_COARSE);
    tick.map_or(Duration::from_millis(4), Duration::from)
}

fn monotonic_ns() -> u64 {
    monotonic().as_nanos() as u64
}

impl Sockets {
    fn drain(&mut self) {
        let changed = self.handle.events();
        self.make_room(changed.len());
        for changed in changed {
            self.ledger.changed(&changed);
        }
        self.room.keep(self.ledger.bytes_with(0));
    }

    fn pass(&mut self) -> Result<(), ReadError> {
        let begun = thread_time();
        let Pass { sockets, left_out } = self.passes.pass()?;
        self.make_room(sockets.len());
        self.ledger.leave_out(left_out);
        self.ledger.pass(&sockets);
        self.room.keep(self.ledger.bytes_with(0));
        let took = thread_time().saturating_sub(begun);
        self.next_pass = Some(Instant::now() + PASS.max(took * PART));
        Ok(())
    }

    /// Has room for so many sockets more, or has no more be known.
    fn make_room(&mut self, more: usize) {
        let most = match self.room.set(self.ledger.bytes_with(more)) {
            true => totals::MAX_KNOWN,
            false => self.ledger.known(),
        };
        self.ledger.bound(most);
    }
}

impl OneGroup for Sockets {
    fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// What the sockets did before is not counted.
    fn open(&mut self) -> Result<(), AttachError> {
        self.handle.open()?;
        self.ledger.begin(monotonic_ns());
        // Whatever it takes: what they have counted by now must be known.
        if let Err(error) = self.pass() {
            drop(self.handle.close()?);
            return Err(error.into());
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        let passed = self.pass();
        let closed = self.handle.close();
        self.drain();
        passed.and(closed)
    }
}

impl Mechanism for Sockets {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn one_group(&mut self) -> Option<&mut dyn OneGroup> {
        Some(self)
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        Ok(vec![self.handle.charged()?])
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        if self.gate.is_open() {
            self.drain();
            if self.next_pass.is_none_or(|next| next <= Instant::now()) {
                self.pass()?;
            }
        }
        let mut lost = self.handle.lost()?;
        let told = Name::Borrowed(Watch::EVENTS_LOST);
        *lost.entry(told).or_default() += self.ledger.lost();
        Ok(Reading {
            groups: [(self.gate.group(), self.ledger.reading(&self.measures))].into(),
            folded: [(self.gate.group(), self.ledger.folded())].into(),
            lost: vec![Lost {
                groups: [self.gate.group()].into(),
                counts: lost,
            }],
            ..Reading::default()
        })
    }

    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }
}
