//! `usdt`: the probes that a program's authors left in it.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{DESCRIPTOR, HITS};

/// USDT probes of the process (user-level statically defined tracing), by provider and name: how often each is met. They are in
/// the executable or in a library that it has mapped, and cost nothing while nobody attaches. Semaphores are raised while a probe is
/// attached to, by the kernel, which lowers them however the agent ends.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UsdtProbe {
    /// Whose probes: `postgresql`, `python`, `libstdcxx`. `ckb-probe symbols --usdt` lists what a process has.
    #[schemars(length(max = 128))]
    #[x_kube(validation = Rule::new("self.matches('^[!-~]+$') && !self.contains('*')")
        .message("usdt.provider must be the whole name of a provider, such as postgresql: patterns are for usdt.names"))]
    pub provider: String,

    /// Patterns of the probes' names, with `*`, `?` and `[abc]`: a probe that matches one of them is a row. `transaction__*`,
    /// `query__start`.
    #[serde(default = "default_names")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 128)))]
    pub names: Vec<String>,

    /// How many probes may match. If more do, none is attached to, and the status says how many match and names some of them.
    #[serde(default = "default_limit")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 200")
        .message("usdt.limit must be from 1 to 200"))]
    pub limit: u32,
}

/// All that the provider has.
pub fn default_names() -> Vec<String> {
    vec!["*".to_string()]
}

/// As many as a person looks through.
pub fn default_limit() -> u32 {
    50
}
