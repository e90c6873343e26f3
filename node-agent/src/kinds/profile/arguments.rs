//! What the command line takes for `profile`: the table of parts. Stacks by themselves are sampled by a command of their own.

use ckb_probe_crds::{
    Duration, ProfileMode, KindSpec,
    kinds::profile::{ProfileProbe, default_frequency},
};
use clap::Args;

use crate::kinds::Asking;

/// Which parts of CKB the time and the memory go to.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe headings                                 which parts of ckb use the CPUs, and which wait: a table every 10 s\n  \
    ckb-probe headings --mode off-cpu --window 30s\n\n\
    The table is printed at the end of each window. For the stacks themselves, use ckb-probe profile.")]
pub struct Arguments {
    /// What to sample: cpu, off-cpu, memory, allocations or threads.
    #[arg(long = "mode", value_enum, value_delimiter = ',', default_value = "cpu,off-cpu")]
    modes: Vec<ProfileMode>,
    /// How many samples to take per second.
    #[arg(long, default_value_t = default_frequency(), value_parser = clap::value_parser!(u32).range(1..=999))]
    frequency: u32,
    /// How long each window lasts. One window follows the other.
    #[arg(long, default_value = "10s")]
    window: Duration,
}

impl Asking for Arguments {
    const COMMAND: &str = "headings";

    fn kind_spec(self) -> KindSpec {
        let mut modes = self.modes;
        modes.sort_unstable();
        modes.dedup();
        ProfileProbe {
            modes,
            frequency: self.frequency,
            window: self.window,
            every: Some(self.window),
            ..ProfileProbe::default()
        }
        .into()
    }
}
