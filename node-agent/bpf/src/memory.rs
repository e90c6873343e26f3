//! What maps take of memory, known before they are made, and how much there is for them.
//!
//! The kernel charges maps to the agent's own cgroup: one that does not fit would have the agent killed, and all targets of its
//! node unmeasured. Maps of which each CPU has its own are sized by the CPUs that there may ever be.

mod payers;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aya_obj::Object as Parsed;

use super::AttachError;
#[cfg(test)]
use super::sys;
use payers::Payers;
pub use payers::{on_behalf_of, payer};

const PAGE: u64 = 4096;

// include/uapi/linux/bpf.h: BPF_F_NO_PREALLOC.
const NO_PREALLOC: u32 = 1;

/// What the agent takes for itself, maps and books aside: 10 MB at rest, the symbol table of a target's binary, and reports.
const OWN: u64 = 48 << 20;

/// One target takes no more than this part of what there is for all.
const TARGETS: u64 = 2;

// include/uapi/linux/bpf.h
mod map_type {
    pub const HASH: u32 = 1;
    pub const ARRAY: u32 = 2;
    pub const PROGRAMS: u32 = 3;
    pub const PER_CPU_HASH: u32 = 5;
    pub const PER_CPU_ARRAY: u32 = 6;
    pub const LRU_HASH: u32 = 9;
    pub const STACK: u32 = 23;
    pub const RING: u32 = 27;
}

/// What is about to be gone is waited for no longer: then the kernel takes its time, and whoever is measured would be refused for
/// what passes.
const GONE: Duration = Duration::from_secs(2);

/// How often it is looked whether it is.
const LOOK: Duration = Duration::from_millis(1);

/// A map that is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    map_type: u32,
    key: u64,
    value: u64,
    entries: u64,
    /// Its elements are made as they come: this is what it takes when it is full.
    grows: bool,
}

impl Shape {
    /// The same with so many entries.
    #[must_use]
    pub fn with_entries(self, entries: u32) -> Self {
        Self {
            entries: u64::from(entries),
            ..self
        }
    }

    /// How many bytes it takes where there may be so many CPUs, by the kernel's own reckoning (`map_mem_usage` of each type, in
    /// kernel/bpf of Linux 6.4 and later; older ones count less of the same), which is rounded up to pages. What is kept with
    /// threads and sockets is not in it: that is made as they come.
    pub fn bytes(self, cpus: u32) -> u64 {
        let cpus = u64::from(cpus.max(1));
        let value = self.value.next_multiple_of(8);
        let key = self.key.next_multiple_of(8);
        // struct bpf_map with what each type adds to it.
        let head = 512;
        let table = self.entries.max(1).next_power_of_two() * 16;
        let element = 48 + key;
        let bytes = match self.map_type {
            map_type::ARRAY | map_type::PROGRAMS => head + self.entries * value,
            map_type::PER_CPU_ARRAY => head + self.entries * (8 + value * cpus),
            // A spare element and a pointer to it for each CPU.
            map_type::HASH => head + table + (element + value) * (self.entries + cpus) + 8 * cpus,
            map_type::LRU_HASH => head + table + (element + value) * self.entries,
            map_type::PER_CPU_HASH => {
                head + table + (element + 8) * self.entries + value * cpus * self.entries
            }
            map_type::STACK => head + (self.entries + 1) * self.value,
            // It is not made.
            map_type::RING if self.entries == 0 => 0,
            // Its pages, three for the positions, and the list of all of them, in which those of the data are twice.
            map_type::RING => {
                let data = self.entries / PAGE;
                head + (data + 3) * PAGE + (2 * data + 3) * 8
            }
            // Kept with threads or sockets: a table of locks.
            _ => head + cpus.next_power_of_two().max(2) * 24,
        };
        bytes.next_multiple_of(PAGE)
    }
}

/// The maps of an object, each with as many entries as `sizes` says or the object itself.
pub(super) fn shapes(
    bytes: &[u8],
    sizes: &[(&str, u32)],
) -> Result<Vec<(String, Shape)>, AttachError> {
    let parsed = Parsed::parse(bytes).map_err(|_| AttachError::Mismatch("readable ELF"))?;
    Ok(shapes_of(&parsed, sizes))
}

pub(super) fn shapes_of(parsed: &Parsed, sizes: &[(&str, u32)]) -> Vec<(String, Shape)> {
    let shape = |(name, map): (&String, &aya_obj::Map)| {
        let sized = sizes.iter().find(|(sized, _)| sized == name);
        let shape = Shape {
            map_type: map.map_type(),
            key: u64::from(map.key_size()),
            value: u64::from(map.value_size()),
            entries: u64::from(sized.map_or(map.max_entries(), |(_, entries)| *entries)),
            grows: map.map_flags() & NO_PREALLOC != 0,
        };
        (name.clone(), shape)
    };
    parsed.maps.iter().map(shape).collect()
}

/// What maps take together.
pub(super) fn sum<'a>(shapes: impl IntoIterator<Item = &'a (String, Shape)>, cpus: u32) -> u64 {
    shapes.into_iter().map(|(_, shape)| shape.bytes(cpus)).sum()
}

/// There is not so much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it takes {} of the agent's memory on this node with room for {cpus} CPUs, and {} are left: raise \
     agent.resources.limits.memory of the chart (now {}), or ask for less",
    megabytes(*.needed), megabytes(*.available), megabytes(*.limit)
)]
pub struct NoMemory {
    /// Bytes that it takes.
    pub needed: u64,
    /// Bytes that there are.
    pub available: u64,
    /// What the agent has in all.
    pub limit: u64,
    /// The CPUs that there may be.
    pub cpus: u32,
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// How much of the agent's memory there is for maps and books, and how much is taken.
#[derive(Debug)]
pub struct MemoryBudget {
    limit: AtomicU64,
    maps: AtomicU64,
    /// What is taken by maps that are about to be gone.
    leaving: AtomicU64,
    books: AtomicU64,
    /// How much of all of that is whose.
    payers: Payers,
}

/// What is taken of it by maps, until it is dropped.
#[derive(Debug)]
pub struct Reservation {
    account: &'static MemoryBudget,
    bytes: u64,
    leaves: bool,
    /// On whose behalf.
    payer: Option<Arc<str>>,
}

/// That of this process: it has one memory.
static OF_THIS_PROCESS: MemoryBudget = MemoryBudget::new();

/// That of this process.
pub fn budget() -> &'static MemoryBudget {
    &OF_THIS_PROCESS
}

impl MemoryBudget {
    /// Without a limit.
    pub const fn new() -> Self {
        Self {
            limit: AtomicU64::new(u64::MAX),
            maps: AtomicU64::new(0),
            leaving: AtomicU64::new(0),
            books: AtomicU64::new(0),
            payers: Payers::new(),
        }
    }

    /// The process may take so many bytes in all.
    pub fn limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// The books take so many more, if there is room, also for whoever [pays](on_behalf_of); until it is said what they take in all.
    pub fn take_books(&self, more: u64) -> bool {
        let payer = payer();
        let left = |books: u64| self.all().saturating_sub(self.maps()).saturating_sub(books);
        let taken = |books: u64| (more <= left(books)).then(|| books.saturating_add(more));
        let order = Ordering::Relaxed;
        more <= self.left_for(payer.as_ref()) && {
            let fits = self.books.fetch_update(order, order, taken).is_ok();
            if fits {
                self.payers.take_books(payer.as_ref(), more);
            }
            fits
        }
    }

    /// The books take so many, of each who pays.
    pub fn set_books(&self, bytes: BTreeMap<Arc<str>, u64>) {
        self.books.store(bytes.values().sum(), Ordering::Relaxed);
        self.payers.set_books(bytes);
    }

    /// What maps have taken.
    pub fn maps(&self) -> u64 {
        self.maps.load(Ordering::Relaxed)
    }

    /// What there is for maps and books, taken or not.
    pub fn all(&self) -> u64 {
        match self.limit.load(Ordering::Relaxed) {
            u64::MAX => u64::MAX,
            limit => limit.saturating_sub(OWN),
        }
    }

    /// What nobody has taken.
    pub fn left(&self) -> u64 {
        self.left_beside(self.maps())
    }

    /// What is left for a namespace, which leaves a part for others; for the node itself, all that there is.
    fn left_for(&self, payer: Option<&Arc<str>>) -> u64 {
        let left = self.left();
        payer.map_or(left, |payer| payers::share(self.payers.held(payer), left))
    }

    /// The same of who [pays](on_behalf_of) now.
    pub fn left_for_the_payer(&self) -> u64 {
        self.left_for(payer().as_ref())
    }

    /// Looks and takes in one: several processes are begun at a time. Of one namespace they may come to a little more than its share.
    fn reserve(&self, bytes: u64, leaving: u64, payer: Option<&Arc<str>>) -> bool {
        if bytes > self.left_for(payer) {
            return false;
        }
        let taken = |maps: u64| {
            let left = self.left_beside(maps.saturating_add(leaving));
            (bytes <= left).then(|| maps.saturating_add(bytes))
        };
        let order = Ordering::Relaxed;
        let fits = self.maps.fetch_update(order, order, taken).is_ok();
        if fits {
            self.payers.take(payer, bytes);
        }
        fits
    }

    fn left_beside(&self, maps: u64) -> u64 {
        let taken = maps.saturating_add(self.books.load(Ordering::Relaxed));
        self.all().saturating_sub(taken)
    }

    /// What is left for one target's maps.
    pub fn left_for_a_target(&self) -> u64 {
        self.left_for_the_payer().min(self.all() / TARGETS)
    }

    /// Takes so many bytes for maps. Where they fit only once others are gone that are about to be, waits for those for a while:
    /// not to be called where that keeps anybody waiting.
    pub fn take(&'static self, bytes: u64, cpus: u32) -> Result<Reservation, NoMemory> {
        let begun = Instant::now();
        let payer = payer();
        loop {
            // What is about to be gone is still there: whoever changes an order over and over would have it there many times.
            let leaving = match begun.elapsed() < GONE {
                true => self.leaving.load(Ordering::Relaxed),
                false => 0,
            };
            if self.reserve(bytes, leaving, payer.as_ref()) {
                return Ok(Reservation {
                    account: self,
                    bytes,
                    leaves: false,
                    payer,
                });
            }
            let left = self.left_for(payer.as_ref());
            if bytes > left {
                return Err(self.refusal(bytes, left, cpus));
            }
            thread::sleep(LOOK);
        }
    }

    /// Room for nothing yet, which can grow.
    pub fn empty(&'static self) -> Reservation {
        Reservation {
            account: self,
            bytes: 0,
            leaves: false,
            payer: payer(),
        }
    }

    /// Says that what is needed is more than what there is.
    pub fn refusal(&self, needed: u64, available: u64, cpus: u32) -> NoMemory {
        NoMemory {
            needed,
            available,
            limit: self.limit.load(Ordering::Relaxed),
            cpus,
        }
    }
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self::new()
    }
}

impl Reservation {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Has so many bytes in all, if those that it has not yet are left, and one target may have as many.
    pub fn set(&mut self, bytes: u64) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.keep(bytes);
            return true;
        };
        let leaving = self.account.leaving.load(Ordering::Relaxed);
        let fits = bytes <= self.account.all() / TARGETS && {
            let payer = self.payer.as_ref();
            self.account.reserve(more, leaving, payer)
        };
        if fits {
            self.bytes = bytes;
        }
        fits
    }

    /// Says that what it is to have in all is more than what it may have.
    pub fn refusal(&self, bytes: u64, cpus: u32) -> NoMemory {
        let left = self.account.left_for(self.payer.as_ref());
        let left = self.bytes.saturating_add(left);
        let available = left.min(self.account.all() / TARGETS);
        self.account.refusal(bytes, available, cpus)
    }

    /// Has so many bytes at most: gives the others back.
    pub fn keep(&mut self, bytes: u64) {
        let kept = self.bytes.min(bytes);
        self.account
            .maps
            .fetch_sub(self.bytes - kept, Ordering::Relaxed);
        let payers = &self.account.payers;
        payers.give_back(self.payer.as_ref(), self.bytes - kept);
        self.bytes = kept;
    }

    /// Its maps are about to be gone: what takes their place may count on it, and waits for it where it must.
    pub fn leave(&mut self) {
        if !std::mem::replace(&mut self.leaves, true) {
            // In this order: at no time it seems to be free.
            self.account
                .leaving
                .fetch_add(self.bytes, Ordering::Relaxed);
            self.account.maps.fetch_sub(self.bytes, Ordering::Relaxed);
            let payers = &self.account.payers;
            payers.give_back(self.payer.as_ref(), self.bytes);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let taken = match self.leaves {
            true => &self.account.leaving,
            false => &self.account.maps,
        };
        taken.fetch_sub(self.bytes, Ordering::Relaxed);
        if !self.leaves {
            let payers = &self.account.payers;
            payers.give_back(self.payer.as_ref(), self.bytes);
        }
    }
}

/// How many CPUs there may ever be.
pub fn possible_cpus() -> u32 {
    aya::util::nr_cpus().map_or(1, |cpus| u32::try_from(cpus).unwrap_or(u32::MAX))
}

/// Whether a map of this type is made with threads or sockets.
#[cfg(test)]
fn is_storage(map_type: u32) -> bool {
    [sys::TASK_STORAGE, sys::SOCKET_STORAGE].contains(&map_type)
}

#[cfg(test)]
mod tests;
