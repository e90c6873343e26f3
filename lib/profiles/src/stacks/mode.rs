//! What can be sampled, and what it is weighed in.

use std::{fmt, str::FromStr};

use strum::{IntoStaticStr, VariantArray};

/// What is sampled, and by what stacks are weighted.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    Eq,
    Hash,
    Ord,
    PartialEq,
    PartialOrd,
    IntoStaticStr,
    VariantArray,
    strum::Display,
)]
#[cfg_attr(
    feature = "api",
    derive(schemars::JsonSchema, serde::Deserialize, serde::Serialize)
)]
#[cfg_attr(feature = "cli", derive(clap::ValueEnum))]
pub enum ProfileMode {
    /// Time on a CPU.
    #[default]
    Cpu,
    /// Time that threads waited.
    OffCpu,
    /// Memory that was touched for the first time.
    Memory,
    /// Memory that was allocated, and freed.
    Allocations,
    /// What each thread does at one moment.
    Threads,
    /// Time of slow calls, of probes with `stacks: true`.
    #[cfg_attr(feature = "cli", value(skip))]
    SlowCalls,
}

impl ProfileMode {
    /// Every mode.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// What a stack's weights are, in their order.
    pub fn sample_types(self) -> Vec<SampleType> {
        let types: &[[&str; 2]] = match self {
            Self::Cpu => &[["samples", "count"], ["cpu", "nanoseconds"]],
            Self::OffCpu => &[["wait", "nanoseconds"]],
            Self::Memory => &[["faults", "count"], ["space", "bytes"]],
            Self::Allocations => &[["alloc_space", "bytes"], ["free_space", "bytes"]],
            // How many, and for how long they have been in their state, added up.
            Self::Threads => &[["threads", "count"], ["in_state", "nanoseconds"]],
            Self::SlowCalls => &[["slow_calls", "count"], ["duration", "nanoseconds"]],
        };
        let of = |[name, unit]: &[&str; 2]| SampleType::new(name, unit);
        types.iter().map(of).collect()
    }

    /// The place of the type that is shown where nobody asks for another.
    pub fn shown(self) -> usize {
        match self {
            Self::Cpu | Self::Memory | Self::SlowCalls => 1,
            Self::OffCpu | Self::Allocations | Self::Threads => 0,
        }
    }

    /// Its name in specs, statuses and the names of objects.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The mode of this name.
    pub fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|mode| mode.as_str() == name)
    }
}

/// In any letters, with or without a hyphen: `cpu`, `off-cpu`.
impl FromStr for ProfileMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let asked = text.replace('-', "");
        (Self::ALL.iter().copied())
            .find(|mode| mode.as_str().eq_ignore_ascii_case(&asked))
            .ok_or_else(|| {
                "there are cpu, off-cpu, memory, allocations, threads and slow-calls".to_owned()
            })
    }
}

/// What one of a stack's weights is (`cpu`), and in what unit (`nanoseconds`): in pprof's words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SampleType {
    /// The name of the weight.
    pub name: String,
    /// What it is counted in: `count`, `nanoseconds`, `bytes`.
    pub unit: String,
}

impl SampleType {
    /// A sample type.
    pub fn new(name: &str, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            unit: unit.to_owned(),
        }
    }
}

impl fmt::Display for SampleType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.name, self.unit)
    }
}

/// `samples/count and cpu/nanoseconds`.
pub fn list(types: &[SampleType]) -> String {
    let types: Vec<String> = types.iter().map(SampleType::to_string).collect();
    match types.as_slice() {
        [] => "nothing".to_owned(),
        _ => types.join(" and "),
    }
}
