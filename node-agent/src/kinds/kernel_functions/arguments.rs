//! What the command line takes for `kernelFunctions`.

use ckb_probe_crds::{
    KindSpec,
    kinds::kernel_functions::{KernelFunctionsProbe, default_limit},
};
use clap::Args;

use crate::kinds::Asking;

/// Latency of functions of the kernel.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe kernel-functions --match 'ext4_sync_*'              how long does the file system take to sync?\n  \
    ckb-probe kernel-functions --match 'tcp_*msg' --executable ckb --interval 5s\n  \
    ckb-probe kernel-functions --match '__x64_sys_f*sync' --threshold 5ms --events")]
pub struct Arguments {
    /// A pattern of function names as in /proc/kallsyms, with *, ? and [abc]: ext4_sync_file, tcp_*msg.
    #[arg(long = "match", value_name = "GLOB")]
    pattern: String,
    /// How many functions may match; if more do, none is measured.
    #[arg(long, default_value_t = default_limit(), value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// Calls that take at least this long count as slow. Unset: no call does.
    #[arg(long)]
    threshold: Option<ckb_probe_crds::Duration>,
}

impl Asking for Arguments {
    const COMMAND: &str = "kernel-functions";

    fn kind_spec(self) -> KindSpec {
        KernelFunctionsProbe {
            r#match: self.pattern,
            limit: self.limit,
            threshold: self.threshold,
        }
        .into()
    }
}
