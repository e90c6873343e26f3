//! `processes`: what runs in the target's pod, and how it ends.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{DESCRIPTOR, ENDS, EXECS, FAILURES, KILLS, LIFETIME, OUT_OF_MEMORY};

/// What runs in the target's pod, and how it ends: successful execs with their parents, and ends of processes
/// with their exit code or signal, including those that were killed for lack of memory. All processes of the pod are counted,
/// in rows by their names. If the pod uses the host's network, only those of the target's container are.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessesProbe {
    /// Which events are listed individually, with their details: `All`; `Ends`, without execs; or `Failures`, ends by a signal
    /// or with an exit code other than 0. The end of the target's own process is always listed. Everything is counted, whatever
    /// is listed.
    #[serde(default)]
    pub events: ProcessEvents,

    /// Lists the number of arguments instead of the arguments, which may contain secrets. The arguments do not leave the kernel
    /// then, unless another probe of the same pod asks for them. If it is false, they are listed in the agent's log, and nowhere
    /// else: whoever may read the CkbProbe, or Events, reads their number only.
    #[serde(default = "redacted")]
    pub redact_arguments: bool,
}

const fn redacted() -> bool {
    true
}

impl Default for ProcessesProbe {
    fn default() -> Self {
        Self {
            events: ProcessEvents::default(),
            redact_arguments: redacted(),
        }
    }
}

/// Which events of processes are listed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum ProcessEvents {
    /// Execs and ends.
    #[default]
    All,
    /// Ends only.
    Ends,
    /// Ends by a signal or by a code other than 0.
    Failures,
}

impl std::str::FromStr for ProcessEvents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "all" => Ok(Self::All),
            "ends" => Ok(Self::Ends),
            "failures" => Ok(Self::Failures),
            _ => Err("there are all, ends and failures".to_string()),
        }
    }
}
