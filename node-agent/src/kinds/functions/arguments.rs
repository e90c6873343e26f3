//! What the command line takes for `functions`.

use ckb_probe_crds::{
    Question,
    kinds::functions::{Argument, FunctionsProbe, default_limit},
};
use clap::Args;

use crate::kinds::Asking;

/// Latency of functions.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe symbols --match 'rocksdb::DBImpl::*'                       what would be attached to?\n  \
    ckb-probe functions --match 'rocksdb::DBImpl::*' --executable ckb    latency of each\n  \
    ckb-probe functions --match 'ckb_chain::verify::*' --threshold 10ms --events\n  \
    ckb-probe functions --match write --library libc.so.6 --threshold 1ms --arguments int,str,int --events\n\n\
    Do not probe functions that C++ exceptions or Rust panics pass through: a probe at their return ends the process then.")]
pub struct Arguments {
    /// What their names match, with *, ? and [abc]: rocksdb::DBImpl::*, ckb_chain::verify::*, rocksdb_*.
    #[arg(long = "match", value_name = "GLOB")]
    pattern: String,
    /// The library that they are in, by its file's name, such as libc.so.6. Unset: the executable.
    #[arg(long)]
    library: Option<String>,
    /// How many functions may match.
    #[arg(long, default_value_t = default_limit(), value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// Calls that take at least this long are slow. Unset: none is.
    #[arg(long)]
    threshold: Option<ckb_probe_crds::Duration>,
    /// What the first arguments are (integer or string, at most six), so that slow calls are listed with them.
    #[arg(long, value_delimiter = ',', num_args = 1..=6)]
    arguments: Vec<Argument>,
    /// Tell of each slow call who called it: with --events as a list, else of the slowest below the table.
    #[arg(long, requires = "threshold")]
    stacks: bool,
    /// Also attach where the kernel must single-step the function's first instruction, at many times the cost.
    #[arg(long)]
    include_single_stepped: bool,
}

impl Asking for Arguments {
    const COMMAND: &str = "functions";

    fn tells_stacks(&self) -> bool {
        self.stacks
    }

    fn question(self) -> Question {
        let Self {
            pattern,
            library,
            limit,
            threshold,
            mut arguments,
            stacks,
            include_single_stepped,
        } = self;
        arguments.truncate(6);
        FunctionsProbe {
            r#match: pattern,
            library,
            limit,
            threshold,
            arguments,
            stacks,
            include_single_stepped,
        }
        .into()
    }
}
