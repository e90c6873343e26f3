//! What `usdt` gives: how often each probe is met, or how long it takes from one to another.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Phrase, Unit, calls, metrics}};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW, UNBEGUN, UNENDED};

/// How often a probe was met; of what is timed from one probe to another, how often that is over.
pub const HITS: Measure = Measure::new("hits", Unit::Count, Merge::Sum);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "usdt_probe",
    part: Some("value"),
    measures: &[HITS, DURATION, LONGEST, SLOW, UNENDED, UNBEGUN],
    columns: &[
        Column::new("perSecond", "PER SECOND", Value::Rate("hits")),
        calls::P50, calls::P90, calls::P99, calls::MAX, calls::SLOW_ONES,
        calls::UNENDED_ONES, calls::UNBEGUN_ONES,
        Column::new("count", "COUNT", Value::Total("hits")),
    ],
    headline: &[
        Phrase::new("", Value::Rate("hits"), "/s"),
        calls::SAY_P99, calls::SAY_SLOW,
    ],
    metrics: metrics! {
        /// Times that the process met the USDT probe; scaled up where they were sampled.
        counter("ckb_probe_usdt_hits_total", "hits"),
        /// The same by the value of an argument, where byArgument asks for it.
        counter("ckb_probe_usdt_value_hits_total", "hits").by_part(),
        /// Time from one USDT probe to another, where between asks for it; scaled up where they were sampled.
        histogram("ckb_probe_usdt_duration_seconds", "duration"),
        /// What took at least the threshold from one USDT probe to another; scaled up where they were sampled.
        counter("ckb_probe_slow_usdt_total", "slow"),
    },
    // Many are of what seldom happens, such as a deadlock.
    quiet: true,
    ..Descriptor::EMPTY
};
