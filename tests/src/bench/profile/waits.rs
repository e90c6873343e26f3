//! The program `waits`, which waits in known functions and says for how long.

use std::path::Path;

use super::answers::{Answers, Program};
use crate::{failure::Result, process::Process};

/// The base name of its executable.
pub const EXECUTABLE: &str = "waits";

/// What it can wait in, in the order in which it tells.
pub const WAITS: [&str; 5] = ["futex", "fsync", "sleep", "epoll", "pipe"];

/// A running one.
pub struct Waits {
    /// The process that waits.
    pub process: Process,
    program: Program,
}

/// What it says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Told {
    /// Nanoseconds, by wait.
    pub spent: [f64; 5],
    /// How many system calls were interrupted.
    pub interrupted: u64,
}

impl Waits {
    /// Starts one whose threads go through all waits; the file is synchronised.
    pub async fn rounds(threads: usize, file: &Path) -> Result<Self> {
        let file = file.display().to_string();
        Self::start(&["rounds", &threads.to_string(), &file]).await
    }

    /// Starts one whose threads wait for good.
    pub async fn hold(threads: usize) -> Result<Self> {
        Self::start(&["hold", &threads.to_string()]).await
    }

    async fn start(arguments: &[&str]) -> Result<Self> {
        let program = Program::start(EXECUTABLE, arguments).await?;
        Ok(Self {
            process: program.process,
            program,
        })
    }

    /// What it has spent so far.
    pub async fn told(&mut self) -> Result<Told> {
        told(&self.program.ask().await?)
    }
}

fn told(answers: &Answers) -> Result<Told> {
    let mut spent = [0.0; 5];
    for (place, name) in spent.iter_mut().zip(WAITS) {
        *place = answers.number(name)? as f64;
    }
    Ok(Told {
        spent,
        interrupted: answers.number("interrupted")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_read() {
        let line = "futex 1 fsync 2 sleep 3 epoll 4 pipe 5 interrupted 6";
        let said = told(&Answers::of(EXECUTABLE, line)).unwrap();
        assert_eq!(
            (said.spent, said.interrupted),
            ([1.0, 2.0, 3.0, 4.0, 5.0], 6)
        );
        told(&Answers::of(EXECUTABLE, "futex 1")).unwrap_err();
    }
}
