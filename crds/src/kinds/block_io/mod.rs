//! `blockIo`: requests to the node's disks.

mod descriptor;

pub use descriptor::{BYTES, DESCRIPTOR, DEVICE, DEVICE_LONGEST, QUEUE, QUEUE_LONGEST, SLOW};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::Duration;

/// Requests to the node's disks, by disk and direction: count, bytes, time in the queue, and time in the device. As in
/// /proc/diskstats, they are those of the whole node; requests that a thread of the target made are also counted separately.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockIoProbe {
    /// The disks to measure, by their names in /proc/diskstats, such as vda or nvme0n1. Empty: every disk that has requests. A
    /// partition counts with its disk, and a volume (dm-0, md0), which has no requests of its own, by the disks below it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(max = 31)))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[^/ ]+$'))")
        .message("devices must be names of disks as in /proc/diskstats, without '/dev/', such as vda or nvme0n1"))]
    pub devices: Vec<String>,

    /// A request that takes at least this long, from its beginning to its end, is counted as slow, and the agent lists it.
    #[serde(default = "default_slow_threshold")]
    #[x_kube(validation = crate::rules::duration("slowThreshold", "1us", "1h", "20ms or 100ms"))]
    pub slow_threshold: Duration,
}

impl Default for BlockIoProbe {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            slow_threshold: default_slow_threshold(),
        }
    }
}

/// A hundred milliseconds: ten times what a turning disk takes.
pub fn default_slow_threshold() -> Duration {
    std::time::Duration::from_millis(100).into()
}
