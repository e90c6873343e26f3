//! What the command line takes for `chain`.

use ckb_probe_crds::{
    KindSpec,
    kinds::chain::{ChainProbe, default_threshold},
};
use clap::Args;

use crate::kinds::Asking;

/// What each block cost a CKB node.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe chain                                      a table every second, by what became of blocks\n  \
    ckb-probe chain --threshold 0s --events              each block as a JSON line, with its height\n  \
    ckb-probe chain --threshold 1s --events              which blocks took a second, and on what?")]
pub struct Arguments {
    /// List blocks that take at least this long, with their height and what they consisted of; 0s: every block.
    #[arg(long, default_value_t = default_threshold())]
    threshold: ckb_probe_crds::Duration,
    /// Also tell the operations of RocksDB apart by column family.
    #[arg(long)]
    by_column_family: bool,
    /// List slow blocks with the callers of what took longest in them: with --events those of each block, otherwise those of the
    /// slowest below the table.
    #[arg(long)]
    stacks: bool,
}

impl Asking for Arguments {
    const COMMAND: &str = "chain";

    fn reports_stacks(&self) -> bool {
        self.stacks
    }

    fn kind_spec(self) -> KindSpec {
        ChainProbe {
            threshold: self.threshold,
            by_column_family: self.by_column_family,
            stacks: self.stacks,
        }
        .into()
    }
}
