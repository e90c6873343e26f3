//! The resources of `ckbprobe.dev/v1alpha1`, and what their statuses are made of.
//!
//! [`CkbProbe`] is what a user wants; [`NodeProbe`] is the work order the operator writes for one node and
//! the report its agent writes back. Stacks travel by themselves: agents write [`ProfilePart`]s, of which the operator makes
//! [`CkbProfile`]s. This crate knows no client and makes no decision: it is the language
//! the operator and the agents share.

mod argument;
mod ckbprobe;
mod conditions;
pub mod definitions;
pub mod descriptor;
mod duration;
pub mod kinds;
pub mod metrics;
mod nodeprobe;
mod profile;
pub mod report;
mod rules;

// The numbers that statuses and reports carry are an algebra of their own; whoever reads a status needs both.
pub use argument::Argument;
pub use ckb_probe_figures::{
    Balance, Distribution, Effect, FEWEST_PAIRS, Figures, Histogram, IntervalFigures, Lasted, Name,
    Passed, Share, SliceShape, Spread, Summary, Turns, Value, Variance, anomaly,
    contention::{self, Contention},
    display_nanos, figures, fleet, histogram, numbers,
};
pub use ckbprobe::{
    AnomalyStatus, Breach, CaptureState, CaptureStatus, CkbProbe, CkbProbeSpec, CkbProbeStatus,
    DEFAULT_EXPORTER, EventStatus, InstanceStatus, OutlierStatus, Overhead, OverheadStatus,
    PartStatus, ProbeStatus, RowStatus, SpanCounts, SupportStatus, Target, TargetCounts, Traces,
};
pub use conditions::{Reason, condition};
pub use descriptor::Descriptor;
pub use duration::Duration;
pub use kinds::{Kind, KindSpec, Probe};
pub use nodeprobe::{
    AgentStatus, Assignment, Check, Container, InstanceReport, InstanceState, NodeProbe,
    NodeProbeSpec, NodeProbeStatus, PodReference, ProbeReference,
};
pub use profile::{
    CkbProfile, CkbProfileSpec, FunctionShare, PART_SLOTS, PPROF_LIMIT, PartLabels, ProfileCounts,
    ProfileMode, ProfilePart, ProfilePartSpec, ProfileShare, ProfileTarget, ProfileWindow,
    SLOW_CALLS_WINDOW, WINDOWS_KEPT, label, part_name, part_place,
};
pub use report::{EventReport, Lack, PartReport, ProbeReport, RowReport};

/// The API group of all resources.
pub const GROUP: &str = "ckbprobe.dev";
