//! `ticker`, a program that calls RocksDB's functions at a steady pace from its start on, in a container.

use ckb_probe_crds::kinds::rocksdb::{Operation, RocksDbProbe};
use rustix::time::{ClockId, clock_gettime};

use super::prelude::*;

/// The base name of its executable.
pub const EXECUTABLE: &str = "ticker";

/// The operations that its calls count as, in turn, and no other.
pub fn question() -> RocksDbProbe {
    RocksDbProbe {
        operations: vec![Operation::Get, Operation::TxnGet, Operation::TxnPut],
        ..RocksDbProbe::default()
    }
}

/// A running ticker.
pub struct Ticker {
    /// The process of the ticker.
    pub process: Process,
    child: Child,
    started: Duration,
}

/// The calls that a ticker made.
pub struct Ticks {
    times: Vec<Duration>,
}

impl Ticker {
    /// Starts one that makes so many calls a second.
    pub fn start(container: &Container, rate: u32) -> Result<Self> {
        Self::start_at(&fixtures().join(EXECUTABLE), container, rate)
    }

    /// The same, of a copy of the program.
    pub fn start_at(program: &Path, container: &Container, rate: u32) -> Result<Self> {
        // Before the fork, and so before the exec: what is found is never less than it was.
        let started = now();
        let child = command(container, program, [rate.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Failure::system(EXECUTABLE))?;
        Ok(Self {
            process: of(&child)?,
            child,
            started,
        })
    }

    /// Ends it, and returns when it made each of its calls.
    pub async fn stop(self) -> Result<Ticks> {
        self.process.signal(Signal::TERM)?;
        let output = self.child.wait_with_output().await;
        let output = output.map_err(Failure::system(EXECUTABLE))?.stdout;
        let times = String::from_utf8_lossy(&output)
            .lines()
            .map(|nanos| nanos.parse().map(Duration::from_nanos))
            .map(|time| time.map(|time| time.saturating_sub(self.started)))
            .collect::<std::result::Result<_, _>>()
            .map_err(Failure::format("the times of ticker"))?;
        Ok(Ticks { times })
    }
}

impl Ticks {
    /// How many there were.
    pub fn made(&self) -> u64 {
        self.times.len() as u64
    }

    /// Since its start, when it made the first of the calls that were counted: the last `counted` ones. None when none was,
    /// or more than it made.
    pub fn first_counted(&self, counted: u64) -> Option<Duration> {
        let missed = self.made().checked_sub(counted)?;
        self.times.get(missed as usize).copied()
    }
}

fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_counted_call_follows_those_that_were_missed() {
        let times = [1, 2, 3].map(Duration::from_millis).to_vec();
        let ticks = Ticks { times };
        assert_eq!(ticks.first_counted(3), Some(Duration::from_millis(1)));
        assert_eq!(ticks.first_counted(1), Some(Duration::from_millis(3)));
        assert_eq!(ticks.first_counted(0), None);
        assert_eq!(ticks.first_counted(4), None);
    }
}
