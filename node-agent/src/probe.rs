//! The kernel side of a target: one loaded BPF object for each process, its maps sized to what is measured
//! and freed with it. The one module that names aya or makes bpf(2) calls.
//!
//! All links are file descriptors of this process: however it ends, the kernel removes every probe.
#![allow(unsafe_code)]

mod calibrate;
mod maps;
mod perf_event;
mod uprobe_multi;

use std::{error::Error, path::PathBuf, sync::Arc};

use aya::{Ebpf, EbpfLoader, include_bytes_aligned, programs::ProgramError};
pub use calibrate::{Calibration, CalibrationError, Means, Preflight, calibrate, preflight};
use ckb_probe_common::Cookie;
pub use ckb_probe_common::{Payload, SlowCall};
use maps::Maps;
pub use maps::{Reading, SlotReading};

use crate::observe::Binary;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/calls"));

/// Calls of one target that may be in flight at a time, in all threads; more are lost, and counted as lost.
const IN_FLIGHT: u32 = 8192;

/// How the kernel is asked to attach: the one thing that differs between kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// One link for all functions of a file: kernel 6.6 and later. Detaches in milliseconds.
    UprobeMulti,
    /// A pair of perf events for each function: kernel 5.15 and later, needs CAP_SYS_ADMIN. Detaching takes the
    /// kernel a tenth of a second or two for each event.
    PerfEvent,
}

impl Tier {
    /// Every tier, the best first.
    pub const ALL: [Self; 2] = [Self::UprobeMulti, Self::PerfEvent];

    /// The word in statuses and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UprobeMulti => "uprobe-multi",
            Self::PerfEvent => "perf-event",
        }
    }

    fn attach(self, object: &mut Ebpf, pid: u32, sites: &[Site]) -> Result<Links, AttachError> {
        match self {
            Self::UprobeMulti => uprobe_multi::attach(object, pid, sites).map(Links::UprobeMulti),
            Self::PerfEvent => perf_event::attach(object, pid, sites).map(|()| Links::InObject),
        }
    }
}

/// What keeps probes in place, until it is dropped.
#[expect(dead_code, reason = "kept to be dropped")]
enum Links {
    UprobeMulti(uprobe_multi::Links),
    /// aya keeps a program's links with the program.
    InObject,
}

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
    /// Calls that take at least this long are slow.
    pub slow_threshold_ns: u64,
}

impl Site {
    fn cookie(&self) -> u64 {
        Cookie::new(self.slot, self.payload, self.slow_threshold_ns).0
    }
}

/// The kernel refused.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The object was not accepted.
    #[error("the kernel does not accept the BPF object: {}", causes(.0))]
    Load(#[source] Box<aya::EbpfError>),
    /// A program was not accepted.
    #[error("the kernel does not accept the program {program}: {}", causes(source))]
    Verify {
        /// Which.
        program: &'static str,
        /// The kernel's word.
        source: Box<ProgramError>,
    },
    /// A program was not accepted.
    #[error("the kernel does not accept the program {program}: {source} ({log})")]
    Program {
        /// Which.
        program: &'static str,
        /// The kernel's word.
        source: std::io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    /// The probes of a file were not accepted.
    #[error("cannot attach to {symbols} in {path}: {source}")]
    Link {
        /// The functions.
        symbols: String,
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// A probe was not accepted.
    #[error("cannot attach to {symbol} at {path}+{offset:#x}: {}", causes(source))]
    Attach {
        /// The function.
        symbol: String,
        /// The file.
        path: PathBuf,
        /// The offset in it.
        offset: u64,
        /// The kernel's word.
        source: Box<ProgramError>,
    },
    /// The object lacks a map or program that this version needs.
    #[error("the BPF object has no {0}: agent and object are of different versions")]
    Mismatch(&'static str),
    /// A map cannot be used.
    #[error(transparent)]
    Map(#[from] ReadError),
}

/// An error and what caused it: aya says which call failed, and its source says why.
fn causes(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    let mut parts: Vec<String> = chain.map(ToString::to_string).collect();
    parts.dedup();
    parts.join(": ")
}

/// The maps cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot access the map {map}: {}", causes(source))]
pub struct ReadError {
    /// Which.
    map: &'static str,
    /// The kernel's word.
    source: Box<aya::maps::MapError>,
}

/// What to load for one process.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The process, in the host's pid namespace.
    pub pid: u32,
    /// How many slots the sites count in.
    pub slots: u8,
    /// The functions.
    pub sites: Vec<Site>,
    /// Size of the ring buffer for slow calls: a power of two, and a multiple of the page size.
    pub ring_bytes: u32,
    /// Nanoseconds that the traps add to every call as the programs see it: see [`Calibration::trap_ns`].
    pub trap_ns: u64,
}

/// A ring of 64 KiB: a thousand slow calls between two readings.
pub const DEFAULT_RING_BYTES: u32 = 64 << 10;

/// Probes in place on one process. Dropping it detaches them all.
pub struct Probes {
    // Declared first: links go before the maps they write to.
    _links: Links,
    _object: Ebpf,
    maps: Maps,
}

impl Probes {
    /// Loads an object for the process and attaches to every site, or to none.
    pub fn attach(tier: Tier, plan: &Plan) -> Result<Self, AttachError> {
        let slots = u32::from(plan.slots).max(1);
        let mut object = EbpfLoader::new()
            // No program here is relocated against the kernel's types: do not hold a copy of them.
            .btf(None)
            .override_global("TRAP_NS", &plan.trap_ns, true)
            .map_max_entries("SLOTS", slots)
            .map_max_entries("MAXIMA", slots * 2)
            .map_max_entries("IN_FLIGHT", IN_FLIGHT)
            .map_max_entries("SLOW_CALLS", plan.ring_bytes)
            .load(OBJECT)
            .map_err(|error| AttachError::Load(Box::new(error)))?;
        release_memory();
        let links = tier.attach(&mut object, plan.pid, &plan.sites)?;
        let maps = Maps::take(&mut object, slots)?;
        Ok(Self {
            _links: links,
            _object: object,
            maps,
        })
    }

    /// What was counted since the attach; maxima since the last reading.
    pub fn read(&mut self) -> Result<Reading, ReadError> {
        self.maps.read()
    }

    /// Takes the slow calls that wait in the ring buffer.
    pub fn slow_calls(&mut self) -> Vec<SlowCall> {
        self.maps.slow_calls()
    }
}

/// Gives freed pages back. Reading the kernel's type information takes some 10 MB that the allocator would keep.
fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests;
