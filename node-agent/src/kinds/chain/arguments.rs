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
}

impl Asking for Arguments {
    const COMMAND: &str = "chain";

    fn kind_spec(self) -> KindSpec {
        ChainProbe {
            threshold: self.threshold,
        }
        .into()
    }
}
