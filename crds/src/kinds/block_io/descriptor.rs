//! What `blockIo` gives: each disk's requests, by direction and by what they took.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Phrase, Unit, calls, metrics}};

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
        Column::new("perSecond", "PER SECOND", Value::Rate("device")),
        Column::new("bytesPerSecond", "BYTES/S", Value::Rate("bytes")),
        Column::new("p50", "P50", Value::Quantile("device", 0.5)),
        Column::new("p99", "P99", Value::Quantile("device", 0.99)),
        Column::new("max", "MAX", Value::Maximum("device")),
        Column::new("queueP99", "QUEUE P99", Value::Quantile("queue", 0.99)),
        calls::SLOW_ONES,
        Column::new("count", "COUNT", Value::Total("device")),
    ],
    headline: &[
        Phrase::new("", Value::Rate("device"), "/s"),
        Phrase::new("p99 ", Value::Quantile("device", 0.99), ""),
        calls::SAY_SLOW,
    ],
    metrics: metrics! {
        /// How long the device had requests, by disk and direction; of the node, whoever asked for them. Scaled up where they were sampled.
        histogram("ckb_probe_block_io_device_seconds", "device"),
        /// How long requests waited before the device had them; of the node. Scaled up where they were sampled.
        histogram("ckb_probe_block_io_queue_seconds", "queue"),
        /// Bytes read, written or discarded; of the node. Scaled up where they were sampled.
        counter("ckb_probe_block_io_bytes_total", "bytes"),
        /// Requests that ended, also those of which it is not known when the device got them; of the node. Scaled up where they were
        /// sampled.
        counter("ckb_probe_block_io_requests_total", "device"),
        /// Requests that took the probe's slowThreshold or longer, from beginning to end; of the node. Scaled up where they were sampled.
        counter("ckb_probe_block_io_slow_total", "slow"),
        /// Requests by who asked for them: own, by a thread of the target, or other; unknown where they began before anybody looked. What
        /// the kernel writes later on the target's behalf is other.
        counter("ckb_probe_block_io_issuer_requests_total", "device").by_part(),
        /// The bytes of these requests.
        counter("ckb_probe_block_io_issuer_bytes_total", "bytes").by_part(),
    },
    quiet: true,
    ..Descriptor::EMPTY
};
