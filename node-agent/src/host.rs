//! One process on a host without Kubernetes: what the command line `ckb-probe` stands on.

pub use crate::driver::engine::Session;
use crate::{
    kernel::ReadError,
    mechanism::Refusal,
    observe::{self, ObserveError, Process},
};

/// Why a process cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There is no such process.
    #[error("no process {0}: name one that runs with --pid, or an executable with --executable")]
    NoProcess(String),
    /// There are several.
    #[error("{count} processes run {name} ({pids}): choose one with --pid")]
    Ambiguous {
        /// The executable.
        name: String,
        /// How many processes run it.
        count: usize,
        /// The process ids that match.
        pids: String,
    },
    /// /proc would not tell.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// It cannot be attached to.
    #[error(transparent)]
    Attach(#[from] Refusal),
    /// The counts cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Finds a process by its number or by the base name of its executable.
pub fn find_process(pid: Option<u32>, executable: &str) -> Result<Process, HostError> {
    let mut found: Vec<Process> = match pid {
        Some(pid) => observe::process(pid, |_| true)?.into_iter().collect(),
        None => observe::processes(|name| name == executable)?.processes,
    };
    match (found.pop(), found.len()) {
        (Some(process), 0) => Ok(process),
        (Some(process), others) => Err(HostError::Ambiguous {
            name: executable.to_string(),
            count: others + 1,
            pids: found
                .iter()
                .chain([&process])
                .map(|process| process.id.pid.to_string())
                .collect::<Vec<_>>()
                .join(", "),
        }),
        (None, _) => Err(HostError::NoProcess(
            pid.map_or_else(|| executable.to_string(), |pid| pid.to_string()),
        )),
    }
}
