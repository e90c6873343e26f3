//! One process on a host without Kubernetes: what the command line `ckb-probe` stands on.

use std::time::{Duration, Instant};

use ckb_probe_crds::{Overhead, Probe, kinds::rocksdb::RocksDbProbe};

use crate::{
    attach::{Coverage, TargetError},
    instance::{EARLY_DEATH, Instance, Terms},
    kinds::{self, Slot},
    measurement::{Measurement, MeasurementError, Reaper},
    observe::{self, ObserveError, Process, SymbolCache},
    probe::{Means, ReadError},
    slow::{self, SlowOperation},
    target::InstanceKey,
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
        /// Which.
        pids: String,
    },
    /// /proc would not tell.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// It cannot be attached to.
    #[error(transparent)]
    Attach(#[from] TargetError),
    /// The counts cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It was attached to, and cannot be any more.
    #[error(transparent)]
    Measurement(#[from] MeasurementError),
}

/// Finds a process by its number or by the base name of its executable.
pub fn find_process(pid: Option<u32>, executable: &str) -> Result<Process, HostError> {
    let all = observe::processes(|name| pid.is_some() || name == executable)?;
    let mut found: Vec<Process> = all
        .into_iter()
        .filter(|process| pid.is_none_or(|pid| process.id.pid == pid))
        .collect();
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

/// A process with probes in place. Dropping it detaches them.
pub struct Session {
    /// The process.
    pub process: Process,
    /// What could not be measured.
    pub coverage: Coverage,
    /// What was counted.
    pub instance: Instance,
    measurement: Measurement,
    started: Instant,
}

impl Session {
    /// Attaches to whatever of the probe's functions the process has.
    pub fn attach(
        means: Means,
        process: Process,
        kind: RocksDbProbe,
        overhead: Overhead,
        interval: Duration,
    ) -> Result<Self, HostError> {
        let slots = slots(kind);
        let mut coverage = Coverage::default();
        let started = Instant::now();
        let (measurement, now) = Measurement::begin(
            means,
            process.id,
            &slots,
            &overhead,
            &mut SymbolCache::default(),
            &mut coverage,
            &Reaper::start(),
            || started.elapsed(),
        )?;
        let terms = Terms {
            interval,
            overhead,
            early_death: EARLY_DEATH,
        };
        let mut instance = Instance::new(InstanceKey::default(), slots, terms, now);
        instance.attached(process.id, 0, coverage.clone(), now);
        Ok(Self {
            process,
            coverage,
            instance,
            measurement,
            started,
        })
    }

    /// When [`Self::step`] is due again; None when it never is.
    pub fn next_step(&self) -> Option<Instant> {
        Some(self.started + self.measurement.next_step()?)
    }

    /// Keeps within the budget.
    pub fn step(&mut self) -> Result<(), HostError> {
        let started = self.started;
        Ok(self
            .measurement
            .step(&mut self.instance, &|| started.elapsed())?)
    }

    /// Takes in what the kernel has counted up to now.
    pub fn read(&mut self) -> Result<(), HostError> {
        let now = self.started.elapsed();
        Ok(self.measurement.read(&mut self.instance, now)?)
    }

    /// Ends an interval: what was counted in it becomes the instance's current window.
    pub fn close_window(&mut self) -> Result<(), HostError> {
        self.read()?;
        let now = self.started.elapsed();
        let ratio = self.measurement.overhead_ratio(now);
        self.instance
            .close_window(now, ratio, |slot| self.measurement.is_sampled(slot));
        Ok(())
    }

    /// Takes the slow calls that the kernel has handed over since the last time.
    pub fn slow_operations(&mut self) -> Vec<SlowOperation> {
        slow::take(
            &mut self.measurement,
            &mut self.instance,
            observe::boot_time(),
        )
    }
}

/// The slots of one probe.
pub fn slots(kind: RocksDbProbe) -> Vec<Slot> {
    kinds::slots(&[Probe {
        name: "rocksdb".to_string(),
        rocksdb: Some(kind),
    }])
}
