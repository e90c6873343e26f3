//! Processes of this machine that belong to pods of the cluster.

use std::{path::PathBuf, time::Duration};

use procfs::process as proc;
use rustix::{
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
    time::{ClockId, clock_gettime},
};

use crate::{
    failure::{Failure, Result, expect},
    wait,
};

/// A process, told apart from a later one of the same number by when it started.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Process {
    /// Its number on this machine.
    pub pid: i32,
    start_ticks: u64,
}

/// Since boot, on the clock that starts of processes are told in.
pub fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// What a process uses.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Resident, in bytes.
    pub resident: u64,
    /// The part of it that no file backs, in bytes.
    pub anonymous: u64,
}

impl Process {
    /// The process of this number.
    pub fn of(pid: i32) -> Result<Self> {
        let stat = proc::Process::new(pid)
            .and_then(|process| process.stat())
            .map_err(Failure::format(format!("/proc/{pid}/stat")))?;
        Ok(Self {
            pid,
            start_ticks: stat.starttime,
        })
    }

    /// The oldest process that runs an executable of this base name in a cgroup whose path has this id: that of a
    /// container, or the uid of a pod.
    pub fn in_cgroup(id: &str, executable: &str) -> Result<Self> {
        let all = proc::all_processes().map_err(Failure::format("/proc"))?;
        let is_in_it = |process: &proc::Process| {
            let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", process.pid));
            cgroups.is_ok_and(|cgroups| cgroups.contains(id))
        };
        all.flatten()
            .filter(|process| {
                process
                    .exe()
                    .is_ok_and(|path| path.file_name().is_some_and(|name| name == executable))
            })
            .filter(is_in_it)
            .filter_map(|process| Self::of(process.pid).ok())
            .min_by_key(|process| (process.start_ticks, process.pid))
            .ok_or_else(|| {
                Failure::missing(format!(
                    "a process {executable} in the container or pod {id}"
                ))
            })
    }

    /// A path as the process sees it, from here.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.pid))
    }

    /// What the kernel tells of it: a file of its folder in /proc.
    pub fn proc(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.pid);
        std::fs::read_to_string(&path).map_err(Failure::system(path))
    }

    /// Whether it still is, and has not ended.
    pub fn is_alive(&self) -> bool {
        self.stat()
            .is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X'))
    }

    /// When it started, since boot, to a hundredth of a second.
    pub fn started(&self) -> Duration {
        Duration::from_secs_f64(self.start_ticks as f64 / procfs::ticks_per_second() as f64)
    }

    /// CPU time used so far, by user and system.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = self.stat()?;
        let ticks = (stat.utime + stat.stime) as f64;
        Ok(Duration::from_secs_f64(
            ticks / procfs::ticks_per_second() as f64,
        ))
    }

    /// Memory in use.
    pub fn memory(&self) -> Result<Memory> {
        self.stat()?;
        let status = proc::Process::new(self.pid)
            .and_then(|process| process.status())
            .map_err(Failure::format(format!("/proc/{}/status", self.pid)))?;
        let bytes = |kib: Option<u64>| kib.unwrap_or_default() * 1024;
        Ok(Memory {
            resident: bytes(status.vmrss),
            anonymous: bytes(status.rssanon),
        })
    }

    /// Sends a signal to this process, and never to a later one of the same number.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let what = || format!("cannot send {signal:?} to the process {}", self.pid);
        let pid = Pid::from_raw(self.pid)
            .ok_or_else(|| Failure::unexpected("the number of a process", self.pid.to_string()))?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty())
            .map_err(|error| Failure::system(what())(error.into()))?;
        // Looked at after the descriptor was opened: it stands for the process that we mean.
        self.stat()?;
        pidfd_send_signal(descriptor, signal).map_err(|error| Failure::system(what())(error.into()))
    }

    /// Waits until it has ended.
    pub async fn ended(&self, limit: Duration) -> Result<()> {
        wait::closely("the end of the process", limit, async || {
            expect(
                !self.is_alive(),
                format!("the process {} to end", self.pid),
                || "it lives",
            )
        })
        .await
    }

    /// Stops all of its threads until [`Stopped`] is dropped.
    pub async fn stop(&self) -> Result<Stopped> {
        let stopped = Stopped(*self);
        self.signal(Signal::STOP)?;
        wait::closely(
            "every thread to stop",
            Duration::from_secs(10),
            async || {
                let states = self.thread_states()?;
                expect(
                    states.iter().all(|state| *state == 'T'),
                    "every thread in the state T",
                    || format!("{states:?}"),
                )
            },
        )
        .await?;
        Ok(stopped)
    }

    fn stat(&self) -> Result<proc::Stat> {
        let stat = proc::Process::new(self.pid)
            .and_then(|process| process.stat())
            .map_err(Failure::format(format!("/proc/{}/stat", self.pid)))?;
        expect(
            stat.starttime == self.start_ticks,
            format!("the process {} that there was", self.pid),
            || "a later one of the same number",
        )?;
        Ok(stat)
    }

    fn thread_states(&self) -> Result<Vec<char>> {
        let what = || format!("/proc/{}/task", self.pid);
        let tasks = proc::Process::new(self.pid)
            .and_then(|process| process.tasks())
            .map_err(Failure::format(what()))?;
        Ok(tasks
            .flatten()
            .filter_map(|task| task.stat().ok())
            .map(|stat| stat.state)
            .collect())
    }
}

/// A process that is stopped. Goes on when this is dropped.
#[derive(Debug)]
pub struct Stopped(Process);

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = self.0.signal(Signal::CONT);
    }
}
