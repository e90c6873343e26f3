//! TCP sockets of a process: looked at from time to time, and at their end.
//!
//! At each reading, though not more often than once a second, and never so often that it takes more than a hundredth of a
//! core, an iterator of the kernel's goes through the process's files. Between two such passes a connection may come and go:
//! a tracepoint tells of each as it is established, and as it is closed with its last figures. The tracepoint is the node's, and attached once.

mod ledger;
mod watch;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use ckb_probe_crds::{Name, Reason};
use ledger::Ledger;
pub use ledger::blank;
use nix::time::{ClockId, clock_getres};

use super::{
    Begin, Event, LoadId, Loads, Lost, Mechanism, Opened, Parts, Reading, Refusal, Scene, Strand,
    reason_of,
    shared::{Gate, OneLoad, Shared, Subscription},
};
use crate::{
    kernel::{AttachError, Links, Passes, ReadError, SocketWatch},
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
pub struct Ask {
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
    /// Sum: nanoseconds with the peer's window full.
    pub window_limited: Name,
    /// Sum: nanoseconds with the own buffer full.
    pub buffer_limited: Name,
}

/// The sockets of one process, being watched.
pub struct Sockets {
    subscription: Subscription<SocketWatch>,
    passes: Passes,
    next_pass: Option<Instant>,
    ledger: Ledger,
    measures: Measures,
    load: LoadId,
    gate: Gate,
    costs: [Option<Duration>; 1],
}

impl Begin for Ask {
    fn begin(&self, scene: Scene<'_>) -> Result<(Box<dyn Mechanism>, Opened), Refusal> {
        let load = || SocketWatch::load().map(Shared::of);
        let watch = scene.node.shared(load).map_err(refusal)?;
        let process = scene.process.pid;
        let subscription = Subscription::to(watch, |_| Ok::<_, Refusal>(process))?;
        let passes = subscription.lock().program.over(process);
        let sockets = Sockets {
            passes: passes.map_err(refusal)?,
            subscription,
            next_pass: None,
            ledger: Ledger::new(self.naming.clone(), tick()),
            measures: self.measures.clone(),
            load: scene.first,
            gate: Gate::default(),
            costs: [Some(COST)],
        };
        let opened = Opened {
            strands: vec![Strand {
                load: scene.first,
                row: None,
                parts: if self.naming.parted() {
                    Parts::All
                } else {
                    Parts::None
                },
                blank: blank(&self.measures),
                ..Strand::default()
            }],
            ..Opened::default()
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
        for changed in self.subscription.events() {
            self.ledger.changed(&changed);
        }
    }

    fn pass(&mut self) -> Result<(), ReadError> {
        let begun = thread_time();
        let sockets = self.passes.pass()?;
        self.ledger.pass(&sockets);
        let took = thread_time().saturating_sub(begun);
        self.next_pass = Some(Instant::now() + PASS.max(took * PART));
        Ok(())
    }
}

impl OneLoad for Sockets {
    fn load(&self) -> LoadId {
        self.load
    }

    fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// What the sockets did before is not counted.
    fn open(&mut self) -> Result<(), AttachError> {
        self.subscription.open()?;
        self.ledger.begin(monotonic_ns());
        // Whatever it takes: what they have counted by now must be known.
        if let Err(error) = self.pass() {
            drop(self.subscription.close()?);
            return Err(error.into());
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        let passed = self.pass();
        let closed = self.subscription.close();
        self.drain();
        passed.and(closed)
    }
}

impl Mechanism for Sockets {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn attach(&mut self, loads: &Loads) -> Result<Option<Links>, AttachError> {
        self.attach_load(loads)
    }

    fn open_slice(&mut self, loads: &Loads) -> Result<(), AttachError> {
        self.open_load(loads)
    }

    fn close_slice(&mut self) -> Result<Option<Links>, ReadError> {
        self.close_load()
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        Ok(vec![self.subscription.charged()?])
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        if self.gate.is_open() {
            self.drain();
            if self.next_pass.is_none_or(|next| next <= Instant::now()) {
                self.pass()?;
            }
        }
        Ok(Reading {
            loads: [(self.load, self.ledger.reading(&self.measures))].into(),
            folded: [(self.load, self.ledger.folded())].into(),
            lost: vec![Lost {
                loads: [self.load].into(),
                counts: self.subscription.lost()?,
            }],
        })
    }

    fn events(&mut self) -> Vec<Event> {
        Vec::new()
    }
}
