//! Test programs that say what is true of them, as often as they are asked.

use std::process::Stdio;

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

/// A running one. It ends when it is dropped.
pub struct Program {
    /// The process of the program.
    pub process: Process,
    name: &'static str,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

/// What it has answered: names, and a number after each.
pub struct Answers {
    program: &'static str,
    line: String,
}

impl Program {
    /// Starts the one of this name, and waits until it is ready.
    pub async fn start(name: &'static str, arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new(fixtures().join(name))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system(name))?;
        let missing = || Failure::format(name)("it has no pipe");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut program = Self {
            process: of(&child)?,
            name,
            input,
            output: output.lines(),
            _child: child,
        };
        let line = program.line().await?;
        expect(line == "ready", format!("{name} to be ready"), || {
            line.clone()
        })?;
        Ok(program)
    }

    /// What is so by now.
    pub async fn ask(&mut self) -> Result<Answers> {
        let asked = self.input.write_all(b"\n").await;
        asked.map_err(Failure::system(self.name))?;
        Ok(Answers::of(self.name, &self.line().await?))
    }

    async fn line(&mut self) -> Result<String> {
        let line = self.output.next_line().await;
        let line = line.map_err(Failure::system(self.name))?;
        line.ok_or_else(|| Failure::format(self.name)("it has ended"))
    }
}

impl Answers {
    /// Of a line of a program's.
    pub fn of(program: &'static str, line: &str) -> Self {
        Self {
            program,
            line: line.to_string(),
        }
    }

    /// The number after a name.
    pub fn number(&self, name: &str) -> Result<u64> {
        let mut words = self.line.split_whitespace();
        let number = words.find(|word| *word == name).and(words.next());
        let number = number.and_then(|number| number.parse().ok());
        number.ok_or_else(|| {
            Failure::format(self.program)(format!("no {name:?} in the line {:?}", self.line))
        })
    }
}
