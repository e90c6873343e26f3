//! What `functions` gives: each function's calls, by duration, or the time from one function to another.

use crate::descriptor::{Descriptor, calls, metrics};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW, UNBEGUN, UNENDED};

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    measures: &[DURATION, LONGEST, SLOW, UNENDED, UNBEGUN],
    columns: &[
        calls::PER_SECOND, calls::P50, calls::P90, calls::P99, calls::MAX, calls::SLOW_ONES,
        calls::UNENDED_ONES, calls::UNBEGUN_ONES, calls::COUNT,
    ],
    metrics: metrics! {
        /// Duration of the function's calls since the agent first attached to the target; scaled up where they were sampled.
        histogram("ckb_probe_function_duration_seconds", "duration"),
        /// The function's calls, also those that are counted and not timed; scaled up where they were sampled.
        counter("ckb_probe_function_calls_total", "duration"),
        /// Calls at or above the probe's threshold; scaled up where they were sampled.
        counter("ckb_probe_slow_function_calls_total", "slow"),
    },
    ..calls::FUNCTIONS
};
