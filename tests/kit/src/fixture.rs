//! Programs that do what they are told line by line.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio},
};

use tempfile::TempDir;

use crate::{fixtures, repository, run};

/// A running one. It is killed when it is dropped.
pub struct Fixture {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Fixture {
    /// Starts one that answers each line with one that begins with `done`, as those of the agent's tests do.
    pub fn start(program: &Path) -> Self {
        Self::start_with(program, &[])
    }

    /// The same with arguments.
    pub fn start_with(program: &Path, arguments: &[&str]) -> Self {
        let mut fixture = Self::run(Command::new(program).args(arguments));
        // Its libraries are mapped.
        assert_eq!(fixture.tell("ready"), "");
        fixture
    }

    /// Makes one in a folder of its own, and starts it. The folder is to be kept for as long.
    pub fn made(make: impl FnOnce(&Folder) -> PathBuf) -> (Folder, Self) {
        let folder = Folder::new();
        let fixture = Self::start(&make(&folder));
        (folder, fixture)
    }

    /// Starts one of [`fixtures`].
    pub fn named(name: &str, arguments: &[&str]) -> Self {
        Self::run(Command::new(fixtures().join(name)).args(arguments))
    }

    /// Starts whatever reads orders and writes answers.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn run(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has something done, and waits until it is. What it says to that, after `done`.
    pub fn tell(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    /// Has something done.
    ///
    /// # Panics
    /// When it has ended.
    pub fn order(&mut self, order: &str) {
        // In one piece: not everybody puts pieces of a line together.
        self.orders
            .write_all(format!("{order}\n").as_bytes())
            .unwrap();
    }

    /// Waits until it says something.
    ///
    /// # Panics
    /// When it has ended.
    pub fn answer(&mut self) -> String {
        let mut line = String::new();
        let length = self.answers.read_line(&mut line).unwrap();
        assert!(length > 0, "{:?} has ended", self.child);
        let line = line.trim_end();
        line.strip_prefix("done").unwrap_or(line).trim().to_string()
    }

    /// Waits until it ends by itself.
    pub fn ended(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A folder of its own for each test.
pub struct Folder(TempDir);

impl Folder {
    /// Makes one.
    #[expect(clippy::new_without_default, reason = "it is made, and not nothing")]
    pub fn new() -> Self {
        Self(TempDir::with_prefix("ckb-probe-test-").unwrap())
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        self.0.path()
    }

    /// A file in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a C program of the agent's tests as code is built that is to be unwound: without frame pointers.
    pub fn compile_optimised(&self, name: &str) -> PathBuf {
        let options = ["-O2", "-fomit-frame-pointer", "-pthread"];
        self.compile("cc", &format!("{name}.c"), name, &options)
    }

    /// Compiles one of the fixtures of the agent's tests, without what would make other functions of those that are there.
    pub fn compile(&self, compiler: &str, source: &str, name: &str, options: &[&str]) -> PathBuf {
        let program = self.path(name);
        let source = repository().join("node-agent/tests/fixtures").join(source);
        let plain = "-O0 -fno-omit-frame-pointer -fcf-protection=none -o".split(' ');
        run(Command::new(compiler)
            .args(plain)
            .args([&program, &source])
            .args(options));
        program
    }
}
