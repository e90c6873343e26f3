//! What the command line takes for `processes`.

use ckb_probe_crds::{
    KindSpec,
    kinds::processes::{ProcessEvents, ProcessesProbe},
};
use clap::Args;

use crate::kinds::Asking;

/// What runs beside a process, and how it ends.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe processes                                  a table every second, of all that runs beside ckb\n  \
    ckb-probe processes --pid 1234 --events              each exec and each end, as a JSON line\n  \
    ckb-probe processes --events --list failures         why did something die?")]
pub struct Arguments {
    /// What --events lists: all, ends, or failures (ends by a signal or with an exit code other than 0).
    #[arg(long, default_value = "all")]
    list: ProcessEvents,
    /// List the number of arguments instead of the arguments.
    #[arg(long)]
    redact_arguments: bool,
}

impl Asking for Arguments {
    const COMMAND: &str = "processes";

    fn kind_spec(self) -> KindSpec {
        ProcessesProbe {
            events: self.list,
            redact_arguments: self.redact_arguments,
        }
        .into()
    }
}
