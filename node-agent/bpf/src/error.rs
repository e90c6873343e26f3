//! What the kernel refuses, and why.

use std::{error::Error, path::PathBuf};

use super::{memory::NoMemory, tracing::Traced};
use ckb_probe_symbols::text;

/// The kernel refused.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// A program was not accepted.
    #[error("the kernel does not accept the program {program}: {source} ({log})")]
    Program {
        /// The program that was refused.
        program: &'static str,
        /// The kernel's word.
        source: std::io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    /// The probes of a file were not accepted.
    #[error("cannot attach to {symbols} in {}: {source}", text::of_path(.path))]
    Link {
        /// The functions.
        symbols: String,
        /// The file.
        path: PathBuf,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// The probes of functions of the kernel were not accepted.
    #[error("cannot attach to the kernel's {functions}: {source}")]
    KernelLink {
        /// The functions.
        functions: String,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// A tracepoint cannot be attached to.
    #[error("cannot attach to the tracepoint {name}: {source}")]
    Tracepoint {
        /// The name that was not found.
        name: &'static str,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// The kernel lacks what a session program calls.
    #[error("the kernel has no sessions (Linux 6.13 has them), or no type information")]
    NoSession,
    /// Sessions at functions of the kernel would lose calls unseen.
    #[error("before Linux 6.14 the kernel has room for few calls in flight")]
    NoRoomForSessions,
    /// The kernel says nothing of its types, or nothing that can be read.
    #[error("the kernel's type information (/sys/kernel/btf/vmlinux) cannot be read: {0}")]
    NoTypes(#[source] std::io::Error),
    /// The kernel lacks a field that a program reads, or has it as a bit field.
    #[error("this kernel's struct {structure} has no field {field}")]
    NoField {
        /// The structure's name.
        structure: &'static str,
        /// The way to the field, from the structure.
        field: &'static str,
    },
    /// The kernel has no such thing to trace.
    #[error("this kernel has no {0}")]
    NotTraceable(Traced),
    /// The kernel keeps nothing with threads.
    #[error("the kernel cannot keep what is remembered of a thread (Linux 5.11 can): {0}")]
    TaskStorage(#[source] std::io::Error),
    /// The kernel keeps nothing with sockets.
    #[error("the kernel cannot keep what is remembered of a socket (Linux 5.11 can): {0}")]
    SocketStorage(#[source] std::io::Error),
    /// As many processes are traced as can be.
    #[error("there is no room for another process: {0}")]
    NoRoom(&'static str),
    /// The constants of an object were not accepted.
    #[error("the kernel does not accept the constants of a BPF object: {0}")]
    Data(#[source] std::io::Error),
    /// An iterator cannot be limited to a process, or does not run.
    #[error("cannot iterate: {0}")]
    Iterate(#[source] std::io::Error),
    /// It is not told since when a process has been, by which it is told apart from others of its number.
    #[error("/proc does not tell since when process {process} has been: {source}")]
    NoProcess {
        /// The process id.
        process: u32,
        /// What /proc said.
        source: std::io::Error,
    },
    /// It would have been attached, but that is for later, and why.
    #[error("{0}")]
    NotYet(String),
    /// A process lives on without its main thread.
    #[error(
        "the main thread of process {process} has ended: the kernel tells by it whose functions and stacks these are, also where other threads run. What \
         needs neither, such as syscalls, tcp and blockIo, is measured"
    )]
    NoMainThread {
        /// The process id.
        process: u32,
    },
    /// The memory of a process may not be read from outside.
    #[error(
        "the memory of process {process} may not be read from outside (with kernel.yama.ptrace_scope = 3 nobody may): {source}"
    )]
    Memory {
        /// The process id.
        process: u32,
        /// The kernel's word.
        source: std::io::Error,
    },
    /// The kernel has no uprobes by perf event.
    #[error("the kernel has no uprobes by perf event: {0}")]
    NoUprobePmu(#[source] std::io::Error),
    /// The kernel has no probes of its functions by perf event.
    #[error("the kernel has no kprobes by perf event: {0}")]
    NoKprobePmu(#[source] std::io::Error),
    /// Its maps are more than the agent's memory holds.
    #[error(transparent)]
    NoMemory(#[from] NoMemory),
    /// The object lacks a map or program that this version needs.
    #[error("the BPF object has no {0}: agent and object are of different versions")]
    Mismatch(&'static str),
    /// A map cannot be used.
    #[error(transparent)]
    Map(#[from] ReadError),
}

/// What the kernel says when it is short of something: a moment later it may have it.
const PASSING: [i32; 6] = [
    libc::EAGAIN,
    libc::EBUSY,
    libc::EINTR,
    libc::EMFILE,
    libc::ENFILE,
    libc::ENOMEM,
];

impl AttachError {
    /// Whether the same would be refused for as long as this kernel runs, as it lacks what is needed.
    pub fn is_lasting(&self) -> bool {
        match self {
            Self::Program { .. }
            | Self::Tracepoint { .. }
            | Self::NoTypes(_)
            | Self::TaskStorage(_)
            | Self::SocketStorage(_)
            | Self::Iterate(_)
            | Self::NoUprobePmu(_)
            | Self::NoKprobePmu(_) => !self.may_pass(),
            Self::NoSession
            | Self::NoRoomForSessions
            | Self::NoField { .. }
            | Self::NotTraceable(_) => true,
            Self::Link { .. }
            | Self::KernelLink { .. }
            | Self::NoProcess { .. }
            | Self::NoMainThread { .. }
            | Self::Memory { .. }
            | Self::NoRoom(_)
            | Self::NotYet(_)
            | Self::NoMemory(_)
            | Self::Data(_)
            | Self::Mismatch(_)
            | Self::Map(_) => false,
        }
    }

    /// Whether the kernel is only short of something, or this process is: of memory, of descriptors.
    pub fn may_pass(&self) -> bool {
        let number = std::iter::successors(self.source(), |&error| error.source())
            .find_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error());
        number.is_some_and(|number| PASSING.contains(&number))
    }
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
    /// The map that cannot be read.
    pub(super) map: String,
    /// The kernel's word.
    pub(super) source: Box<aya::maps::MapError>,
}

impl ReadError {
    /// A map that the kernel did not let be accessed.
    pub fn of(map: &str, source: std::io::Error) -> Self {
        Self {
            map: map.to_string(),
            source: Box::new(aya::maps::MapError::IoError(source)),
        }
    }
}
