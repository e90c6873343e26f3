//! The driver: carries out what is decided, for the agent and the command line alike.
//!
//! A **view** is a target on behalf of one CkbProbe. What all views ask of one process is measured once ([`measured`]), under one
//! budget, and each view's books take from it what is theirs.

pub mod engine;
pub mod measured;
pub mod measurement;
pub mod view;

use std::time::{Duration, Instant};

use measurement::Reaper;

use crate::{
    kernel::Means,
    mechanism::{Node, Refusal, calls},
};

/// Time since the agent's start: what the pure part counts in.
#[derive(Clone, Copy, Debug)]
pub struct Clock(pub Instant);

impl Clock {
    /// One that begins now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Since its beginning.
    pub fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// What measuring takes.
pub struct Tools {
    /// How functions of processes are attached to on this node; or why they are not, which leaves other mechanisms working.
    pub means: Result<Means, Refusal>,
    /// What was found in files.
    pub found: calls::Caches,
    /// What is there once for all processes.
    pub node: Node,
    /// Where links go.
    pub reaper: Reaper,
}

impl Tools {
    /// Those of a node where functions are measured by these means.
    pub fn new(means: Result<Means, Refusal>) -> Self {
        Self {
            means,
            found: calls::Caches::default(),
            node: Node::default(),
            reaper: Reaper::start(),
        }
    }
}
