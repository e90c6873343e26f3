//! What is to be loaded for one process, and what that takes.

use std::sync::{Arc, OnceLock};

use ckb_probe_common::{
    Cookie, FILE_IO_CELLS, Files, Group,
    hits::{FOLDED_VALUES, Operand, Role, VALUES},
    stacks::{SLOT_PAGES, SLOW_SLOTS},
};

use super::{Binary, CALLS, FamilyArgument, Payload, maps::told_apart, memory, programs};

/// Calls in flight beyond those that find a cell: more are lost, and counted as lost.
pub(super) const MORE_CALLS: u32 = 8192;

/// What begins at a probe and ends at another, and has not ended: more is lost, and counted as lost.
const SPANS: u32 = 8192;

/// Handles of column families that are told apart, for all operations: more count with their operation's others.
const FAMILY_HANDLES: u32 = 1024;

/// A function to attach to, and what its calls count as.
#[derive(Clone, Debug)]
pub struct Site {
    /// The function's name, for messages.
    pub symbol: String,
    /// The file.
    pub binary: Arc<Binary>,
    /// Offset of its first instruction in the file.
    pub offset: u64,
    /// The slot that its calls are counted in; several functions may share one.
    pub slot: u8,
    /// Where its payload size is found.
    pub payload: Payload,
    /// Where its column family is found, if that is asked for.
    pub family: FamilyArgument,
    /// The cause that its calls are; 0 for none.
    pub cause: u8,
    /// Calls that take at least this long are slow.
    pub slow_threshold_ns: u64,
    /// Which of its arguments are told of a slow call; None: none are.
    pub arguments: Option<KeptArguments>,
    /// Whether the stacks of its slow calls are copied.
    pub stacks: bool,
    /// What is told of what its calls read from files and write to them, of those that are timed. Such calls are not made within one
    /// another.
    pub files: Files,
    /// Its calls are counted and not timed: their returns are not touched.
    pub entry_only: bool,
    /// Where in the file there is a counter, of two bytes, that the process reads: the kernel raises it while anything is attached
    /// here, and lowers it as that goes, however the agent ends.
    pub semaphore: Option<u64>,
    /// What is looked at as it is met, where that is more than that it is. It has no return then, unless its role is to end something there.
    pub hit: Option<LookedAt>,
}

impl Site {
    /// A place of which it is only asked how often it is met, and how long its calls take.
    pub fn plain(symbol: &str, binary: Arc<Binary>, offset: u64, slot: u8) -> Self {
        Self {
            symbol: symbol.to_string(),
            binary,
            offset,
            slot,
            payload: Payload::Unknown,
            family: FamilyArgument::None,
            cause: 0,
            slow_threshold_ns: u64::MAX,
            arguments: None,
            stacks: false,
            files: Files::default(),
            entry_only: false,
            semaphore: None,
            hit: None,
        }
    }
}

/// What is looked at where a probe is met that a program has at any place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookedAt {
    /// The argument by whose values its hits are told apart.
    pub by: Option<Operand>,
    /// What a hit says.
    pub role: Role,
    /// The argument that a beginning and its end have in common; None: that is the thread.
    pub key: Option<Operand>,
    /// The argument of a beginning that is a `traceparent`: it is told with what turns out slow.
    pub parent: Option<Operand>,
    /// The argument that is a text, the whole of which each hit tells; it is neither told apart by anything nor begins or ends anything.
    pub payload: Option<Operand>,
}

/// Which arguments of a call are told when it is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptArguments {
    /// Those that are texts: a bit for each.
    pub texts: u8,
}

impl Site {
    /// Whether something begins or ends there of which the time is measured.
    pub(super) fn is_of_a_span(&self) -> bool {
        self.hit.is_some_and(|hit| hit.role != Role::Met)
    }

    /// Whether something ends there as the function returns.
    pub(super) fn ends_at_return(&self) -> bool {
        self.hit.is_some_and(|hit| hit.role == Role::EndsAtReturn)
    }

    /// Whether something begins there with a `traceparent`.
    fn has_a_parent(&self) -> bool {
        self.hit.is_some_and(|hit| hit.parent.is_some())
    }

    /// Whether a text is told there.
    pub(super) fn emits(&self) -> bool {
        self.hit.is_some_and(|hit| hit.payload.is_some())
    }

    /// `place`: its number among the sites.
    pub(super) fn cookie(&self, group: Group, place: u16) -> u64 {
        let mut cookie = Cookie::new(self.slot, self.payload, self.family, self.cause, group);
        if self.arguments.is_some() {
            cookie = cookie.with_arguments();
        }
        if self.entry_only {
            cookie = cookie.counted_only();
        }
        if self.hit.is_some() {
            cookie = cookie.at(place);
        }
        cookie.0
    }
}

/// What to load for one process.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The process, in the host's pid namespace.
    pub pid: u32,
    /// How many slots the sites count in.
    pub slots: u32,
    /// The functions.
    pub sites: Vec<Site>,
    /// How many column families, each of one operation, are told apart; more count with their operation's others.
    pub families: u32,
    /// Size of the ring buffer for slow calls: a power of two, and a multiple of the page size.
    pub ring_bytes: u32,
    /// Nanoseconds that the traps add to every call as the programs see it: see [`Calibration::trap_ns`](super::Calibration::trap_ns).
    pub trap_ns: u64,
    /// By slot: nanoseconds that one of its calls adds to a call in which it is made: see
    /// [`Calibration::inner_ns`](super::Calibration::inner_ns). Empty: nothing is taken off for that, which saves each call 3 % of
    /// what it costs.
    pub inner_ns: Vec<u32>,
}

impl Plan {
    /// What its maps take where there may be so many CPUs.
    pub fn bytes(&self, cpus: u32) -> u64 {
        self.sizes().bytes(cpus)
    }

    pub(super) fn sizes(&self) -> CallSizes {
        CallSizes {
            slots: self.slots.max(1),
            families: self.families,
            keeps: self.sites.iter().any(|site| site.arguments.is_some()),
            stacks: self.sites.iter().any(|site| site.stacks),
            hits: match self.sites.iter().any(|site| site.hit.is_some()) {
                true => self.sites.len() as u32,
                false => 0,
            },
            told_apart: told_apart(&self.sites).len() as u32,
            spans: self.sites.iter().any(Site::is_of_a_span),
            parents: self.sites.iter().any(Site::has_a_parent),
            payloads: self.sites.iter().any(Site::emits),
            file_io: self.sites.iter().any(|site| site.files.any()),
            ring_bytes: self.ring_bytes,
        }
    }
}

/// By what the maps of one process's calls are sized.
#[derive(Clone, Copy, Debug)]
pub struct CallSizes {
    /// How many slots there are.
    pub slots: u32,
    /// How many column families beside them.
    pub families: u32,
    /// Whether arguments are kept.
    pub keeps: bool,
    /// Whether stacks are copied.
    pub stacks: bool,
    /// How many sites there are, if more is looked at at any of them than that it is met.
    pub hits: u32,
    /// How many slots are told apart by the values of an argument.
    pub told_apart: u32,
    /// Whether the time between any two of them is measured.
    pub spans: bool,
    /// Whether any of those begin with a `traceparent`.
    pub parents: bool,
    /// Whether texts are told of any.
    pub payloads: bool,
    /// Whether it is told of any what its calls read and write.
    pub file_io: bool,
    /// Size of the ring buffer for slow calls.
    pub ring_bytes: u32,
}

impl CallSizes {
    pub(super) fn entries(self) -> [(&'static str, u32); 17] {
        let slots = self.slots.max(1);
        let families = self.families;
        let values = self.told_apart * VALUES;
        let known = self.told_apart * (VALUES + FOLDED_VALUES);
        [
            ("TOTALS", slots + families + values),
            (
                "HISTOGRAMS",
                // What is met has no duration.
                slots + families + if self.spans { values } else { 0 },
            ),
            ("SPANS", if self.spans { SPANS } else { 1 }),
            ("PARENTS", if self.parents { SPANS } else { 1 }),
            (
                "PAYLOADS",
                if self.payloads { PAYLOAD_RING_BYTES } else { 0 },
            ),
            ("HITS", self.hits.max(1)),
            ("VALUES_SEEN", values.max(1)),
            ("VALUE_SLOTS", known.max(1)),
            ("HIT_LOSSES", if self.hits > 0 { slots } else { 1 }),
            ("MORE_CALLS", MORE_CALLS),
            ("FAMILIES", families.max(1)),
            (
                "FAMILY_SLOTS",
                if families > 0 { FAMILY_HANDLES } else { 1 },
            ),
            ("SLOW_CALLS", self.ring_bytes),
            ("ARGUMENTS", if self.keeps { MORE_CALLS } else { 1 }),
            (
                "SLOTS",
                if self.stacks {
                    SLOW_SLOTS * SLOT_PAGES
                } else {
                    1
                },
            ),
            ("STACKS_LOST", if self.stacks { slots } else { 1 }),
            ("ACCOUNTS", if self.file_io { FILE_IO_CELLS } else { 1 }),
        ]
    }

    /// What the maps take where there may be so many CPUs.
    pub fn bytes(self, cpus: u32) -> u64 {
        static SHAPES: OnceLock<Vec<(String, memory::Shape)>> = OnceLock::new();
        let shapes = SHAPES.get_or_init(|| {
            let object = programs::named(CALLS);
            let shapes = object.and_then(|object| memory::shapes(object, &[]));
            // An object that cannot be read is not loaded either.
            shapes.unwrap_or_default()
        });
        let entries = self.entries();
        let sized = |(name, shape): &(String, memory::Shape)| {
            let sized = entries.iter().find(|(known, _)| known == name);
            let shape = sized.map_or(*shape, |(_, entries)| shape.with_entries(*entries));
            shape.bytes(cpus)
        };
        shapes.iter().map(sized).sum()
    }
}

/// A ring of 1 MiB: some five hundred texts between two readings.
const PAYLOAD_RING_BYTES: u32 = 1 << 20;

/// A ring of 64 KiB: a thousand slow calls between two readings.
pub const DEFAULT_RING_BYTES: u32 = 64 << 10;
