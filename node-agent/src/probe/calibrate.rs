//! What one probed call costs on this node: measured at start on a function of the agent's own.

use std::{arch::global_asm, sync::Arc, time::Instant};

use ckb_probe_crds::Histogram;

use super::{AttachError, DEFAULT_RING_BYTES, Payload, Plan, Probes, Site, Tier};
use crate::observe::{Binary, ObserveError, own_file_offset};

// The first instruction is one that the kernel emulates, as the `push` at the head of CKB's hot functions is:
// one that it must single-step would cost many times as much and say nothing about them.
global_asm!(
    ".pushsection .text.ckb_probe_calibration_call,\"ax\",@progbits",
    ".global ckb_probe_calibration_call",
    ".type ckb_probe_calibration_call,@function",
    "ckb_probe_calibration_call:",
    "nop",
    "ret",
    ".size ckb_probe_calibration_call, . - ckb_probe_calibration_call",
    ".popsection",
);

unsafe extern "C" {
    fn ckb_probe_calibration_call();
}

const CALLS: u64 = 10_000;
const ROUNDS: usize = 5;

/// The cost of a probed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Nanoseconds that entry and return add to a call: the median of five rounds.
    pub cost_per_call_ns: u64,
    /// What of it falls between the two clock readings, and so would be taken for the call's own time: the
    /// median duration that the programs see of a function that does nothing.
    pub trap_ns: u64,
    /// Calls made while attached.
    pub calls: u64,
    /// Calls that the kernel counted: the attach works when the two are equal.
    pub counted: u64,
}

/// No calibration, hence no measuring: what cannot be attached to the agent cannot be attached to a target.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// The function's place is unknown.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The kernel refused.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The counts cannot be read.
    #[error(transparent)]
    Read(#[from] super::ReadError),
    /// No tier works; why each does not.
    #[error("no way to attach works on this kernel with these capabilities: {0}")]
    NoTier(String),
    /// The kernel took the probes and counted something else than what happened.
    #[error("the kernel counted {counted} of {calls} calibration calls")]
    Miscounted {
        /// Calls made.
        calls: u64,
        /// Calls counted.
        counted: u64,
    },
}

/// How this node is measured: the tier, and what a call costs by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// The tier.
    pub tier: Tier,
    /// What a probed call costs by it.
    pub calibration: Calibration,
}

/// What was found out about this node.
#[derive(Debug)]
pub struct Preflight {
    /// The best that works.
    pub means: Means,
    /// The better tiers, and why they do not work here.
    pub refused: Vec<(Tier, CalibrationError)>,
}

/// Finds the best tier that this kernel, with this program's capabilities, has: the first whose calibration
/// counts every call.
pub fn preflight() -> Result<Preflight, CalibrationError> {
    let mut refused = Vec::new();
    for tier in Tier::ALL {
        match calibrate(tier) {
            Ok(calibration) => {
                let means = Means { tier, calibration };
                return Ok(Preflight { means, refused });
            }
            Err(error) => refused.push((tier, error)),
        }
    }
    Err(CalibrationError::NoTier(
        refused
            .into_iter()
            .map(|(tier, error)| format!("{}: {error}", tier.as_str()))
            .collect::<Vec<_>>()
            .join("; "),
    ))
}

/// Attaches to a function of this process, calls it, and compares the time with that of unprobed calls.
pub fn calibrate(tier: Tier) -> Result<Calibration, CalibrationError> {
    let (path, offset) = own_file_offset(ckb_probe_calibration_call as *const () as u64)?;
    let binary = Binary::open(&path).map_err(ObserveError::List)?;
    let plan = Plan {
        pid: std::process::id(),
        slots: 1,
        sites: vec![Site {
            symbol: "ckb_probe_calibration_call".to_string(),
            binary: Arc::new(binary),
            offset,
            slot: 0,
            payload: Payload::Unknown,
            slow_threshold_ns: u64::MAX,
        }],
        ring_bytes: DEFAULT_RING_BYTES,
        trap_ns: 0,
    };
    let unprobed = nanos_per_call();
    let mut probes = Probes::attach(tier, &plan)?;
    let probed = nanos_per_call();
    let reading = probes.read()?;
    let calls = CALLS * ROUNDS as u64;
    let mut seen = Histogram::default();
    for slot in &reading.slots {
        seen.merge(&slot.histogram);
    }
    let counted = seen.count();
    if counted != calls {
        return Err(CalibrationError::Miscounted { calls, counted });
    }
    Ok(Calibration {
        cost_per_call_ns: probed.saturating_sub(unprobed),
        trap_ns: seen.quantile(0.5).unwrap_or_default(),
        calls,
        counted,
    })
}

/// The median of several rounds. In a thread of its own: the uprobe_multi of kernels before 6.10 takes the
/// filter by process for one by thread, and sees nothing of the others; here that shows as a miscount.
fn nanos_per_call() -> u64 {
    let rounds = std::thread::spawn(|| {
        let mut rounds: [u64; ROUNDS] = std::array::from_fn(|_| one_round());
        rounds.sort_unstable();
        rounds[ROUNDS / 2]
    });
    // Nothing in it panics; a zero would show in the figures.
    rounds.join().unwrap_or_default()
}

fn one_round() -> u64 {
    let start = Instant::now();
    for _ in 0..CALLS {
        // SAFETY: the function takes nothing, returns nothing and touches nothing.
        unsafe { ckb_probe_calibration_call() };
    }
    (start.elapsed().as_nanos() / u128::from(CALLS)) as u64
}
