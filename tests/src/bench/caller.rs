//! The program `call-cost`, which calls something over and over and says what that took.

use std::process::Command;

use ckb_probe_testkit::Fixture;

use super::prelude::*;

/// The base name of its executable.
pub const EXECUTABLE: &str = "call-cost";

/// A running one.
pub struct Caller {
    /// The process that calls.
    pub process: Process,
    fixture: Fixture,
}

/// Where it is.
pub fn file() -> PathBuf {
    fixtures().join(EXECUTABLE)
}

impl Caller {
    /// Starts one, wherever the kernel likes.
    pub fn start() -> Result<Self> {
        Self::run(Command::new(file()))
    }

    /// Starts one that stays on a processor.
    pub fn start_on(processor: usize) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &processor.to_string()]);
        command.arg(file());
        Self::run(command)
    }

    /// Starts one in a container.
    pub fn start_in(container: &Container) -> Result<Self> {
        Self::run(container.command(&file(), [""; 0]))
    }

    fn run(mut command: Command) -> Result<Self> {
        let mut fixture = Fixture::run(&mut command);
        // Whatever started it has become it.
        fixture.answer();
        let process = Process::of(fixture.pid() as i32)?;
        Ok(Self { process, fixture })
    }

    /// Makes so many calls, and returns how many nanoseconds of CPU time they took in all.
    pub fn call(&mut self, function: &str, calls: u64) -> Result<u64> {
        self.begin(function, calls);
        let line = self.fixture.answer();
        line.parse()
            .map_err(Failure::format(format!("{line:?} of {EXECUTABLE}")))
    }

    /// Begins to make them.
    pub fn begin(&mut self, function: &str, calls: u64) {
        self.fixture.order(&format!("{function} {calls}"));
    }

    /// What one call takes: the median of some batches, in nanoseconds.
    pub fn cost(&mut self, function: &str, calls: u64, batches: usize) -> Result<f64> {
        let costs = (0..batches).map(|_| Ok(self.call(function, calls)? as f64 / calls as f64));
        let costs = summary(costs.collect::<Result<Vec<f64>>>()?);
        costs
            .map(|costs| costs.median)
            .ok_or_else(|| Failure::format(EXECUTABLE)("no batch of calls"))
    }
}
