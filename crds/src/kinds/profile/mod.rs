//! `profile`: where the time and the memory go, by stack.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{ALLOCATED, COMPLETE, DESCRIPTOR, FREED, MEMORY, SAMPLES, THREADS, TIME};

use crate::{Duration, ProfileMode};

/// Stack profiles: where the time and the memory go. The stacks of the process's threads are sampled in windows of time; each
/// window becomes a CkbProfile in the CkbProbe's namespace, and the status shows how it divides among the parts of CKB. Nothing
/// runs in the process, and none of its threads is stopped.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.every) || duration(self.every) >= duration(self.window)")
    .message("profile.every must be at least profile.window: a window begins when the one before is over"))]
pub struct ProfileProbe {
    /// What is sampled, any of: `Cpu`, time on a CPU; `OffCpu`, time that threads wait; `Memory`, memory that is touched for
    /// the first time; `Allocations`, memory that is allocated and freed, of a process with jemalloc 5.3 that has its symbols, as CKB, or of one
    /// that says it itself by the USDT probes `otel_memory:alloc` and `otel_memory:free`; and `Threads`, what each thread does at the end of the
    /// window.
    #[serde(default = "default_modes")]
    #[schemars(length(min = 1, max = 5))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("!('SlowCalls' in self)")
        .message("profile.modes cannot have SlowCalls: these are stacks of the calls that rocksdb and functions list as slow; modes are Cpu, OffCpu, Memory, Allocations and Threads"))]
    pub modes: Vec<ProfileMode>,

    /// How many samples are taken per second of what runs on each CPU; at most as many as the kernel has timer ticks and the
    /// overhead budget pays for. For `OffCpu`, all threads are looked at this often, but at most 19 times per second.
    #[serde(default = "default_frequency")]
    #[x_kube(validation = crate::rules::from_one("profile.frequency", 999, " times a second"))]
    pub frequency: u32,

    /// How long one window of sampling lasts.
    #[serde(default = "default_window")]
    #[x_kube(validation = crate::rules::duration("profile.window", "1s", "10m", "30s"))]
    pub window: Duration,

    /// The time from the start of one window to the start of the next. Windows start at multiples of it since 1970, so those of
    /// all targets start together. Unset: there is one window, which starts at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    #[x_kube(validation = crate::rules::duration("profile.every", "10s", "24h", "10m"))]
    pub every: Option<Duration>,

    /// How many windows of each mode are kept. Older ones are deleted.
    #[serde(default = "default_keep")]
    #[x_kube(validation = crate::rules::from_one("profile.keep", 50, " windows"))]
    pub keep: u32,

    /// Profiles only while a figure of the other probes is not as it usually is (`status.probes[].anomalies`): one window, which starts at
    /// once; or, with `every`, as many as are kept, as long as that lasts. Until then nothing is sampled, and `status.probes[].capture` says
    /// that it waits.
    #[serde(default, skip_serializing_if = "is_false")]
    pub capture_on_anomaly: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Default for ProfileProbe {
    fn default() -> Self {
        Self {
            modes: default_modes(),
            frequency: default_frequency(),
            window: default_window(),
            every: None,
            keep: default_keep(),
            capture_on_anomaly: false,
        }
    }
}

/// Where the time goes.
pub fn default_modes() -> Vec<ProfileMode> {
    vec![ProfileMode::Cpu, ProfileMode::OffCpu]
}

/// A number that keeps no step with what runs by the clock.
pub fn default_frequency() -> u32 {
    99
}

/// As long as a person waits for a picture.
pub fn default_window() -> Duration {
    std::time::Duration::from_secs(30).into()
}

/// As many as are compared.
pub fn default_keep() -> u32 {
    5
}
