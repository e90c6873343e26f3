//! `profile`: where the time and the memory go, by stack.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

mod descriptor;

pub use descriptor::{COMPLETE, DESCRIPTOR, MEMORY, SAMPLES, THREADS, TIME};

use crate::{Duration, ProfileMode};

/// Where the time and the memory go: stacks of the process's threads in windows of time, as CkbProfiles in the CkbProbe's
/// namespace, and here how they divide by part of CKB. Nothing runs in the process, and none of its threads is stopped.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!has(self.every) || duration(self.every) >= duration(self.window)")
    .message("profile.every must be at least profile.window: a window begins when the one before is over"))]
pub struct ProfileProbe {
    /// What stacks are weighted by: any of Cpu, the time on a CPU; OffCpu, the time that threads wait; Memory, what is touched
    /// for the first time; and Threads, what each thread does at the end of the window.
    #[serde(default = "default_modes")]
    #[schemars(length(min = 1, max = 4))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("!('SlowCalls' in self)")
        .message("profile.modes cannot have SlowCalls: these are stacks of the calls that rocksdb and functions list as slow; modes are Cpu, OffCpu, Memory and Threads"))]
    pub modes: Vec<ProfileMode>,

    /// How often a second it is looked who runs, on each CPU; no more often than the kernel ticks, and than the overhead budget
    /// pays. All threads are gone through as often, but no more than 19 times a second, for what they wait for.
    #[serde(default = "default_frequency")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 999")
        .message("profile.frequency must be from 1 to 999 times a second"))]
    pub frequency: u32,

    /// How long it is looked.
    #[serde(default = "default_window")]
    #[x_kube(validation = Rule::new(
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('1s') && duration(self) <= duration('10m')"
    ).message("profile.window must be a duration from 1s to 10m, such as 30s"))]
    pub window: Duration,

    /// From the beginning of one window to that of the next: at multiples of it of the clock, so that all targets are looked at
    /// at the same time. Unset: once, as it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Duration")]
    #[x_kube(validation = Rule::new(
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('10s') && duration(self) <= duration('24h')"
    ).message("profile.every must be a duration from 10s to 24h, such as 10m"))]
    pub every: Option<Duration>,

    /// How many windows of each mode are kept: of more, the oldest are deleted.
    #[serde(default = "default_keep")]
    #[x_kube(validation = Rule::new("self >= 1 && self <= 50")
        .message("profile.keep must be from 1 to 50 windows"))]
    pub keep: u32,
}

impl Default for ProfileProbe {
    fn default() -> Self {
        Self {
            modes: default_modes(),
            frequency: default_frequency(),
            window: default_window(),
            every: None,
            keep: default_keep(),
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
