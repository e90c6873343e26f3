//! `chain`: what each block cost a CKB node.

mod descriptor;

pub use descriptor::{
    BYTES, CALLS, CPU, DESCRIPTOR, DETACHED, DURATION, FAULTS, HEIGHT, LONGEST, MINOR_FAULTS, OFF_CPU, QUEUED, STORAGE, SYNC, TIP,
    TRANSACTIONS, VERIFY, VERIFY_OFF_CPU, WAL,
};
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::Duration;

/// What each block cost a CKB node (0.118 and later), seen from outside: how long its verification took, from the beginning of its
/// transaction in RocksDB to the commit, by RocksDB operation, on the CPU and off it; reorganisations, and blocks that came to
/// nothing. Blocks are counted by what became of them.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChainProbe {
    /// A block that takes at least this long is listed individually, with its height and what it consisted of. With `0s` every
    /// block is.
    #[serde(default = "default_threshold")]
    #[x_kube(validation = Rule::new(
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$') && duration(self) <= duration('1h')"
    ).message("chain.threshold must be a duration of up to 1h, such as 0s (every block) or 100ms"))]
    pub threshold: Duration,

    /// Also tells the operations of RocksDB apart by column family.
    #[serde(default)]
    pub by_column_family: bool,

    /// Lists slow blocks with the callers of what took longest in them: function names, innermost first. The stack of a call of RocksDB
    /// is copied as it returns, if it took a quarter of the threshold, and of a block without such a call as it is committed; then
    /// it is unwound and wiped immediately. This makes such a call about 3 us longer, and no more stacks are copied than the budget
    /// allows. For every ten minutes with a slow block there is also a CkbProfile of the mode SlowCalls, which shows the time of slow
    /// blocks by these callers; the last five are kept.
    #[serde(default)]
    pub stacks: bool,
}

impl Default for ChainProbe {
    fn default() -> Self {
        Self {
            threshold: default_threshold(),
            by_column_family: false,
            stacks: false,
        }
    }
}

/// A tenth of a second: blocks of the main network come every ten seconds, and most take less.
pub fn default_threshold() -> Duration {
    std::time::Duration::from_millis(100).into()
}
