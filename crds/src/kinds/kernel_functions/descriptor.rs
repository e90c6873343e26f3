//! What `kernelFunctions` gives: each function's calls, by duration.

use crate::descriptor::{Descriptor, Export, Metric, calls, none_apart};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW};

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "function",
    part: None,
    measures: &[DURATION, LONGEST, SLOW],
    columns: calls::COLUMNS,
    split: &[],
    headline: calls::HEADLINE,
    metrics: &[
        Metric::new(
            "ckb_probe_kernel_function_duration_seconds",
            "Duration of the kernel function's calls by the target's threads since the agent first attached; scaled up where they were sampled.",
            Export::Histogram("duration"),
        ),
        Metric::new(
            "ckb_probe_kernel_function_calls_total",
            "The kernel function's calls by the target's threads; scaled up where they were sampled.",
            Export::Counter("duration"),
        ),
        Metric::new(
            "ckb_probe_slow_kernel_function_calls_total",
            "Calls at or above the probe's threshold; scaled up where they were sampled.",
            Export::Counter("slow"),
        ),
    ],
    apart: none_apart,
    quiet: false,
};
