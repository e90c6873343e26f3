//! The driver: carries out what is decided, for the agent and the command line alike.
//!
//! A **view** is a target on behalf of one CkbProbe. What all views ask of one process is measured once ([`measured`]), under one
//! budget, and each view's books take from it what is theirs.

pub mod engine;
mod log_limiter;
pub mod measured;
pub mod measurement;
#[cfg(test)]
#[path = "driver/fixtures/played.rs"]
mod played;
pub mod view;
pub mod workers;

use std::time::{Duration, Instant};

use measurement::Reaper;
use workers::Workers;

use crate::{
    kernel::CalibratedTier,
    mechanism::{Node, Refusal},
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

/// What measuring takes. Clones are of the same.
#[derive(Clone)]
pub struct Tools {
    /// What is there once for all processes.
    pub node: Node,
    /// Where links go.
    pub reaper: Reaper,
    /// What measuring may cost any process, in percent of its CPU time, whatever is asked.
    pub ceiling: Option<f64>,
    /// Percent of one core that any of them may grant besides; None: as much as they like.
    pub floor: Option<f64>,
    /// Who does what may take long.
    pub workers: Workers,
    /// The kernel and the file systems of a target have so long to answer before its views are told that they do not. What is
    /// being done goes on, and where it comes to its end after all, it is measured.
    pub deadline: Duration,
    /// So long is waited for a measurement that attaches, by who wants to read it.
    pub patience: Duration,
}

/// See [`Tools::deadline`].
const DEADLINE: Duration = Duration::from_secs(5);

/// See [`Tools::patience`].
const PATIENCE: Duration = Duration::from_millis(100);

impl Tools {
    /// Whether so much is held up that no more should be begun for a namespace: what was begun for it does not come back, or what was
    /// measured of anybody does not go.
    pub fn are_held_up(&self, namespace: &str) -> bool {
        self.workers.are_stuck(namespace) || self.reaper.is_behind()
    }

    /// Those of a node where functions are attached to like this.
    pub fn new(tier: Result<CalibratedTier, Refusal>) -> Self {
        Self {
            node: Node::new(tier),
            reaper: Reaper::start(),
            ceiling: None,
            floor: None,
            workers: Workers::default(),
            deadline: DEADLINE,
            patience: PATIENCE,
        }
    }
}
