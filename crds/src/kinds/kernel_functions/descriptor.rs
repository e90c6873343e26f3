//! What `kernelFunctions` gives: each function's calls, by duration.

use crate::descriptor::{Descriptor, calls, metrics};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW};

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    metrics: metrics! {
        /// Duration of the kernel function's calls by the target's threads since the agent first attached; scaled up where they were
        /// sampled.
        histogram("ckb_probe_kernel_function_duration_seconds", "duration"),
        /// The kernel function's calls by the target's threads; scaled up where they were sampled.
        counter("ckb_probe_kernel_function_calls_total", "duration"),
        /// Calls at or above the probe's threshold; scaled up where they were sampled.
        counter("ckb_probe_slow_kernel_function_calls_total", "slow"),
    },
    ..calls::FUNCTIONS
};
