//! Whether a process runs what was attached to: it may execute another file, or close a library and open another that has taken its path, or the
//! same in which there is something else by now.

mod rests;

use std::{
    fmt, mem,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rests::Rests;

use super::super::workers::{Errand, Outcome};
use crate::{
    observe::{Change, Libraries, ProcessId, Program},
    text,
};

/// A process that executes one file after the other is measured anew no more often than this, since all is detached and attached then.
const LEAST: Duration = Duration::from_secs(1);

/// It is not looked what is mapped again before so many times as long as it took has passed: the kernel keeps a process from mapping meanwhile.
const REST: u32 = 1_000;

/// What it runs by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Another file, which has its number.
    Program,
    /// Another library of this path.
    Library(PathBuf),
    /// The same, in which there is perhaps something else.
    Written(PathBuf),
}

impl fmt::Display for Renewal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program => formatter.write_str("executes another program by now"),
            Self::Library(path) => {
                let path = text::of_path(path);
                write!(formatter, "has opened another file as {path} by now")
            }
            Self::Written(path) => {
                let path = text::of_path(path);
                write!(formatter, "has {path} open, which was written to by now")
            }
        }
    }
}

/// What is known of that.
#[derive(Default)]
pub(super) struct Renewals {
    /// What it executed when something was last asked of it, and when that was.
    asked: Option<(Program, Instant)>,
    /// What it has mapped is being looked at.
    look: Option<Errand<(Libraries, Duration)>>,
    /// Not before.
    next: Option<Instant>,
    /// Those that were written to.
    rests: Rests,
}

/// What is done elsewhere: whoever reads what a process has mapped may have to wait for it.
type Look = Box<dyn FnOnce() -> (Libraries, Duration) + Send>;

impl Renewals {
    /// Something is asked of it now.
    pub(super) fn asked(&mut self, process: ProcessId) {
        let now = Instant::now();
        *self = Self {
            asked: Program::of(process).map(|program| (program, now)),
            // What is under way may have looked before.
            look: None,
            next: Some(now + LEAST),
            rests: mem::take(&mut self.rests),
        };
    }

    pub(super) fn are_looked_for(&self) -> bool {
        self.look.is_some()
    }

    /// Whether it runs another file than when it was asked: what was attached to is in the one, and nothing is in the other. Not before it is
    /// [time](LEAST), whatever it does. The same file goes on being measured over an exec, and wherever else it is mapped.
    pub(super) fn of(
        &mut self,
        process: ProcessId,
        mapped: Option<&Libraries>,
        start: impl FnOnce(Look) -> Errand<(Libraries, Duration)>,
    ) -> Option<Renewal> {
        let due = self.asked.filter(|(_, asked)| asked.elapsed() >= LEAST);
        let (program, _) = due?;
        if Program::of(process).is_some_and(|now| now != program) {
            return Some(Renewal::Program);
        }
        let mapped = mapped?;
        let now = Instant::now();
        match self.look.as_ref().map(Errand::outcome) {
            None if self.next.is_some_and(|next| now >= next) => {
                let look = move || {
                    let began = Instant::now();
                    (Libraries::of(process), began.elapsed())
                };
                self.look = Some(start(Box::new(look)));
                None
            }
            None | Some(Outcome::UnderWay) => None,
            Some(Outcome::Lost) => {
                self.look = None;
                None
            }
            Some(Outcome::Done((found, took))) => {
                self.look = None;
                self.next = Some(now + LEAST.max(took * REST));
                self.of_files(mapped, &found, now)
            }
        }
    }

    /// Where files were only written to, not before one of them was [left alone](Rests) for long enough.
    fn of_files(&mut self, then: &Libraries, found: &Libraries, now: Instant) -> Option<Renewal> {
        let mut written: Vec<&Path> = Vec::new();
        for (path, change) in then.changes(found) {
            match change {
                Change::Replaced => return Some(Renewal::Library(path.to_path_buf())),
                Change::Written => written.push(path),
            }
        }
        let path = self.rests.over(&written, now)?;
        Some(Renewal::Written(path.to_path_buf()))
    }
}
