//! What the kernel's accounts of a container and of its network say, and what that makes of an interval.
//!
//! Throttling is told by periods, and not by the time that `cpu.stat` has: that adds up what each CPU was kept from, so it may be many times the
//! interval. Waiting is told by pressure, of which the kernel keeps one sum for a cgroup, however many threads are in it: sums of each
//! thread (`schedstat`) are a file for each of 500 threads, and go when a thread ends.

use std::time::Duration;

use ckb_probe_crds::Contention;

/// The accounts at one time. What could not be read is None.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// When that was, by a clock that only goes on.
    pub at: Duration,
    /// For how long a thread of the container has waited for a CPU.
    pub cpu_wait: Option<Duration>,
    /// Of its CPU limit.
    pub throttling: Option<Throttling>,
    /// For how long a thread of the container has waited for a disk.
    pub disk_wait: Option<Duration>,
    /// Of its network.
    pub segments: Option<Segments>,
}

/// Periods of a CPU limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttling {
    /// Those in which something ran.
    pub periods: u64,
    /// Those in which the limit was used up.
    pub throttled: u64,
}

/// TCP segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// Those that were sent for the first time.
    pub sent: u64,
    /// Those that were sent again.
    pub again: u64,
}

impl Throttling {
    /// By the text of `cpu.stat`, of either version of cgroups; None where there is no CPU controller.
    pub fn of(text: &str) -> Option<Self> {
        let number = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            lines
                .find(|(known, _)| *known == name)?
                .1
                .trim()
                .parse()
                .ok()
        };
        Some(Self {
            periods: number("nr_periods")?,
            throttled: number("nr_throttled")?,
        })
    }
}

impl Segments {
    /// By the text of `/proc/PID/net/snmp`: a line of names and one of numbers for each protocol.
    pub fn of(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, numbers) = (lines.next()?, lines.next()?);
        let number = |name: &str| {
            let mut both = names.split(' ').zip(numbers.split(' '));
            both.find(|(known, _)| *known == name)?.1.parse().ok()
        };
        Some(Self {
            sent: number("OutSegs")?,
            again: number("RetransSegs")?,
        })
    }
}

/// For how long some thread of a cgroup waited, by the text of one of its files of pressure.
pub fn waited(text: &str) -> Option<Duration> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = some.split(' ').find_map(|one| one.strip_prefix("total="));
    total?.parse().ok().map(Duration::from_micros)
}

impl Accounts {
    /// What the time since then was like. Unset where either account lacks it, and where one went back: that is another's.
    pub fn since(&self, earlier: &Self) -> Contention {
        let passed = self.at.saturating_sub(earlier.at).as_micros() as u64;
        let waited = |now: Option<Duration>, before: Option<Duration>| {
            let waited = now?.checked_sub(before?)?.as_micros() as u64;
            millipercent(waited, passed)
        };
        let throttled = || {
            let (now, before) = (self.throttling?, earlier.throttling?);
            let periods = now.periods.checked_sub(before.periods)?;
            let throttled = now.throttled.checked_sub(before.throttled)?;
            match periods {
                // There is no limit, or nothing ran.
                0 => Some(0),
                _ => millipercent(throttled, periods),
            }
        };
        let retransmitted = || {
            let (now, before) = (self.segments?, earlier.segments?);
            let again = now.again.checked_sub(before.again)?;
            let sent = now.sent.checked_sub(before.sent)?;
            millipercent(again, sent.saturating_add(again))
        };
        Contention {
            cpu_wait_millipercent: waited(self.cpu_wait, earlier.cpu_wait),
            throttled_millipercent: throttled(),
            disk_wait_millipercent: waited(self.disk_wait, earlier.disk_wait),
            retransmitted_millipercent: retransmitted(),
        }
    }
}

/// A part of a whole, no more than that; None of nothing.
fn millipercent(part: u64, whole: u64) -> Option<u64> {
    let part = u128::from(part.min(whole)) * 100_000;
    part.checked_div(u128::from(whole))
        .and_then(|part| u64::try_from(part).ok())
}

#[cfg(test)]
mod tests;
