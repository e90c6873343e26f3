//! One process on a host without Kubernetes: what the command line `ckb-probe` stands on.

use std::time::{Duration, Instant};

use ckb_probe_crds::{KindSpec, Overhead};
use serde_json::Value;

use crate::{
    driver::{
        Clock, Tools,
        measured::Measured,
        measurement::{MeasurementError, Total},
    },
    kernel::{CalibratedTier, ReadError},
    kinds::Instrumented,
    mechanism::{Event, Refusal},
    observe::{self, ObserveError, Process},
    preflight::Unmeasurable,
    state::{
        instance::{EARLY_DEATH, Instance, Terms},
        slow_calls::WINDOW,
    },
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
    /// It was attached to, and cannot be any more.
    #[error(transparent)]
    Measurement(#[from] MeasurementError),
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

/// A process with probes in place. Dropping it detaches them.
pub struct Session {
    /// The process.
    pub process: Process,
    /// What was counted.
    pub instance: Instance,
    measured: Measured,
    tools: Tools,
    clock: Clock,
    spent: Total,
}

impl Session {
    /// Attaches to whatever the process has of what is asked. To be called within a tokio runtime.
    pub fn attach(
        means: Result<CalibratedTier, Unmeasurable>,
        process: Process,
        question: KindSpec,
        overhead: Overhead,
        interval: Duration,
    ) -> Result<Self, HostError> {
        let terms = Terms {
            interval,
            overhead,
            early_death: EARLY_DEATH,
            profile_window: WINDOW,
        };
        let probe = Instrumented::new(question.kind().as_str(), question);
        let clock = Clock::start();
        let instance = Instance::new(InstanceKey::default(), vec![probe], terms, clock.now());
        let mut session = Self {
            measured: Measured::new(process.id)?,
            process,
            instance,
            tools: Tools::new(means.map_err(Refusal::from)),
            clock,
            spent: Total::default(),
        };
        session.measure();
        // A process that has just begun may not have mapped its libraries yet.
        while session
            .instance
            .probes
            .iter()
            .all(|book| !book.is_answered())
        {
            let retry = session.measured.retry_at().unwrap_or_else(Instant::now);
            std::thread::sleep(retry.saturating_duration_since(Instant::now()));
            if session.measured.finds_more(&session.tools) {
                session.measure();
            }
        }
        match session
            .instance
            .probes
            .iter()
            .find_map(|book| book.refusal())
        {
            Some(refusal) => Err(refusal.clone().into()),
            None => Ok(session),
        }
    }

    fn measure(&mut self) {
        let mut views = [(&mut self.instance, 0)];
        self.measured.measure(&self.tools, &mut views, self.clock);
        self.spent = Total::default();
    }

    /// What could not be measured, as the end of a sentence; empty when all is.
    pub fn lacks(&self) -> String {
        let coverage = self
            .instance
            .probes
            .iter()
            .filter_map(|book| book.coverage());
        coverage.map(|one| one.sentence.as_str()).collect()
    }

    /// When [`Self::step`] is due again; None when it never is.
    pub fn next_step(&self) -> Option<Instant> {
        let step = self.measured.next_step().map(|step| self.clock.0 + step);
        step.into_iter().chain(self.measured.retry_at()).min()
    }

    /// Keeps within the budget, and looks again for what was not found.
    pub fn step(&mut self) -> Result<(), HostError> {
        self.measured.step_here(self.clock)?;
        self.deliver();
        if self.measured.finds_more(&self.tools) {
            self.read()?;
            self.measure();
        }
        Ok(())
    }

    /// Takes in what the kernel has counted up to now.
    pub fn read(&mut self) -> Result<(), HostError> {
        if let Some(measurement) = self.measured.measurement(&self.tools) {
            measurement.read(self.clock.now())?;
        }
        self.deliver();
        Ok(())
    }

    fn deliver(&mut self) {
        let Some(measurement) = self.measured.measurement(&self.tools) else {
            return;
        };
        for entry in measurement.entries() {
            self.instance.take(&entry);
        }
    }

    /// Ends an interval: what was counted in it becomes the instance's current window.
    pub fn close_interval(&mut self) -> Result<(), HostError> {
        self.read()?;
        let now = self.clock.now();
        let Some(measurement) = self.measured.measurement(&self.tools) else {
            return Ok(());
        };
        let total = measurement.total(now);
        let ratio = total.ratio_since(&self.spent);
        self.spent = total;
        self.instance.close_interval(now, ratio, |series| {
            series.live && measurement.is_sampled(series.subscription.group)
        });
        Ok(())
    }

    /// Takes the events that the kernel has handed over since the last time, as lines of JSON.
    pub fn events(&mut self) -> Vec<Value> {
        let told = self.told_events().into_iter();
        told.map(|(_, line)| line).collect()
    }

    /// The same, each with what it is made of.
    pub fn told_events(&mut self) -> Vec<(Event, Value)> {
        let Some(measurement) = self.measured.measurement(&self.tools) else {
            return Vec::new();
        };
        let events = measurement.events();
        let instance = &mut self.instance;
        let told = events.into_iter().flat_map(|event| {
            let lines = instance.event(&event);
            lines.into_iter().map(move |line| (event.clone(), line))
        });
        told.collect()
    }

    /// The time since it began, in which its books count.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }
}
