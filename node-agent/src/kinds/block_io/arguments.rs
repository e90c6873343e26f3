//! What the command line takes for `block-io`.

use ckb_probe_crds::{
    KindSpec,
    kinds::block_io::{BlockIoProbe, default_slow_threshold},
};
use clap::Args;

use crate::kinds::Asking;

/// Requests to the node's disks.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe block-io                                    every disk, a table every second\n  \
    ckb-probe block-io --pid 1234 --devices vda --json    one disk; own: what threads of process 1234 asked for\n  \
    ckb-probe block-io --events --slow-threshold 20ms     each slow request, as a JSON line")]
pub struct Arguments {
    /// The disks to measure, such as vda,nvme0n1. Unset: every disk that has requests.
    #[arg(long, value_delimiter = ',')]
    devices: Vec<String>,
    /// Requests that take at least this long, from beginning to end, count as slow.
    #[arg(long, default_value_t = default_slow_threshold())]
    slow_threshold: ckb_probe_crds::Duration,
}

impl Asking for Arguments {
    const COMMAND: &str = "block-io";

    fn kind_spec(self) -> KindSpec {
        BlockIoProbe {
            devices: self.devices,
            slow_threshold: self.slow_threshold,
        }
        .into()
    }
}
