//! What the command line takes for `rocksdb`.

use ckb_probe_crds::{
    Question,
    kinds::rocksdb::{Operation, RocksDbProbe, default_operations, default_slow_threshold},
};
use clap::Args;

use crate::{kinds::Asking, mechanism::calls};

/// Latency of the RocksDB C API.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The operations to measure, such as Get,TxnCommit.
    #[arg(long, value_delimiter = ',')]
    operations: Vec<Operation>,
    /// Calls that take at least this long are slow.
    #[arg(long, default_value_t = default_slow_threshold())]
    slow_threshold: ckb_probe_crds::Duration,
    /// Also print the figures of each column family.
    #[arg(long)]
    by_column_family: bool,
    /// Tell of each slow call who called it: with --events as a list, else of the slowest below the table.
    #[arg(long)]
    stacks: bool,
    /// Also attach where the kernel must single-step the function's first instruction, at many times the cost.
    #[arg(long)]
    include_single_stepped: bool,
}

impl Asking for Arguments {
    const COMMAND: &str = "rocksdb";

    fn tells_stacks(&self) -> bool {
        self.stacks
    }

    fn question(self) -> Question {
        let operations = match &self.operations[..] {
            [] => default_operations(),
            some => some.to_vec(),
        };
        RocksDbProbe {
            operations,
            slow_threshold: self.slow_threshold,
            by_column_family: self.by_column_family,
            stacks: self.stacks,
            include_single_stepped: self.include_single_stepped,
        }
        .into()
    }

    fn listed() -> Vec<calls::Counted> {
        super::every_operation()
    }
}
