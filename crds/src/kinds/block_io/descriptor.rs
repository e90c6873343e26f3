//! What `blockIo` gives: each disk's requests, by direction and by what they took.

use crate::{Value, descriptor::{Column, Descriptor, Export, Measure, Merge, Metric, Phrase, Unit, none_apart}};

/// How long the device had requests. Those of which it is not known are counted in it too.
pub const DEVICE: Measure = Measure::new("device", Unit::Nanoseconds, Merge::Distribution);
/// The longest of that.
pub const DEVICE_LONGEST: Measure = Measure::new("device", Unit::Nanoseconds, Merge::Maximum);
/// How long they waited before the device had them; the same requests.
pub const QUEUE: Measure = Measure::new("queue", Unit::Nanoseconds, Merge::Distribution);
/// The longest of that.
pub const QUEUE_LONGEST: Measure = Measure::new("queue", Unit::Nanoseconds, Merge::Maximum);
/// Bytes.
pub const BYTES: Measure = Measure::new("bytes", Unit::Bytes, Merge::Sum);
/// Requests that took `slowThreshold` or longer, waiting and in the device.
pub const SLOW: Measure = Measure::new("slow", Unit::Count, Merge::Sum);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "disk",
    part: Some("issuer"),
    measures: &[DEVICE, DEVICE_LONGEST, QUEUE, QUEUE_LONGEST, BYTES, SLOW],
    columns: &[
        column("perSecond", "PER SECOND", Value::Rate("device")),
        column("bytesPerSecond", "BYTES/S", Value::Rate("bytes")),
        column("p50", "P50", Value::Quantile("device", 0.5)),
        column("p99", "P99", Value::Quantile("device", 0.99)),
        column("max", "MAX", Value::Maximum("device")),
        column("queueP99", "QUEUE P99", Value::Quantile("queue", 0.99)),
        column("slow", "SLOW", Value::Total("slow")),
        column("count", "COUNT", Value::Total("device")),
    ],
    split: &[],
    headline: &[
        phrase("", Value::Rate("device"), "/s"),
        phrase("p99 ", Value::Quantile("device", 0.99), ""),
        Phrase {
            of_zero: false,
            ..phrase("", Value::Total("slow"), " slow")
        },
    ],
    metrics: &[
        Metric {
            name: "ckb_probe_block_io_device_seconds",
            help: "How long the device had requests, by disk and direction; of the node, whoever asked for them. Scaled up where they were sampled.",
            export: Export::Histogram("device"),
            of_parts: false,
        },
        Metric {
            name: "ckb_probe_block_io_queue_seconds",
            help: "How long requests waited before the device had them; of the node. Scaled up where they were sampled.",
            export: Export::Histogram("queue"),
            of_parts: false,
        },
        Metric {
            name: "ckb_probe_block_io_bytes_total",
            help: "Bytes read, written or discarded; of the node. Scaled up where they were sampled.",
            export: Export::Counter("bytes"),
            of_parts: false,
        },
        Metric {
            name: "ckb_probe_block_io_requests_total",
            help: "Requests that ended, also those of which it is not known when the device got them; of the node. Scaled up where they were sampled.",
            export: Export::Counter("device"),
            of_parts: false,
        },
        Metric {
            name: "ckb_probe_block_io_slow_total",
            help: "Requests that took the probe's slowThreshold or longer, from beginning to end; of the node. Scaled up where they were sampled.",
            export: Export::Counter("slow"),
            of_parts: false,
        },
        Metric {
            name: "ckb_probe_block_io_issuer_requests_total",
            help: "Requests by who asked for them: own, by a thread of the target, or other; unknown where they began before anybody looked. What the kernel writes later on the target's behalf is other.",
            export: Export::Counter("device"),
            of_parts: true,
        },
        Metric {
            name: "ckb_probe_block_io_issuer_bytes_total",
            help: "The bytes of these requests.",
            export: Export::Counter("bytes"),
            of_parts: true,
        },
    ],
    apart: none_apart,
    quiet: true,
};

const fn column(name: &'static str, head: &'static str, value: Value) -> Column {
    Column {
        name,
        head,
        value,
        of_parts: true,
    }
}

const fn phrase(before: &'static str, value: Value, after: &'static str) -> Phrase {
    Phrase {
        before,
        value,
        after,
        of_zero: true,
    }
}
