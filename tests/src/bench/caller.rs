//! The program `call-cost`, which calls something over and over and says what that took.

use std::{path::PathBuf, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{agent::of, container::Container, statistics::summary};
use crate::{
    failure::{Failure, Result},
    fixture::fixtures,
    process::Process,
};

/// The base name of its executable.
pub const EXECUTABLE: &str = "call-cost";

/// A running one.
pub struct Caller {
    /// The process that calls.
    pub process: Process,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

/// Where it is.
pub fn file() -> PathBuf {
    fixtures().join(EXECUTABLE)
}

impl Caller {
    /// Starts one, wherever the kernel likes.
    pub async fn start() -> Result<Self> {
        Self::run(Command::new(file())).await
    }

    /// Starts one that stays on a processor.
    pub async fn start_on(processor: usize) -> Result<Self> {
        let mut command = Command::new("taskset");
        command
            .args(["--cpu-list", &processor.to_string()])
            .arg(file());
        Self::run(command).await
    }

    /// Starts one in a container.
    pub async fn start_in(container: &Container) -> Result<Self> {
        Self::run(container.command(&file(), [""; 0])).await
    }

    async fn run(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system(EXECUTABLE))?;
        let missing = || Failure::format(EXECUTABLE)("it has no pipe");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let mut output = BufReader::new(output).lines();
        // Whatever started it has become it.
        line(&mut output).await?;
        Ok(Self {
            process: of(&child)?,
            input,
            output,
            _child: child,
        })
    }

    /// Makes so many calls, and returns how many nanoseconds of CPU time they took in all.
    pub async fn call(&mut self, function: &str, calls: u64) -> Result<u64> {
        self.begin(function, calls).await?;
        self.end().await
    }

    /// Begins to make them.
    pub async fn begin(&mut self, function: &str, calls: u64) -> Result<()> {
        let order = format!("{function} {calls}\n");
        self.input
            .write_all(order.as_bytes())
            .await
            .map_err(Failure::system(EXECUTABLE))
    }

    /// Waits until they are made.
    pub async fn end(&mut self) -> Result<u64> {
        let line = line(&mut self.output).await?;
        line.parse()
            .map_err(Failure::format(format!("{line:?} of {EXECUTABLE}")))
    }

    /// What one call takes: the median of some batches, in nanoseconds.
    pub async fn cost(&mut self, function: &str, calls: u64, batches: usize) -> Result<f64> {
        let mut costs = Vec::new();
        for _ in 0..batches {
            costs.push(self.call(function, calls).await? as f64 / calls as f64);
        }
        let summary = summary(costs).map(|summary| summary.median);
        summary.ok_or_else(|| Failure::Unexpected {
            expected: "a batch of calls".to_string(),
            got: "none".to_string(),
        })
    }
}

async fn line(output: &mut Lines<BufReader<ChildStdout>>) -> Result<String> {
    let line = output
        .next_line()
        .await
        .map_err(Failure::system(EXECUTABLE))?;
    line.ok_or_else(|| Failure::format(EXECUTABLE)("it has ended"))
}
