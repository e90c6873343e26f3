//! The books: what was measured of each target, made of facts that the driver notes as they happen. No clock, no I/O, so that
//! any history can be replayed.

#[cfg(test)]
pub(crate) mod fixtures;
pub mod instance;
pub mod probe;
pub mod series;
pub mod tally;

use std::time::Duration;

use crate::mechanism::{Loads, Reading};

/// A fact about the measurement of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// This was counted by then.
    Read(Reading),
    /// These loads are not recorded from then on. What was counted up to then was read: in the time since they were resumed
    /// the target did the given part of what it does when it is not watched.
    Paused {
        /// Which.
        loads: Loads,
        /// From 0 to 1.
        part: f64,
    },
    /// They are, from then on.
    Resumed(Loads),
}

/// A fact, and when it was so, as the time since the agent's start.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// When.
    pub at: Duration,
    /// What.
    pub fact: Fact,
}
