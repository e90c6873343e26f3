//! By what way this kernel's functions are probed, and what that costs: tried and measured when somebody first asks, on a system
//! call of the agent's own that does nothing. It is kept for as long as the agent runs: a spec that changes would have it tried anew each time.

use std::time::Duration;

use ckb_probe_crds::Reason;

use super::KernelRegistry;
use crate::{
    kernel::{
        AttachError, DEFAULT_RING_BYTES, Identity, KernelPlan, KernelSite, KernelTier, Probes,
        Slots, memory,
    },
    mechanism::{
        Refusal,
        syscalls::{CALLS, time_of_a_call},
    },
    observe::Machine,
};

/// What the calibration calls, through its system call.
const FUNCTION: &str = match Machine::NATIVE {
    Machine::X86_64 => "__x64_sys_getppid",
    Machine::Aarch64 => "__arm64_sys_getppid",
};

/// And what it does not call.
const ELSEWHERE: &str = match Machine::NATIVE {
    Machine::X86_64 => "__x64_sys_getsid",
    Machine::Aarch64 => "__arm64_sys_getsid",
};

/// What a call costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Costs {
    /// One that is recorded.
    pub(super) hit: Duration,
    /// One of another process.
    pub(super) miss: Duration,
    /// What both cost more for each other process of which functions are probed, whichever: the kernel may go through all probes that there are.
    pub(super) beside: Duration,
    /// What of the former is seen as the call's own time: all that is seen of a call that does next to nothing.
    pub(super) trap_ns: u64,
}

impl Costs {
    /// What a recorded call costs, and one of another process, while so many others have functions probed.
    pub(super) fn beside(self, others: usize) -> (Duration, Duration) {
        let more = self.beside * u32::try_from(others).unwrap_or(u32::MAX);
        (self.hit + more, self.miss + more)
    }
}

/// The way, and its cost: what others found out, or is found out now.
pub(super) fn means(registry: &KernelRegistry) -> Result<(KernelTier, Costs), Refusal> {
    // It is nobody's who asks for it first.
    registry.means(|| memory::on_behalf_of(None, try_tiers))
}

/// The first tier that counts every call.
fn try_tiers() -> Result<(KernelTier, Costs), Refusal> {
    let mut refused = Vec::new();
    let mut reason = Reason::UnsupportedByKernel;
    for &tier in KernelTier::ALL {
        match calibrate(tier) {
            Ok(Ok(costs)) => return Ok((tier, costs)),
            Ok(Err(counted)) => refused.push(format!(
                "{}: the kernel counted {counted} of {CALLS} calls",
                tier.as_str()
            )),
            Err(error) => {
                if error.may_pass() {
                    reason = Reason::AttachFailed;
                }
                refused.push(format!("{}: {error}", tier.as_str()));
            }
        }
    }
    Err(Refusal::new(
        reason,
        format!(
            "functions of this node's kernel cannot be probed: that takes one built with CONFIG_FPROBE (Linux 5.18 or later) \
             or with CONFIG_KPROBE_EVENTS ({})",
            refused.join("; ")
        ),
    ))
}

/// Or how many calls were counted, where it was not all of them.
fn calibrate(tier: KernelTier) -> Result<Result<Costs, u64>, AttachError> {
    let free = time_of_a_call();
    let (missed, first) = attached(tier, FUNCTION, Identity::nobody())?;
    let (beside, elsewhere) = attached(tier, ELSEWHERE, Identity::nobody())?;
    drop((first, elsewhere));
    let (taken, mut probes) = attached(tier, FUNCTION, Identity::of_now(std::process::id())?)?;
    let seen = probes.read()?.slots.into_iter().next().unwrap_or_default();
    if seen.histogram.count() != u64::from(CALLS) {
        return Ok(Err(seen.histogram.count()));
    }
    Ok(Ok(Costs {
        hit: taken.saturating_sub(free),
        miss: missed.saturating_sub(free),
        beside: beside.saturating_sub(missed),
        trap_ns: seen.histogram.quantile(0.5).unwrap_or_default(),
    }))
}

/// What a call takes while this function is probed as well, and calls of it by this process are recorded.
fn attached(
    tier: KernelTier,
    function: &str,
    process: Identity,
) -> Result<(Duration, Probes), AttachError> {
    let plan = KernelPlan {
        process,
        sites: vec![KernelSite {
            function: function.to_string(),
            slow_threshold_ns: u64::MAX,
        }],
        ring_bytes: DEFAULT_RING_BYTES,
        trap_ns: 0,
    };
    let mut probes = Probes::load_kernel(tier, &plan)?;
    // There was nothing to be attached before.
    drop(probes.attach(&Slots::from([0]))?);
    Ok((time_of_a_call(), probes))
}
