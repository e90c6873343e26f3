//! What a target waited for, whatever is measured of it: by what the kernel counts anyway.

pub use ckb_probe_figures::contention::{Baseline, Beside};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the container of a target waited for in the last report interval. What could not be read is unset: it is not known, and not zero.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contention {
    /// The part of the interval in which a thread of the container waited for a CPU, in thousandths of a percent: `some` of
    /// `cpu.pressure`. Unset with cgroups of version 1, and where the kernel does not account for pressure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_wait_millipercent: Option<u64>,
    /// The part of the periods of its CPU limit in which the container had used that up, in thousandths of a percent: `nr_throttled`
    /// of `nr_periods`. 0 without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttled_millipercent: Option<u64>,
    /// The part of the interval in which a thread of the container waited for a disk, in thousandths of a percent: `some` of
    /// `io.pressure`. Unset where `cpuWaitMillipercent` is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_wait_millipercent: Option<u64>,
    /// The part of the TCP segments of the pod's network that were sent again, in thousandths of a percent: of a pod with
    /// `hostNetwork`, of the node's. Unset where none was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted_millipercent: Option<u64>,
}
