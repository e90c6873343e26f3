//! What measuring costs: windows without and with probes by turns, and what they come to.
//!
//! The one of each pair that comes first is chosen by a coin ([`Turns`](ckb_probe_crds::Turns)), and whether the two differ by more than noise is
//! told by what coins make of the same figures ([`Effect`]).

mod standing;
mod text;

use std::collections::BTreeMap;

use ckb_probe_crds::Effect;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{EnumIter, IntoEnumIterator, IntoStaticStr};

/// The annotation of a CkbProbe that is compared, as long as it is: what `spec.paused` was before.
pub const FOUND: &str = "ckbprobe.dev/paused-before-cost";

pub use standing::{attached, stands};
pub use text::{progress, table};

/// What is compared.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    EnumIter,
    Eq,
    IntoStaticStr,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
#[serde(rename_all = "camelCase")]
pub enum Measure {
    /// CPU time that the targets used, in nanoseconds a second.
    #[strum(serialize = "CPU time a second")]
    Cpu,
    /// Bytes that they read and wrote by system calls, a second.
    #[strum(serialize = "bytes read and written a second")]
    Bytes,
    /// CPU time for each of those, in nanoseconds.
    #[strum(serialize = "CPU time of a byte")]
    CpuOfByte,
    /// Bytes that their pods sent and received, a second.
    #[strum(serialize = "network bytes a second")]
    Network,
    /// What the counter grew by, a second.
    #[strum(serialize = "counter, a second")]
    Counter,
    /// CPU time for each of that, in nanoseconds.
    #[strum(serialize = "CPU time of a count")]
    CpuOfCount,
    /// How long the request took, in nanoseconds: the median.
    #[strum(serialize = "request, median")]
    Request,
}

/// Of a window, as far as it is known.
pub type Account = BTreeMap<Measure, f64>;

/// What a window came to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The pair that it belongs to, from zero. The windows of a pair are in the order in which they were.
    pub pair: usize,
    /// Whether probes were attached.
    pub probed: bool,
    /// What was measured.
    pub account: Account,
    /// What the estimate says of it, in percent of the CPU time that the targets use themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_percent: Option<f64>,
    /// What that CPU time was reckoned from; of a cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    /// Whether the process executed another program in it, or since the window before; of a host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub executed: bool,
}

fn is_false(of: &bool) -> bool {
    !of
}

/// What a kubelet said of a container at the two ends of a window.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reading {
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// When the first was taken, by the node's clock.
    pub from: MicroTime,
    /// When the last was.
    pub to: MicroTime,
    /// The CPU time that it had used by the first, in nanoseconds.
    pub cpu_from: u64,
    /// By the last.
    pub cpu_to: u64,
}

/// What a measure came to over all pairs.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compared {
    /// Which one.
    pub measure: Measure,
    /// The mean of the windows without probes.
    pub without: f64,
    /// Of those with them.
    pub with: f64,
    /// The mean over pairs of how much more it is with probes, as a part: 0.01 is 1 %.
    pub effect: f64,
    /// The least that the test does not reject, at 5 %.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// How often a coin for each pair makes as much of what is no effect.
    pub p: f64,
    /// How many pairs there were.
    pub pairs: usize,
    /// Whether it is no more than chance makes of nothing.
    pub noise: bool,
}

/// What measuring costs the targets of a CkbProbe, or a process of a host.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// The CkbProbe, `namespace/name`; on a host the process, and what is measured of it.
    pub subject: String,
    /// What the coins were thrown from that say which window of a pair comes first.
    pub seed: u32,
    /// How long each window lasted at least, such as `20s`.
    pub window: String,
    /// How long it was waited after each change.
    pub settle: String,
    /// Why it ended before its time, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Each window, in the order in which they were.
    pub windows: Vec<Window>,
    /// What they come to, of each measure that is known of six pairs and more.
    pub compared: Vec<Compared>,
    /// The mean of what was estimated in windows with probes, in percent of the CPU time that the targets use
    /// themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_percent: Option<f64>,
}

/// Of each measure that is known of enough pairs.
pub fn compare(windows: &[Window]) -> Vec<Compared> {
    Measure::iter()
        .filter_map(|measure| of_measure(windows, measure))
        .collect()
}

fn of_measure(windows: &[Window], measure: Measure) -> Option<Compared> {
    let pairs: Vec<(f64, f64)> = windows
        .chunks_exact(2)
        .filter_map(|pair| {
            let of = |probed| {
                let window = pair.iter().find(|window| window.probed == probed)?;
                window.account.get(&measure).copied()
            };
            Some((of(false)?, of(true)?))
        })
        .collect();
    let effect = Effect::of(&pairs)?;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    Some(Compared {
        measure,
        without: mean(|pair| pair.0),
        with: mean(|pair| pair.1),
        effect: effect.effect,
        low: effect.low,
        high: effect.high,
        p: effect.p,
        pairs: effect.pairs,
        noise: effect.is_noise(),
    })
}

/// The mean of what windows with probes were estimated to cost.
pub fn estimate(windows: &[Window]) -> Option<f64> {
    let all: Vec<f64> = windows
        .iter()
        .filter_map(|window| window.estimated_percent)
        .collect();
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

#[cfg(test)]
mod tests;
