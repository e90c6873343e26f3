//! What `usdt` gives: how often each probe is met.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Metric, Phrase, Unit, none_apart}};

/// How often a probe was met.
pub const HITS: Measure = Measure::new("hits", Unit::Count, Merge::Sum);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "usdt_probe",
    part: Some("value"),
    measures: &[HITS],
    columns: &[
        Column::new("perSecond", "PER SECOND", Value::Rate("hits")),
        Column::new("count", "COUNT", Value::Total("hits")),
    ],
    split: &[],
    headline: &[Phrase::new("", Value::Rate("hits"), "/s")],
    metrics: &[
        Metric::counter("ckb_probe_usdt_hits_total", "hits",
            "Times that the process met the USDT probe; scaled up where they were sampled."),
        Metric::counter("ckb_probe_usdt_value_hits_total", "hits",
            "The same by the value of an argument, where byArgument asks for it.").by_part(),
    ],
    apart: none_apart,
    // Many are of what seldom happens, such as a deadlock.
    quiet: true,
};
