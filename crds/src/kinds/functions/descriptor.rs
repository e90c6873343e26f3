//! What `functions` gives: each function's calls, by duration.

use crate::descriptor::{Descriptor, Metric, calls};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW};

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    metrics: &[
        Metric::histogram("ckb_probe_function_duration_seconds", "duration",
            "Duration of the function's calls since the agent first attached to the target; scaled up where they were sampled."),
        Metric::counter("ckb_probe_function_calls_total", "duration",
            "The function's calls, also those that are counted and not timed; scaled up where they were sampled."),
        Metric::counter("ckb_probe_slow_function_calls_total", "slow",
            "Calls at or above the probe's threshold; scaled up where they were sampled."),
    ],
    ..calls::FUNCTIONS
};
