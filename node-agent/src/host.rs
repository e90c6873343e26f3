//! One process on a host without Kubernetes: what the command line `ckb-probe` stands on.

pub use crate::driver::engine::Session;
use crate::{
    kernel::ReadError,
    mechanism::Refusal,
    observe::{self, Found, ObserveError, Process, Unmeasured},
};

/// Why a process cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There is no such process.
    #[error("no process {0}: name one that runs with --pid, or an executable with --executable")]
    NoProcess(String),
    /// It may not be looked at, or each of those that are called so may not be.
    #[error("process {0} may not be looked at: that takes root, or the capability SYS_PTRACE")]
    Denied(String),
    /// The number is a thread's.
    #[error("{thread} is a thread of process {process}: name that with --pid {process}")]
    Thread {
        /// The number that was named.
        thread: u32,
        /// Whose thread it is.
        process: u32,
    },
    /// It has ended, and is still listed.
    #[error(
        "process {0} is a zombie, which has ended: name one that runs with --pid, or an executable with --executable"
    )]
    Zombie(u32),
    /// It executes no program.
    #[error(
        "{0} is a thread of the kernel, which runs no program: name a process with --pid, or an executable with --executable"
    )]
    Kernel(u32),
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
    match pid {
        Some(pid) => numbered(pid),
        None => only(executable, observe::processes(|name| name == executable)?),
    }
}

/// The process of this number, which is not a thread's: nothing is counted of one thread, and its end is not told.
fn numbered(pid: u32) -> Result<Process, HostError> {
    match observe::unmeasured(pid) {
        Some(Unmeasured::Thread(process)) => {
            return Err(HostError::Thread {
                thread: pid,
                process,
            });
        }
        Some(Unmeasured::Zombie) => return Err(HostError::Zombie(pid)),
        Some(Unmeasured::Kernel) => return Err(HostError::Kernel(pid)),
        None => {}
    }
    match observe::process(pid, |_| true) {
        Ok(process) => process.ok_or_else(|| HostError::NoProcess(pid.to_string())),
        Err(error) if error.is_denied() => Err(HostError::Denied(pid.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// The one process that was found of this executable.
fn only(executable: &str, found: Found) -> Result<Process, HostError> {
    let Found {
        mut processes,
        unreadable,
    } = found;
    let name = executable.to_string();
    match (processes.pop(), processes.len()) {
        (Some(process), 0) => Ok(process),
        (Some(process), others) => Err(HostError::Ambiguous {
            name,
            count: others + 1,
            pids: listed(processes.iter().chain([&process]).map(|one| one.id.pid)),
        }),
        (None, _) => {
            // Whoever is not root is told no executables of others, but what they are called.
            let called = unreadable.into_iter();
            let called = listed(called.filter(|pid| observe::is_called(*pid, executable)));
            Err(match called.is_empty() {
                true => HostError::NoProcess(name),
                false => HostError::Denied(called),
            })
        }
    }
}

fn listed(pids: impl Iterator<Item = u32>) -> String {
    pids.map(|pid| pid.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests;
