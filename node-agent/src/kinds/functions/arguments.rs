//! What the command line takes for `functions`.

use ckb_probe_crds::{
    KindSpec,
    kinds::functions::{Argument, FunctionsProbe, default_limit},
};
use clap::{ArgGroup, Args};

use crate::kinds::Asking;

/// Latency of functions of the process or of a library.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("end").args(["to", "to_return"]).multiple(true)))]
#[command(after_help = "Examples:\n  \
    ckb-probe symbols --match 'rocksdb::DBImpl::*'                       what would be attached to?\n  \
    ckb-probe functions --match 'rocksdb::DBImpl::*' --executable ckb    latency of each\n  \
    ckb-probe functions --match 'ckb_chain::verify::*' --threshold 10ms --events\n  \
    ckb-probe functions --match 'app::accept' --to 'app::answer' --key-argument 1    from one to the other, across threads\n  \
    ckb-probe functions --match 'app::enqueue' --to-return 'app::handle' --key-argument 1    to when the other returns\n  \
    ckb-probe functions --match write --library libc.so.6 --threshold 1ms --arguments int,str,int --events\n\n\
    Do not probe functions through which C++ exceptions or Rust panics unwind: with a probe at the return, that ends the process.")]
pub struct Arguments {
    /// A pattern of function names, with *, ? and [abc]: rocksdb::DBImpl::*, ckb_chain::verify::*, rocksdb_*.
    #[arg(long = "match", value_name = "GLOB")]
    pattern: String,
    /// The library that has the functions, by its file name, such as libc.so.6. Unset: the executable.
    #[arg(long)]
    library: Option<String>,
    /// How many functions may match; if more do, none is measured.
    #[arg(long, default_value_t = default_limit(), value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
    /// Calls that take at least this long count as slow. Unset: no call does.
    #[arg(long)]
    threshold: Option<ckb_probe_crds::Duration>,
    /// The types of the first arguments (integer or string, at most six); slow calls are listed with these arguments.
    #[arg(long, value_delimiter = ',', num_args = 1..=6)]
    arguments: Vec<Argument>,
    /// List slow calls with their callers: with --events those of each call, otherwise those of the slowest below the table.
    #[arg(long, requires = "threshold")]
    stacks: bool,
    /// Also attach to functions whose first instruction the kernel must single-step; a probed call of them costs many times as
    /// much.
    #[arg(long)]
    include_single_stepped: bool,
    /// Measure the time from when a function that matches begins to when one that matches these does, at most 8 patterns, instead of how long
    /// calls take.
    #[arg(long, value_delimiter = ',', num_args = 1..=8, value_name = "GLOB", conflicts_with_all = ["arguments", "stacks"])]
    to: Vec<String>,
    /// The same to when a function that matches these returns, at most 8 patterns. With --to, whichever comes first ends it.
    #[arg(long, value_delimiter = ',', num_args = 1..=8, value_name = "GLOB", conflicts_with_all = ["arguments", "stacks"])]
    to_return: Vec<String>,
    /// The number of the argument that both have in common, where what begins in one thread ends in another.
    #[arg(long, requires = "end", value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=6))]
    key_argument: Option<u8>,
    /// The number of the argument of what begins that is a W3C traceparent: what is slow is exported in that trace (--otlp).
    #[arg(long, requires_all = ["end", "threshold"], value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=6))]
    traceparent_argument: Option<u8>,
}

impl Asking for Arguments {
    const COMMAND: &str = "functions";

    fn reports_stacks(&self) -> bool {
        self.stacks
    }

    fn kind_spec(self) -> KindSpec {
        let Self {
            pattern,
            library,
            limit,
            threshold,
            mut arguments,
            stacks,
            include_single_stepped,
            to,
            to_return,
            key_argument,
            traceparent_argument,
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
            to,
            to_return,
            key_argument,
            // It is for several probes, and this is one.
            key_name: None,
            traceparent_argument,
        }
        .into()
    }
}
