//! The resources of `ckbprobe.dev/v1alpha1`, and what their statuses are made of.
//!
//! [`CkbProbe`] is what a user wants; [`NodeProbe`] is the work order the operator writes for one node and
//! the report its agent writes back. Stacks travel by themselves: agents write [`ProfilePart`]s, of which the operator makes
//! [`CkbProfile`]s. This crate knows no client and makes no decision: it is the language
//! the operator and the agents share.

mod ckbprobe;
mod conditions;
pub mod definitions;
pub mod descriptor;
mod duration;
pub mod figures;
pub mod histogram;
pub mod kinds;
mod nodeprobe;
pub mod numbers;
mod profile;
pub mod report;
mod share;
mod summary;

pub use ckbprobe::{
    Breach, CkbProbe, CkbProbeSpec, CkbProbeStatus, EventStatus, InstanceStatus, Overhead,
    OverheadStatus, PartStatus, ProbeStatus, RowStatus, Target, TargetCounts,
};
pub use conditions::{Reason, condition};
pub use descriptor::{Descriptor, Value};
pub use duration::{Duration, display_nanos};
pub use figures::{Distribution, Figures, Name};
pub use histogram::Histogram;
pub use kinds::{Kind, Probe, Question};
pub use nodeprobe::{
    AgentStatus, Assignment, Check, Container, InstanceReport, InstanceState, NodeProbe,
    NodeProbeSpec, NodeProbeStatus, PodReference, ProbeReference,
};
pub use profile::{
    CkbProfile, CkbProfileSpec, FunctionShare, PPROF_LIMIT, PartLabels, ProfileCounts, ProfileMode,
    ProfilePart, ProfilePartSpec, ProfileShare, ProfileTarget, ProfileWindow, label, part_name,
    part_place,
};
pub use report::{EventReport, Lack, PartReport, ProbeReport, RowReport, Window};
pub use share::Share;
pub use summary::Summary;

/// The API group of all resources.
pub const GROUP: &str = "ckbprobe.dev";
