//! What `usdt` gives: how often each probe is met, or how long it takes from one to another.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Metric, Phrase, Unit, none_apart}};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW};

/// How often a probe was met; of what is timed from one probe to another, how often that is over.
pub const HITS: Measure = Measure::new("hits", Unit::Count, Merge::Sum);
/// How often something began once more that had not been seen to end.
pub const UNENDED: Measure = Measure::new("unended", Unit::Count, Merge::Sum);
/// How often something ended that had not been seen to begin.
pub const UNBEGUN: Measure = Measure::new("unbegun", Unit::Count, Merge::Sum);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "usdt_probe",
    part: Some("value"),
    measures: &[HITS, DURATION, LONGEST, SLOW, UNENDED, UNBEGUN],
    columns: &[
        Column::new("perSecond", "PER SECOND", Value::Rate("hits")),
        Column::new("p50", "P50", Value::Quantile("duration", 0.5)),
        Column::new("p90", "P90", Value::Quantile("duration", 0.9)),
        Column::new("p99", "P99", Value::Quantile("duration", 0.99)),
        Column::new("max", "MAX", Value::Maximum("duration")),
        Column::new("slow", "SLOW", Value::Total("slow")),
        Column::new("unended", "UNENDED", Value::Total("unended")).of_rows(),
        Column::new("unbegun", "UNBEGUN", Value::Total("unbegun")).of_rows(),
        Column::new("count", "COUNT", Value::Total("hits")),
    ],
    split: &[],
    headline: &[
        Phrase::new("", Value::Rate("hits"), "/s"),
        Phrase::new("p99 ", Value::Quantile("duration", 0.99), ""),
        Phrase::new("", Value::Total("slow"), " slow").unless_zero(),
    ],
    metrics: &[
        Metric::counter("ckb_probe_usdt_hits_total", "hits",
            "Times that the process met the USDT probe; scaled up where they were sampled."),
        Metric::counter("ckb_probe_usdt_value_hits_total", "hits",
            "The same by the value of an argument, where byArgument asks for it.").by_part(),
        Metric::histogram("ckb_probe_usdt_duration_seconds", "duration",
            "Time from one USDT probe to another, where between asks for it; scaled up where they were sampled."),
        Metric::counter("ckb_probe_slow_usdt_total", "slow",
            "What took at least the threshold from one USDT probe to another; scaled up where they were sampled."),
    ],
    alarms: &[],
    apart: none_apart,
    // Many are of what seldom happens, such as a deadlock.
    quiet: true,
};
