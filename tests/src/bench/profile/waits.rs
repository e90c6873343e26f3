//! The program `waits`, which waits in known functions and says for how long.

use std::{path::Path, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::super::agent::of;
use crate::{
    failure::{Failure, Result, expect},
    fixture::fixtures,
    process::Process,
};

/// The base name of its executable.
pub const EXECUTABLE: &str = "waits";

/// What it can wait in, in the order in which it tells.
pub const WAITS: [&str; 5] = ["futex", "fsync", "sleep", "epoll", "pipe"];

/// A running one.
pub struct Waits {
    /// Its process.
    pub process: Process,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
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
        let mut child = Command::new(fixtures().join(EXECUTABLE))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system(EXECUTABLE))?;
        let missing = || Failure::format(EXECUTABLE)("it has no pipe");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut waits = Self {
            process: of(&child)?,
            input,
            output: output.lines(),
            _child: child,
        };
        let line = waits.line().await?;
        expect(line == "ready", "waits to be ready", || line.clone())?;
        Ok(waits)
    }

    /// What it has spent so far.
    pub async fn told(&mut self) -> Result<Told> {
        let asked = self.input.write_all(b"\n").await;
        asked.map_err(Failure::system(EXECUTABLE))?;
        told(&self.line().await?)
    }

    async fn line(&mut self) -> Result<String> {
        let line = self.output.next_line().await;
        let line = line.map_err(Failure::system(EXECUTABLE))?;
        line.ok_or_else(|| Failure::format(EXECUTABLE)("it has ended"))
    }
}

fn told(line: &str) -> Result<Told> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.parse::<u64>().ok()
    };
    let wrong = || Failure::format(EXECUTABLE)(format!("the line {line:?}"));
    let mut spent = [0.0; 5];
    for (place, name) in spent.iter_mut().zip(WAITS) {
        *place = number(name).ok_or_else(wrong)? as f64;
    }
    Ok(Told {
        spent,
        interrupted: number("interrupted").ok_or_else(wrong)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_says_is_read() {
        let said = told("futex 1 fsync 2 sleep 3 epoll 4 pipe 5 interrupted 6").unwrap();
        assert_eq!(
            (said.spent, said.interrupted),
            ([1.0, 2.0, 3.0, 4.0, 5.0], 6)
        );
        told("futex 1").unwrap_err();
    }
}
