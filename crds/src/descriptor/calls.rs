//! What kinds of calls have in common: how many there were, how long they took, and how many were slow.

use super::{Column, Descriptor, Measure, Merge, Phrase, Unit, Value, none_apart};

/// How long calls took. Those that were counted and not timed are in it too.
pub const DURATION: Measure = Measure::new("duration", Unit::Nanoseconds, Merge::Distribution);
/// The longest of them.
pub const LONGEST: Measure = Measure::new("duration", Unit::Nanoseconds, Merge::Maximum);
/// Calls as slow as the threshold, or slower.
pub const SLOW: Measure = Measure::new("slow", Unit::Count, Merge::Sum);

/// The columns of a function.
pub const COLUMNS: &[Column] = &[
    Column::new("perSecond", "PER SECOND", Value::Rate("duration")),
    Column::new("p50", "P50", Value::Quantile("duration", 0.5)),
    Column::new("p90", "P90", Value::Quantile("duration", 0.9)),
    Column::new("p99", "P99", Value::Quantile("duration", 0.99)),
    Column::new("max", "MAX", Value::Maximum("duration")),
    Column::new("slow", "SLOW", Value::Total("slow")),
    Column::new("count", "COUNT", Value::Total("duration")),
];

/// What is said of all calls in a line.
pub const HEADLINE: &[Phrase] = &[
    Phrase::new("", Value::Rate("duration"), "/s"),
    Phrase::new("p99 ", Value::Quantile("duration", 0.99), ""),
    Phrase::new("", Value::Total("slow"), " slow").unless_zero(),
];

/// What a kind of functions gives, but for its metrics.
pub const FUNCTIONS: Descriptor = Descriptor {
    row: "function",
    part: None,
    measures: &[DURATION, LONGEST, SLOW],
    columns: COLUMNS,
    split: &[],
    headline: HEADLINE,
    metrics: &[],
    alarms: &[],
    apart: none_apart,
    quiet: false,
};
