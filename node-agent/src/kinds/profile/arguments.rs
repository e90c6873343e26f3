//! What the command line takes for `profile`: the table of parts. Stacks by themselves are sampled by a command of their own.

use ckb_probe_crds::{
    Duration, ProfileMode, KindSpec,
    kinds::profile::{ProfileProbe, default_frequency},
};
use clap::{Args, ValueEnum};

use crate::kinds::Asking;

/// Which parts of CKB the time and the memory go to.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe headings                                 which parts of ckb use the CPUs, and which wait: a table every 10 s\n  \
    ckb-probe headings --mode off-cpu --window 30s\n\n\
    The table is printed at the end of each window. For the stacks themselves, use ckb-probe profile.")]
pub struct Arguments {
    /// What to sample: cpu, off-cpu, memory or threads.
    #[arg(long = "mode", value_enum, value_delimiter = ',', default_value = "cpu,off-cpu")]
    modes: Vec<ModeArgument>,
    /// How many samples to take per second.
    #[arg(long, default_value_t = default_frequency(), value_parser = clap::value_parser!(u32).range(1..=999))]
    frequency: u32,
    /// How long each window lasts. One window follows the other.
    #[arg(long, default_value = "10s")]
    window: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModeArgument {
    /// Time on a CPU.
    Cpu,
    /// Time that threads wait.
    OffCpu,
    /// Memory that is touched for the first time.
    Memory,
    /// What each thread does at the end of the window.
    Threads,
}

impl Asking for Arguments {
    const COMMAND: &str = "headings";

    fn kind_spec(self) -> KindSpec {
        let mut modes: Vec<ProfileMode> = self.modes.into_iter().map(ModeArgument::mode).collect();
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

impl ModeArgument {
    fn mode(self) -> ProfileMode {
        match self {
            Self::Cpu => ProfileMode::Cpu,
            Self::OffCpu => ProfileMode::OffCpu,
            Self::Memory => ProfileMode::Memory,
            Self::Threads => ProfileMode::Threads,
        }
    }
}
