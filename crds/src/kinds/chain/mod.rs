//! `chain`: what each block cost a CKB node.

mod descriptor;

pub use descriptor::{
    CALLS, CPU, DESCRIPTOR, DETACHED, DURATION, HEIGHT, LONGEST, OFF_CPU, QUEUED, STORAGE, SYNC,
    TIP, FAULTS,
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
}

impl Default for ChainProbe {
    fn default() -> Self {
        Self {
            threshold: default_threshold(),
        }
    }
}

/// A tenth of a second: blocks of the main network come every ten seconds, and most take less.
pub fn default_threshold() -> Duration {
    std::time::Duration::from_millis(100).into()
}
