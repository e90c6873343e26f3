//! One process on a host without Kubernetes: what the command line `ckb-probe` stands on.

use std::time::{Duration, Instant};

use ckb_probe_crds::{Overhead, Probe, kinds::rocksdb::RocksDbProbe};

use crate::{
    attach::{Coverage, TargetError, attach},
    instance::Instance,
    kinds::{self, Slot},
    observe::{self, ObserveError, Process},
    probe::{Means, Probes, ReadError, SlowCall},
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
    probes: Probes,
    started: Instant,
    cost: Duration,
}

impl Session {
    /// Attaches to whatever of the probe's functions the process has.
    pub fn attach(
        means: Means,
        process: Process,
        kind: RocksDbProbe,
        interval: Duration,
    ) -> Result<Self, HostError> {
        let slots = slots(kind);
        let mut coverage = Coverage::default();
        let probes = attach(means, process.id, &slots, &mut coverage)?;
        let mut instance = Instance::new(
            InstanceKey::default(),
            slots,
            interval,
            Overhead::default(),
            Duration::ZERO,
        );
        let started = Instant::now();
        let cpu = observe::cpu_time(process.id).ok();
        instance.attached(process.id, 0, coverage.clone(), cpu, Duration::ZERO);
        Ok(Self {
            process,
            coverage,
            instance,
            probes,
            started,
            cost: Duration::from_nanos(means.calibration.cost_per_call_ns),
        })
    }

    /// Takes in what the kernel has counted up to now.
    pub fn read(&mut self) -> Result<(), HostError> {
        let reading = self.probes.read()?;
        self.instance.observe(&reading, self.started.elapsed());
        Ok(())
    }

    /// Ends an interval: what was counted in it becomes the instance's current window.
    pub fn close_window(&mut self) -> Result<(), HostError> {
        self.read()?;
        let cpu = observe::cpu_time(self.process.id).ok();
        self.instance
            .close_window(self.started.elapsed(), cpu, self.cost);
        Ok(())
    }

    /// Takes the slow calls that the kernel has handed over since the last time, with their operations.
    pub fn slow_calls(&mut self) -> Vec<(&'static str, SlowCall)> {
        let operations: Vec<&'static str> = self
            .instance
            .series
            .iter()
            .map(|series| series.slot.operation)
            .collect();
        self.probes
            .slow_calls()
            .into_iter()
            .filter_map(|call| Some((*operations.get(call.slot as usize)?, call)))
            .collect()
    }
}

/// The slots of one probe.
pub fn slots(kind: RocksDbProbe) -> Vec<Slot> {
    kinds::slots(&[Probe {
        name: "rocksdb".to_string(),
        rocksdb: Some(kind),
    }])
}
