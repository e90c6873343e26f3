//! Processes, and the containers they run in.
//!
//! No runtime socket is asked: which pod and which container a process is of stands in its cgroup's path, whatever the runtime
//! and the cgroup version, and nothing in the container can change that. The container's *name* stands in its mounts, since the
//! kubelet mounts `…/pods/<uid>/containers/<name>/<n>` into every container to take its termination message. So a container that
//! restarts is recognised by name at once, before the API server knows its new id. A pod's author can make other mounts that
//! look like these, so they count only where they name the pod that the cgroup names.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsRawFd, OwnedFd},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    time::{ClockId, clock_getcpuclockid},
    unistd::Pid,
};
use procfs::{ProcError, process as proc};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{AtFlags, CWD, StatxFlags, statx},
};
use tokio::io::{Interest, unix::AsyncFd};

pub use ckb_probe_core::process::{Place, Process, ProcessId};

use super::survivor::{directory, directory_in, survivor};
use crate::text;

/// CPU time a process has used, user and system.
pub type CpuTime = Duration;

/// /proc would not tell.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The process is gone, or is not ours to look at.
    #[error("cannot read /proc/{pid}: {source}")]
    Process {
        /// The process.
        pid: u32,
        /// The system's word.
        source: procfs::ProcError,
    },
    /// The processes cannot be listed.
    #[error("cannot list /proc: {0}")]
    List(#[from] io::Error),
    /// The process has no descriptor to be watched by.
    #[error("cannot watch process {pid} for its end: {source}")]
    Watch {
        /// The process.
        pid: u32,
        /// The system's word.
        source: io::Error,
    },
    /// A namespace of the process cannot be told.
    #[error("cannot read /proc/{pid}/ns/{name}: {source}")]
    Namespace {
        /// The process.
        pid: u32,
        /// The name of the field that is missing.
        name: &'static str,
        /// The system's word.
        source: io::Error,
    },
    /// The CPU clock of the process cannot be read.
    #[error("cannot read the CPU time of process {pid}: {source}")]
    Clock {
        /// The process.
        pid: u32,
        /// The system's word.
        source: io::Error,
    },
}

impl ObserveError {
    /// Whether it is the user who may not be told.
    pub fn is_denied(&self) -> bool {
        let Self::Process { source, .. } = self else {
            return false;
        };
        match source {
            ProcError::PermissionDenied(_) => true,
            ProcError::Io(error, _) => error.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

/// What was found in /proc.
#[derive(Debug, Default)]
pub struct Found {
    /// The processes that are wanted, in order of pid.
    pub processes: Vec<Process>,
    /// The numbers of processes of which /proc does not tell what they are: not to be taken for ended.
    pub unreadable: BTreeSet<u32>,
}

/// Every process whose executable's base name satisfies `wanted`.
///
/// One `readlink` for each process of the host; more is read of the wanted ones only. Processes that end
/// meanwhile are left out.
pub fn processes(wanted: impl Fn(&str) -> bool) -> Result<Found, ObserveError> {
    all_in(Path::new("/proc"), |directory, pid| {
        at(directory, pid, &wanted)
    })
}

/// The same of one process; None where it is not wanted, or gone.
pub fn process(pid: u32, wanted: impl Fn(&str) -> bool) -> Result<Option<Process>, ObserveError> {
    at(Path::new(&format!("/proc/{pid}")), pid, wanted)
}

/// What has a number in /proc, and executes no program that could be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmeasured {
    /// A thread of this process, which has a number of its own.
    Thread(u32),
    /// It has ended, and its parent has not asked how.
    Zombie,
    /// A thread of the kernel's.
    Kernel,
}

/// What has this number, where it is no process that runs; None where it is one, or there is none.
pub fn unmeasured(pid: u32) -> Option<Unmeasured> {
    let process = proc::Process::new(pid as i32).ok()?;
    // /proc has a directory for each thread, though it lists none.
    let group = process.status().ok()?.tgid as u32;
    if group != pid {
        return Some(Unmeasured::Thread(group));
    }
    let stat = process.stat().ok()?;
    if stat.flags().ok()?.contains(proc::StatFlags::PF_KTHREAD) {
        return Some(Unmeasured::Kernel);
    }
    let has_ended = stat.state == 'Z' && survivor(&PathBuf::from(format!("/proc/{pid}"))).is_none();
    has_ended.then_some(Unmeasured::Zombie)
}

/// Whether a process is called as an executable of this base name is when it begins, which everybody is told. It may have chosen
/// another name since.
pub fn is_called(pid: u32, executable: &str) -> bool {
    /// How much of a name the kernel keeps.
    const KEPT: usize = 15;
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let executable = executable.as_bytes();
    let kept = &executable[..executable.len().min(KEPT)];
    name.strip_suffix(b"\n") == Some(kept)
}

/// Whatever is made of the processes in this directory.
pub(super) fn all_in(
    root: &Path,
    mut look: impl FnMut(&Path, u32) -> Result<Option<Process>, ObserveError>,
) -> Result<Found, ObserveError> {
    let mut found = Found::default();
    for entry in std::fs::read_dir(root)? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        match look(&root.join(name), pid) {
            Ok(process) => found.processes.extend(process),
            Err(_) => {
                found.unreadable.insert(pid);
            }
        }
    }
    found.processes.sort_by_key(|process| process.id);
    Ok(found)
}

/// A process in its directory, without its container's name, which is dear to find out; None where it is not wanted, or gone.
pub(super) fn at(
    directory: &Path,
    pid: u32,
    wanted: impl Fn(&str) -> bool,
) -> Result<Option<Process>, ObserveError> {
    let read = || {
        let (place, found) = match executable(directory)? {
            Some(executable) => (directory.to_path_buf(), Some(executable)),
            // Also of threads of the kernel, which are many.
            None => {
                let place = directory_in(directory.to_path_buf());
                let found = match place == directory {
                    true => None,
                    false => executable(&place)?,
                };
                (place, found)
            }
        };
        let Some(executable) = found.filter(|executable| wanted(executable)) else {
            return Ok(None);
        };
        inspect(directory, &place, pid, executable).map(Some)
    };
    read().or_else(|source| match source {
        ProcError::NotFound(_) => Ok(None),
        source => Err(ObserveError::Process { pid, source }),
    })
}

/// The path of a file that a process had open under this descriptor, or `socket:[…]` and the like. None where the descriptor
/// stands for something else by now: of another inode, and of another name. Nothing is asked of the file's file system.
pub fn open_file(pid: u32, descriptor: u32, inode: u64, name: &[u8]) -> Option<String> {
    let place = directory(pid);
    let path = std::fs::read_link(place.join(format!("fd/{descriptor}"))).ok()?;
    let told = std::fs::read_to_string(place.join(format!("fdinfo/{descriptor}"))).ok();
    let number = told.as_deref().and_then(inode_in);
    let is_it = number == Some(inode)
        // Where file systems lie on one another, each has its own numbers.
        || path.file_name().is_some_and(|found| found.as_bytes() == name);
    is_it.then(|| text::of_path(&path))
}

/// What the kernel tells of an open file's inode (since Linux 5.14).
fn inode_in(information: &str) -> Option<u64> {
    let mut lines = information.lines();
    let number = lines.find_map(|line| line.strip_prefix("ino:"))?;
    number.trim().parse().ok()
}

/// The base name of a process's executable; None when it is gone.
pub fn executable_of(pid: u32) -> Option<String> {
    let name = executable(&directory(pid)).ok()?;
    name.map(|name| text::shown(&name))
}

/// The base name of the executable. None for kernel threads and for processes that are gone.
fn executable(directory: &Path) -> Result<Option<String>, ProcError> {
    let link = directory.join("exe");
    let target = match std::fs::read_link(&link) {
        Ok(target) => target,
        Err(error) => {
            let gone = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH));
            return if gone {
                Ok(None)
            } else {
                Err(ProcError::Io(error, Some(link)))
            };
        }
    };
    let name = target.file_name().and_then(|name| name.to_str());
    // The kernel's word for an executable that was replaced on disk while it runs.
    Ok(name.map(|name| name.strip_suffix(" (deleted)").unwrap_or(name).to_string()))
}

/// Since when it is there its main thread says, and where it is whoever is in that `place`.
fn inspect(
    directory: &Path,
    place: &Path,
    pid: u32,
    executable: String,
) -> Result<Process, ProcError> {
    let stat = proc::Process::new_with_root(directory.to_path_buf())?.stat()?;
    let cgroups = proc::Process::new_with_root(place.to_path_buf())?.cgroups()?;
    Ok(Process {
        id: ProcessId {
            pid,
            start_ticks: stat.starttime,
        },
        executable,
        place: Place::of(cgroups.into_iter().map(|cgroup| cgroup.pathname)),
        name: None,
    })
}

/// The CPU time that the process has used so far, to the nanosecond: /proc tells it in ticks of 10 ms.
pub fn cpu_time(process: ProcessId) -> Result<CpuTime, ObserveError> {
    let time = clock_getcpuclockid(Pid::from_raw(process.pid as i32)).and_then(ClockId::now);
    time.map(Duration::from)
        .map_err(|error| ObserveError::Clock {
            pid: process.pid,
            source: error.into(),
        })
}

/// How many bytes it has read and written by system calls so far; None where that may not be known.
pub fn bytes_moved(process: ProcessId) -> Option<u64> {
    let io = proc::Process::new(process.pid as i32).and_then(|process| process.io());
    let io = io.ok()?;
    Some(io.rchar.saturating_add(io.wchar))
}

/// How much of a process's memory is there, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resident {
    /// In all.
    pub all: u64,
    /// What is of no file.
    pub anonymous: u64,
}

/// How much of the process's memory is there; None where that cannot be told.
pub fn resident(process: ProcessId) -> Option<Resident> {
    let place = proc::Process::new_with_root(directory(process.pid));
    let status = place.and_then(|process| process.status()).ok()?;
    Some(Resident {
        all: status.vmrss? << 10,
        anonymous: status.rssanon? << 10,
    })
}

/// Whether seccomp restricts any thread of the process; also where that cannot be told.
pub fn is_confined(process: ProcessId) -> bool {
    let threads = proc::Process::new(process.pid as i32).and_then(|process| process.tasks());
    // A thread that ends meanwhile is no longer of interest.
    threads.map_or(true, |threads| {
        let mut states = threads.flatten().filter_map(|thread| thread.status().ok());
        states.any(|status| is_confined_by(&status))
    })
}

/// Whether seccomp restricts a thread: strictly, or by a filter.
pub(super) fn is_confined_by(status: &proc::Status) -> bool {
    status.seccomp.is_some_and(|mode| mode != 0)
}

/// The end of a process, told by the kernel and not by polling.
pub struct Exit(AsyncFd<OwnedFd>);

impl Exit {
    /// Watches a process. Inside a tokio runtime only. Fails when the process is gone.
    pub fn of(process: ProcessId) -> Result<Self, ObserveError> {
        let Life(fd) = Life::of(process)?;
        let error = |source| ObserveError::Watch {
            pid: process.pid,
            source,
        };
        #[expect(
            deprecated,
            reason = "an OwnedFd keeps the promise that its successor is unsafe for"
        )]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE).map_err(error)?;
        Ok(Self(fd))
    }

    /// Whether it has come.
    pub fn has_ended(&self) -> bool {
        has_ended(self.0.get_ref())
    }

    /// Whether it comes within this time.
    pub async fn comes_within(&self, time: Duration) -> bool {
        tokio::time::timeout(time, self.wait()).await.is_ok()
    }

    /// Waits for it.
    pub async fn wait(&self) {
        if let Err(error) = self.0.readable().await {
            tracing::warn!(fd = self.0.as_raw_fd(), %error, "cannot wait for a process's end");
        }
    }
}

/// Since when another process has the number of this one, as the time since boot; None where none has.
pub fn successor(process: ProcessId) -> Option<Duration> {
    let now = proc::Process::new(process.pid as i32).and_then(|process| process.stat());
    let began = now.ok()?.starttime;
    (began != process.start_ticks)
        .then(|| Duration::from_secs_f64(began as f64 / procfs::ticks_per_second() as f64))
}

/// The file that a process executes: its number, and when it began, it keeps at an exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    device: (u32, u32),
    inode: u64,
}

impl Program {
    /// That of a process; None where that may not be known, or the process has ended. By what the kernel knows: a file system that does not
    /// answer holds up nobody.
    pub fn of(process: ProcessId) -> Option<Self> {
        let path = directory(process.pid).join("exe");
        let file = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
        Some(Self {
            device: (file.stx_dev_major, file.stx_dev_minor),
            inode: file.stx_ino,
        })
    }
}

/// The end of a process, for who looks whether it has come, and does not wait for it.
pub struct Life(OwnedFd);

impl Life {
    /// Watches a process. Fails when it is gone.
    pub fn of(process: ProcessId) -> Result<Self, ObserveError> {
        let error = |source| ObserveError::Watch {
            pid: process.pid,
            source,
        };
        let fd = pidfd_open(process.pid).map_err(error)?;
        // The number may have been given to another process before the descriptor was opened.
        let started = proc::Process::new(process.pid as i32)
            .and_then(|process| process.stat())
            .map(|stat| stat.starttime);
        match started {
            Ok(start_ticks) if start_ticks == process.start_ticks => Ok(Self(fd)),
            _ => Err(error(io::Error::from_raw_os_error(libc::ESRCH))),
        }
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        has_ended(&self.0)
    }
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut looks = [PollFd::new(process, PollFlags::IN)];
    poll(&mut looks, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    rustix::process::pidfd_open(
        rustix::process::Pid::from_raw(pid as i32).ok_or(io::ErrorKind::InvalidInput)?,
        rustix::process::PidfdFlags::NONBLOCK,
    )
    .map_err(io::Error::from)
}

#[cfg(test)]
mod tests;
