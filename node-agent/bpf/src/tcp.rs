//! TCP sockets of processes, by one set of programs for the node: all that a process has open, whenever that is asked for, and
//! each that is closed, as it is closed.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    sync::atomic::{AtomicUsize, Ordering},
};

use aya::maps::MapError;
pub use ckb_probe_common::tcp::Socket;
use ckb_probe_common::{
    Field,
    tcp::{LEFT_OUT, MAX_PROCESSES, Met, Watched},
};
use zerocopy::FromBytes;

use super::{
    AttachError, Identity, Links, ReadError,
    btf::{self, Types},
    memory::Reservation,
    object::Object,
    programs,
    tracing::{Iteration, Iterator, Tracepoints},
    typed::{Counts, PerCpu, SharedRing, Table, Values, error},
};

const TRACEPOINT: &str = "inet_sock_set_state";

/// Room for nine thousand connections that come and go between two readings, of which a namespace has half.
const RING_BYTES: u32 = 2 << 20;

/// As much as the kernel hands over at a time.
const BUFFER_BYTES: usize = 32 << 10;

/// What the programs read, in the order in which they number it, and how long it is.
const FIELDS: [(&str, &str, u32); 18] = [
    ("socket", "sk", 8),
    ("task_struct", "tgid", 4),
    (
        "tcp_sock",
        "inet_conn.icsk_inet.sk.__sk_common.skc_state",
        1,
    ),
    (
        "tcp_sock",
        "inet_conn.icsk_inet.sk.__sk_common.skc_family",
        2,
    ),
    (
        "tcp_sock",
        "inet_conn.icsk_inet.sk.__sk_common.skc_daddr",
        4,
    ),
    (
        "tcp_sock",
        "inet_conn.icsk_inet.sk.__sk_common.skc_v6_daddr",
        16,
    ),
    (
        "tcp_sock",
        "inet_conn.icsk_inet.sk.__sk_common.skc_dport",
        2,
    ),
    ("tcp_sock", "inet_conn.icsk_inet.sk.__sk_common.skc_num", 2),
    ("tcp_sock", "inet_conn.icsk_inet.inet_sport", 2),
    ("tcp_sock", "inet_conn.icsk_inet.sk.sk_drops", 4),
    ("tcp_sock", "bytes_sent", 8),
    ("tcp_sock", "bytes_received", 8),
    ("tcp_sock", "srtt_us", 4),
    ("tcp_sock", "total_retrans", 4),
    ("tcp_sock", "segs_out", 4),
    ("tcp_sock", "chrono_stat", 12),
    ("tcp_sock", "chrono_start", 4),
    (
        "tcp_sock",
        "inet_conn.icsk_inet.sk.__sk_common.skc_flags",
        8,
    ),
];

/// Where in `chrono_stat` the times are: behind that for which there was anything to send.
const WINDOW_LIMITED: u32 = 4;
const BUFFER_LIMITED: u32 = 8;

/// The programs, loaded once for a node. Dropping it detaches.
pub struct SocketWatch {
    // Declared first: links go before the maps that their programs write to.
    links: Option<Links>,
    tracepoints: Tracepoints,
    iterator: Iterator,
    processes: Table<u32, Watched>,
    /// What they are told of each process that is known, whether or not they are now.
    watched: BTreeMap<u32, Watched>,
    met: PerCpu<Met>,
    lost: Values<u64>,
    changed: SharedRing<Socket>,
    _room: Option<Reservation>,
}

/// Goes through the sockets of one process.
pub struct Passes {
    sockets: Iteration,
    /// How many there were the last time.
    found: AtomicUsize,
}

/// What one pass over a process's sockets has found.
#[derive(Debug, Default)]
pub struct Pass {
    /// Each that it told of, once.
    pub sockets: Vec<Socket>,
    /// How many descriptors there were of others, for which there is no memory, and one for all at which it did not look.
    pub left_out: u64,
}

impl SocketWatch {
    /// Loads the programs, and attaches nothing yet.
    pub fn load() -> Result<Self, AttachError> {
        let types = Types::read()?;
        let fields = btf::as_bytes(&fields(&types)?);
        let sizes = [("CHANGED", RING_BYTES)];
        let identity = Identity::fields(&types)?;
        let constants: [(&str, &[u8]); 2] = [("FIELDS", &fields), ("IDENTITY", &identity)];
        let mut object = Object::load_with(programs::named("tcp")?, &sizes, &constants)?;
        Ok(Self {
            links: None,
            tracepoints: Tracepoints::load(&object, &types, &[("state_changed", TRACEPOINT)])?,
            iterator: Iterator::load(&object, &types, "list", "task_file")?,
            processes: Table::take(&mut object, "PROCESSES")?,
            watched: BTreeMap::new(),
            met: PerCpu::take(&mut object, "MET")?,
            lost: Values::take(&mut object, "LOST")?,
            changed: SharedRing::take(&mut object, "CHANGED")?,
            _room: object.take_room(),
        })
    }

    /// Sees to it that changes are told of.
    pub fn attach(&mut self) -> Result<(), AttachError> {
        if self.links.is_none() {
            self.links = Some(self.tracepoints.attach()?);
        }
        Ok(())
    }

    /// Hands back the links: dropping them detaches.
    pub fn detach(&mut self) -> Option<Links> {
        self.links.take()
    }

    /// Makes room for a process. What is told of its sockets takes the share of the ring of this payer: who has the same number has one
    /// together.
    pub fn enroll(&mut self, process: Identity, payer: u32) -> Result<(), AttachError> {
        let known = self.watched.get(&process.number).map(|known| known.place);
        let taken = |place| self.watched.values().any(|known| known.place == place);
        let place = known
            .or_else(|| (0..MAX_PROCESSES as u32).find(|place| !taken(*place)))
            .ok_or(AttachError::NoRoom("as many are watched as can be"))?;
        let watched = Watched {
            since_ns: process.since_ns,
            place,
            payer,
        };
        self.watched.insert(process.number, watched);
        Ok(())
    }

    /// Has sockets that this process connects or listens with be known as its own, which is enrolled.
    pub fn add(&mut self, process: Identity) -> Result<(), AttachError> {
        let known = self.watched.get_mut(&process.number);
        let known = known.ok_or(AttachError::NoRoom("it is not enrolled"))?;
        known.since_ns = process.since_ns;
        Ok(self.processes.insert(process.number, *known)?)
    }

    /// Has no more of them be known.
    pub fn remove(&mut self, process: u32) -> Result<(), ReadError> {
        self.processes.remove(process)
    }

    /// Gives its room back.
    pub fn forget(&mut self, process: u32) {
        self.watched.remove(&process);
    }

    /// What goes through the sockets of a process.
    pub fn over(&self, process: u32) -> Result<Passes, AttachError> {
        Ok(Passes {
            sockets: self.iterator.over(process)?,
            found: AtomicUsize::new(0),
        })
    }

    /// How often sockets of any process changed their state since the load.
    pub fn changes(&self) -> Result<u64, ReadError> {
        Ok(self.met.sum(0)?.changes)
    }

    /// How many changes of a process's sockets are not told of, since some time before it was enrolled. Among them are those of anybody's
    /// that nobody saw, as the program was running already on that CPU: each may have been a beginning or an end.
    pub fn lost(&self, process: u32) -> Result<u64, ReadError> {
        let own = match self.watched.get(&process) {
            Some(watched) => self.lost.get(watched.place)?,
            None => 0,
        };
        Ok(own + self.tracepoints.missed(TRACEPOINT))
    }

    /// Takes the sockets that were established or closed.
    pub fn changed(&mut self) -> Vec<Socket> {
        let changed = self.changed.drain(|socket| socket.payer.into());
        changed.into_iter().map(|(socket, _)| socket).collect()
    }
}

impl Passes {
    /// The TCP sockets that the process has open, each once however many descriptors it has of it.
    pub fn pass(&self) -> Result<Pass, ReadError> {
        self.read()
            .map_err(|source| error("iter/task_file")(MapError::IoError(source)))
    }

    fn read(&self) -> io::Result<Pass> {
        // A few more than the last time: they are not to be moved as they come.
        let mut found = Vec::with_capacity(self.found.load(Ordering::Relaxed) + 64);
        let mut left_out = None;
        let mut file = self.sockets.begin()?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut filled = 0;
        while left_out.is_none() {
            let more = file.read(&mut buffer[filled..])?;
            if more == 0 {
                break;
            }
            filled += more;
            for socket in sockets(&buffer[..filled]) {
                match socket.event {
                    LEFT_OUT => left_out = Some(socket.cookie),
                    _ => found.push(socket),
                }
            }
            let whole = filled - filled % size_of::<Socket>();
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
        }
        self.found.store(found.len(), Ordering::Relaxed);
        Ok(Pass {
            sockets: found,
            left_out: left_out.unwrap_or_default(),
        })
    }
}

fn sockets(records: &[u8]) -> impl std::iter::Iterator<Item = Socket> {
    let records = records.chunks_exact(size_of::<Socket>());
    records.filter_map(|record| Socket::read_from_bytes(record).ok())
}

impl Counts for Met {}

fn fields(types: &Types) -> Result<Vec<Field>, AttachError> {
    let known = |&(structure, field, size): &(&'static str, &'static str, u32)| {
        let found = types.field(structure, field);
        found
            .filter(|found| found.size == size)
            .ok_or(AttachError::NoField { structure, field })
    };
    let mut fields: Vec<Field> = FIELDS.iter().map(known).collect::<Result<_, _>>()?;
    let flags = fields.pop().unwrap_or_default();
    let since = fields.pop().unwrap_or_default();
    let limited = fields.pop().unwrap_or_default();
    let within = |offset| Field {
        offset: limited.offset + offset,
        size: 4,
    };
    // A bit field on older kernels, which cannot be read: what limits a connection then counts when it ends.
    let limit = types.field("tcp_sock", "chrono_type").unwrap_or_default();
    let window = within(WINDOW_LIMITED);
    fields.extend([window, within(BUFFER_LIMITED), limit, since, flags]);
    Ok(fields)
}
