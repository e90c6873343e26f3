//! `ground-truth-processes`: a process whose children end in every way.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, ExitStatus},
};

use crate::{Fixture, Folder, fixtures};

/// The names that it and its children go by.
const NAMES: [&str; 11] = [
    "fixture",
    "p-ok",
    "p-fail",
    "p-term",
    "p-segv",
    "p-threads",
    "p-group",
    "p-exec",
    "p-after",
    "p-ping",
    "p-ping-fail",
];

/// A running one.
pub struct Parent {
    /// The number of its process.
    pub pid: u32,
    fixture: Fixture,
    folder: Folder,
}

impl Parent {
    /// Starts it, by a command that becomes it, or forks it (`--fork`).
    ///
    /// # Panics
    /// When it does not answer.
    pub fn start(by: &[&str]) -> Self {
        let folder = Folder::new();
        let program = fs::canonicalize(fixtures().join("ground-truth-processes")).unwrap();
        for name in NAMES {
            symlink(&program, folder.path(name)).unwrap();
        }
        let program = folder.path("fixture");
        // There may be nothing else on this machine.
        let mut words = by.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap());
        command.args(words).arg(folder.root());
        let fixture = Fixture::run(&mut command);
        let pid = fixture.pid();
        let mut parent = Self {
            pid,
            fixture,
            folder,
        };
        // It has become the fixture once it answers.
        parent.tell("ping");
        if by.contains(&"--fork") {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            parent.pid = children.unwrap().trim().parse().unwrap();
        }
        parent
    }

    /// Where what it executes is.
    pub fn folder(&self) -> &Path {
        self.folder.root()
    }

    /// Has something done, which is over when it has answered.
    pub fn tell(&mut self, order: &str) {
        assert_eq!(self.fixture.tell(order), order);
    }

    /// Has it end.
    pub fn end(mut self) -> ExitStatus {
        self.fixture.order("end");
        self.fixture.ended()
    }
}
