//! `blockIo`: requests to the node's disks.

mod arguments;

pub use arguments::Arguments;
use ckb_probe_crds::kinds::block_io::{
    BYTES, BlockIoProbe, DEVICE, DEVICE_LONGEST, QUEUE, QUEUE_LONGEST, SLOW,
};

use super::Instrument;
use crate::mechanism::CollectorConfig;
use crate::mechanism::block_io::{self, Measures};

/// What is measured of a request.
const MEASURES: Measures = Measures {
    device: DEVICE.key(),
    device_longest: DEVICE_LONGEST.key(),
    queue: QUEUE.key(),
    queue_longest: QUEUE_LONGEST.key(),
    bytes: BYTES.key(),
    slow: SLOW.key(),
};

impl Instrument for BlockIoProbe {
    fn config(&self) -> CollectorConfig {
        block_io::BlockIoConfig {
            measures: MEASURES,
            disks: self.devices.clone(),
            slow_threshold_ns: self.slow_threshold.as_nanos(),
        }
        .into()
    }
}
