//! What `functions` gives: each function's calls, by duration.

use crate::{Value, descriptor::{Column, Descriptor, Export, Measure, Merge, Metric, Phrase, Unit, none_apart}};

/// How long calls took. Those that were counted and not timed are in it too.
pub const DURATION: Measure = Measure::new("duration", Unit::Nanoseconds, Merge::Distribution);
/// The longest of them.
pub const LONGEST: Measure = Measure::new("duration", Unit::Nanoseconds, Merge::Maximum);
/// Calls as slow as `threshold`, or slower.
pub const SLOW: Measure = Measure::new("slow", Unit::Count, Merge::Sum);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "function",
    part: None,
    measures: &[DURATION, LONGEST, SLOW],
    columns: &[
        Column::new("perSecond", "PER SECOND", Value::Rate("duration")),
        Column::new("p50", "P50", Value::Quantile("duration", 0.5)),
        Column::new("p90", "P90", Value::Quantile("duration", 0.9)),
        Column::new("p99", "P99", Value::Quantile("duration", 0.99)),
        Column::new("max", "MAX", Value::Maximum("duration")),
        Column::new("slow", "SLOW", Value::Total("slow")),
        Column::new("count", "COUNT", Value::Total("duration")),
    ],
    split: &[],
    headline: &[
        Phrase::new("", Value::Rate("duration"), "/s"),
        Phrase::new("p99 ", Value::Quantile("duration", 0.99), ""),
        Phrase::new("", Value::Total("slow"), " slow").unless_zero(),
    ],
    metrics: &[
        Metric::new(
            "ckb_probe_function_duration_seconds",
            "Duration of the function's calls since the agent first attached to the target; scaled up where they were sampled.",
            Export::Histogram("duration"),
        ),
        Metric::new(
            "ckb_probe_function_calls_total",
            "The function's calls, also those that are counted and not timed; scaled up where they were sampled.",
            Export::Counter("duration"),
        ),
        Metric::new(
            "ckb_probe_slow_function_calls_total",
            "Calls at or above the probe's threshold; scaled up where they were sampled.",
            Export::Counter("slow"),
        ),
    ],
    apart: none_apart,
    quiet: false,
};
