//! What `processes` gives: execs and ends by the process's name.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Phrase, Unit, metrics}};

/// Successful execs.
pub const EXECS: Measure = Measure::new("execs", Unit::Count, Merge::Sum);
/// Processes that ended, however they did.
pub const ENDS: Measure = Measure::new("ends", Unit::Count, Merge::Sum);
/// Ends by a code other than 0.
pub const FAILURES: Measure = Measure::new("failures", Unit::Count, Merge::Sum);
/// Ends by a signal.
pub const KILLS: Measure = Measure::new("kills", Unit::Count, Merge::Sum);
/// Those for lack of memory among them.
pub const OUT_OF_MEMORY: Measure = Measure::new("oomKills", Unit::Count, Merge::Sum);
/// How long those that ended had been there, from their fork on.
pub const LIFETIME: Measure = Measure::new("lifetime", Unit::Nanoseconds, Merge::Distribution);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "command",
    part: None,
    measures: &[EXECS, ENDS, FAILURES, KILLS, OUT_OF_MEMORY, LIFETIME],
    columns: &[
        Column::new("ends", "ENDS", Value::Total("ends")),
        Column::new("failures", "FAILED", Value::Total("failures")),
        Column::new("kills", "KILLED", Value::Total("kills")),
        Column::new("oomKills", "OOM KILLED", Value::Total("oomKills")),
        Column::new("execs", "EXECS", Value::Total("execs")),
        Column::new("execsPerSecond", "EXECS/S", Value::Rate("execs")),
        Column::new("p50", "P50 LIFE", Value::Quantile("lifetime", 0.5)),
        Column::new("p99", "P99 LIFE", Value::Quantile("lifetime", 0.99)),
    ],
    headline: &[
        Phrase::new("", Value::Rate("execs"), " execs/s").unless_zero(),
        Phrase::new("", Value::Total("failures"), " failed").unless_zero(),
        Phrase::new("", Value::Total("kills"), " killed").unless_zero(),
        Phrase::new("", Value::Total("oomKills"), " out of memory").unless_zero(),
    ],
    metrics: metrics! {
        /// Successful execs in the target's pod, by the name of what they execute.
        counter("ckb_probe_process_execs_total", "execs"),
        /// Ends of processes of the target's pod.
        counter("ckb_probe_process_ends_total", "ends"),
        /// Ends of processes by an exit code other than 0.
        counter("ckb_probe_process_failures_total", "failures"),
        /// Ends of processes by a signal, those for lack of memory included.
        counter("ckb_probe_process_kills_total", "kills"),
        /// Ends of processes that the kernel killed to free memory.
        counter("ckb_probe_process_oom_kills_total", "oomKills"),
        /// How long processes that ended had been there, from their fork on.
        histogram("ckb_probe_process_lifetime_seconds", "lifetime"),
    },
    quiet: true,
    ..Descriptor::EMPTY
};
