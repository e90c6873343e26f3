//! `syscalls`: what the process asks of the kernel.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{DESCRIPTOR, DURATION, ERRORS, LONGEST, RESTARTS, SLOW, WAITS};

use crate::Duration;

/// System calls by name: count, rate, quantiles, errors by errno, and slow calls. Tracing slows the system calls of every
/// process of the node a little, not only the target's; that counts against the budget.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyscallsProbe {
    /// The names of the system calls to measure, such as openat and fdatasync. Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 32)))]
    #[x_kube(validation = Rule::new("self.all(name, name.matches('^[a-z][a-z0-9_]*$'))")
        .message("syscalls.names must be names of system calls as their manual pages have them, such as openat or fdatasync"))]
    pub names: Vec<String>,

    /// A call that takes at least this long is counted as slow, and the agent lists it with what it was about, such as its
    /// file. Calls that wait for something to happen (futex, epoll_wait, poll, nanosleep, …) are not work: they are reported
    /// separately and are never slow.
    #[serde(default = "default_slow_threshold")]
    #[x_kube(validation = crate::rules::duration("syscalls.slowThreshold", "1us", "1h", "500us or 10ms"))]
    pub slow_threshold: Duration,
}

impl Default for SyscallsProbe {
    fn default() -> Self {
        Self {
            names: Vec::new(),
            slow_threshold: default_slow_threshold(),
        }
    }
}

/// Ten milliseconds: longer than a disk of flash takes to sync.
pub fn default_slow_threshold() -> Duration {
    std::time::Duration::from_millis(10).into()
}
