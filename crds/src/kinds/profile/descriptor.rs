//! What `profile` gives besides the stacks: how they divide by part of CKB.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Phrase, Unit, metrics}};

/// Time on a CPU, or waited.
pub const TIME: Measure = Measure::new("time", Unit::Nanoseconds, Merge::Sum);
/// The same in the window that ended last.
const TIME_NOW: Measure = Measure::new("time", Unit::Nanoseconds, Merge::Level);
/// Memory touched for the first time.
pub const MEMORY: Measure = Measure::new("memory", Unit::Bytes, Merge::Sum);
/// The same in the window that ended last.
const MEMORY_NOW: Measure = Measure::new("memory", Unit::Bytes, Merge::Level);
/// Memory that was allocated.
pub const ALLOCATED: Measure = Measure::new("allocated", Unit::Bytes, Merge::Sum);
/// The same in the window that ended last.
const ALLOCATED_NOW: Measure = Measure::new("allocated", Unit::Bytes, Merge::Level);
/// Memory that was freed.
pub const FREED: Measure = Measure::new("freed", Unit::Bytes, Merge::Sum);
/// The same in the window that ended last.
const FREED_NOW: Measure = Measure::new("freed", Unit::Bytes, Merge::Level);
/// Threads that were met, in the window that ended last.
pub const THREADS: Measure = Measure::new("threads", Unit::Count, Merge::Level);
/// Stacks.
pub const SAMPLES: Measure = Measure::new("samples", Unit::Count, Merge::Sum);
/// The same in the window that ended last.
const SAMPLES_NOW: Measure = Measure::new("samples", Unit::Count, Merge::Level);
/// Those of them that reach to where the thread began.
pub const COMPLETE: Measure = Measure::new("complete", Unit::Count, Merge::Sum);
/// The same in the window that ended last.
const COMPLETE_NOW: Measure = Measure::new("complete", Unit::Count, Merge::Level);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "mode",
    part: Some("heading"),
    measures: &[
        TIME,
        TIME_NOW,
        MEMORY,
        MEMORY_NOW,
        ALLOCATED,
        ALLOCATED_NOW,
        FREED,
        FREED_NOW,
        THREADS,
        SAMPLES,
        SAMPLES_NOW,
        COMPLETE,
        COMPLETE_NOW,
    ],
    columns: &[
        Column::new("time", "TIME", Value::Level("time")),
        Column::new("memory", "MEMORY", Value::Level("memory")),
        Column::new("allocated", "ALLOCATED", Value::Level("allocated")),
        Column::new("freed", "FREED", Value::Level("freed")),
        Column::new("threads", "THREADS", Value::Level("threads")),
        Column::new("samples", "STACKS", Value::Level("samples")),
        Column::new("complete", "COMPLETE", Value::Portion("complete", "samples")).of_rows(),
    ],
    split: &["time", "memory", "allocated", "freed", "threads"],
    headline: &[Phrase::new(
        "",
        Value::Portion("complete", "samples"),
        "% of stacks complete",
    )],
    metrics: metrics! {
        /// Time that threads were on a CPU or waited in the windows that were profiled, by part of CKB.
        counter("ckb_probe_profile_seconds_total", "time").by_part(),
        /// Memory that was touched for the first time in the windows that were profiled, by part of CKB.
        counter("ckb_probe_profile_memory_bytes_total", "memory").by_part(),
        /// Memory that was allocated in the windows that were profiled, by part of CKB.
        counter("ckb_probe_profile_allocated_bytes_total", "allocated").by_part(),
        /// Memory that was freed in the windows that were profiled, by part of CKB that freed it.
        counter("ckb_probe_profile_freed_bytes_total", "freed").by_part(),
        /// Stacks that were taken.
        counter("ckb_probe_profile_samples_total", "samples"),
        /// Stacks that reach to where the thread began.
        counter("ckb_probe_profile_complete_samples_total", "complete"),
    },
    quiet: true,
    ..Descriptor::EMPTY
};
