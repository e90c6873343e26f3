//! What is looked at on a node before anything is attached: whether it can be measured, by which means, and what stands
//! in the way of better ones.

mod checks;

use checks::checks;
use ckb_probe_crds::{Check, Reason};

use crate::{
    kernel::{Attempt, CalibratedTier, Tier, try_tiers},
    mechanism::{Foreign, Refusal},
    observe::NodeFacts,
};

/// What was found out about this node.
#[derive(Debug)]
pub struct Preflight {
    /// What was looked at.
    pub checks: Vec<Check>,
    /// How it is measured.
    pub means: Result<CalibratedTier, Unmeasurable>,
}

/// Nothing can be measured on this node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unmeasurable(String);

impl Unmeasurable {
    /// For these reasons.
    pub fn since(reasons: impl Into<String>) -> Self {
        Self(format!("no way to attach works: {}", reasons.into()))
    }
}

impl From<Foreign> for Unmeasurable {
    fn from(foreign: Foreign) -> Self {
        Self(foreign.to_string())
    }
}

/// Looks at this node, tries the tiers or the one that is asked for, and tests what a probe does to a confined process.
/// Takes about half a second, and is to be done before anything is attached to anybody else.
pub fn preflight(forced: Option<Tier>) -> Preflight {
    let facts = NodeFacts::read();
    let attempts = try_tiers(forced, facts.confined);
    let checks = checks(&facts, &attempts);
    Preflight {
        means: match means(&attempts) {
            Some(means) if facts.kernels_numbers => Ok(means),
            Some(_) => Err(Foreign.into()),
            None => Err(unmeasurable(&checks)),
        },
        checks,
    }
}

/// The one tier that works, if there is one.
fn means(attempts: &[(Tier, Attempt)]) -> Option<CalibratedTier> {
    attempts.iter().find_map(|(tier, attempt)| match attempt {
        Attempt::Works {
            calibration,
            confined_return,
        } => Some(CalibratedTier {
            tier: *tier,
            calibration: *calibration,
            returns_kill_confined: confined_return.may_kill(),
        }),
        Attempt::Refused(_) | Attempt::NotTried => None,
    })
}

fn unmeasurable(checks: &[Check]) -> Unmeasurable {
    let failed = checks.iter().filter(|check| !check.passed);
    let reasons: Vec<String> = failed
        .map(|check| format!("{}: {}", check.name, check.detail))
        .collect();
    Unmeasurable::since(reasons.join("; "))
}

impl From<Unmeasurable> for Refusal {
    fn from(failure: Unmeasurable) -> Self {
        let message = format!("no function can be measured on this node: {failure}");
        Self::new(Reason::PreflightFailed, message)
    }
}

#[cfg(test)]
mod tests;
