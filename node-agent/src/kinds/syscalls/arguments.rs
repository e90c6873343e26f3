//! What the command line takes for `syscalls`.

use ckb_probe_crds::{
    KindSpec,
    kinds::syscalls::{SyscallsProbe, default_slow_threshold},
};
use clap::Args;

use crate::kinds::Asking;

/// System calls.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe syscalls                                        all of them, of the process that runs ckb\n  \
    ckb-probe syscalls --names fdatasync,openat --max-percent 5\n  \
    ckb-probe syscalls --slow-threshold 5ms --events          each slow call, with its file, as a JSON line")]
pub struct Arguments {
    /// The names of the system calls to measure, such as openat,fdatasync. Unset: all.
    #[arg(long, value_delimiter = ',')]
    names: Vec<String>,
    /// Calls that take at least this long count as slow, except calls that wait for something to happen.
    #[arg(long, default_value_t = default_slow_threshold())]
    slow_threshold: ckb_probe_crds::Duration,
}

impl Asking for Arguments {
    const COMMAND: &str = "syscalls";

    fn kind_spec(self) -> KindSpec {
        SyscallsProbe {
            names: self.names,
            slow_threshold: self.slow_threshold,
        }
        .into()
    }
}
