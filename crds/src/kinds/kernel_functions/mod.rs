//! `kernelFunctions`: the latency of functions of the kernel, on behalf of the process.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{DESCRIPTOR, DURATION, LONGEST, SLOW};

use crate::Duration;

/// Latency of functions of the kernel by a pattern of their names, when the process's threads call them: count, rate, quantiles
/// and slow calls of each. Such a probe also slows every other process of the node that calls the function, a little; that
/// counts against the budget. Requires a kernel with CONFIG_FPROBE (Linux 5.18 or later), or with CONFIG_KPROBE_EVENTS and
/// agent.sysAdmin=true.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelFunctionsProbe {
    /// A pattern of function names, with `*`, `?` and `[abc]`, matched against the names in the node's /proc/kallsyms:
    /// `ext4_sync_file`, `tcp_*msg`, `__x64_sys_fdatasync`. The names differ between kernels. Functions that the probes
    /// themselves use, and those that interrupts and locks are made of, are left out, and the status names them.
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[][A-Za-z0-9_.*?!-]+$') && self.matches('[A-Za-z0-9]')")
        .message("kernelFunctions.match must be a name or a pattern of names of functions of the kernel that says more than '*', such as ext4_sync_file or tcp_*msg"))]
    pub r#match: String,

    /// How many functions may match. If more do, none is attached to, and the status says how many match and names some of
    /// them.
    #[serde(default = "default_limit")]
    #[x_kube(validation = crate::rules::from_one("kernelFunctions.limit", 200, ""))]
    pub limit: u32,

    /// A call that takes at least this long is counted as slow, and the agent lists it. Unset: no call is slow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    #[x_kube(validation = crate::rules::duration("kernelFunctions.threshold", "1us", "1h", "500us or 10ms"))]
    pub threshold: Option<Duration>,
}

/// As many as a person looks through.
pub fn default_limit() -> u32 {
    50
}
