//! A program that makes a known number of system calls.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use ckb_probe_tests::fixture::fixtures;

/// The program.
pub struct Caller {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Caller {
    /// Starts it.
    pub fn start() -> Self {
        let mut child = Command::new(fixtures().join("ground-truth-kernel"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Its number, and that of its first thread.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes so many calls in each of so many threads at a time.
    pub fn make(&mut self, call: &str, count: u32, threads: u32) {
        writeln!(self.input, "{call} {count} {threads}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
