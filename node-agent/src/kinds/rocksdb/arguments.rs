//! What the command line takes for `rocksdb`.

use ckb_probe_crds::{
    KindSpec,
    kinds::rocksdb::{Operation, RocksDbProbe, default_operations, default_slow_threshold},
};
use clap::Args;

use crate::{kinds::Asking, mechanism::calls};

/// Latency of the RocksDB C API.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The operations to measure, such as Get,TxnCommit. Unset: those that a CKB node spends its time on.
    #[arg(long, value_delimiter = ',')]
    operations: Vec<Operation>,
    /// Calls that take at least this long count as slow.
    #[arg(long, default_value_t = default_slow_threshold())]
    slow_threshold: ckb_probe_crds::Duration,
    /// Also print the figures of each column family.
    #[arg(long)]
    by_column_family: bool,
    /// List slow calls with their callers: with --events those of each call, otherwise those of the slowest below the table.
    #[arg(long)]
    stacks: bool,
    /// Also attach to functions whose first instruction the kernel must single-step; a probed call of them costs many times as
    /// much.
    #[arg(long)]
    include_single_stepped: bool,
    /// Tell what reads and writes of the database read from files and write to them, which makes each call a tenth dearer.
    #[arg(long)]
    file_io: bool,

    /// Tell nothing of RocksDB's own health: errors of its background work, and writes that it holds back.
    #[arg(long)]
    no_health: bool,
}

impl Asking for Arguments {
    const COMMAND: &str = "rocksdb";

    fn reports_stacks(&self) -> bool {
        self.stacks
    }

    fn kind_spec(self) -> KindSpec {
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
            file_io: self.file_io,
            health: !self.no_health,
        }
        .into()
    }

    fn listed() -> Vec<calls::Counted> {
        super::every_operation()
    }
}
