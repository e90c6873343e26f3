//! The resources of `ckbprobe.dev/v1alpha1`, and what their statuses are made of.
//!
//! [`CkbProbe`] is what a user wants; [`NodeProbe`] is the work order the operator writes for one node and
//! the report its agent writes back. This crate knows no client and makes no decision: it is the language
//! the operator and the agents share.

mod ckbprobe;
mod conditions;
mod duration;
pub mod histogram;
pub mod kinds;
mod nodeprobe;

pub use ckbprobe::{
    Breach, CkbProbe, CkbProbeSpec, CkbProbeStatus, ColumnFamilyStatus, InstanceStatus,
    OperationStatus, Overhead, OverheadStatus, Probe, SlowOperationStatus, Target, TargetCounts,
    Totals,
};
pub use conditions::{Reason, condition};
pub use duration::{Duration, display_nanos};
pub use histogram::Histogram;
pub use nodeprobe::{
    AgentStatus, Assignment, Check, ColumnFamilyReport, Container, Counters, InstanceReport,
    InstanceState, NodeProbe, NodeProbeSpec, NodeProbeStatus, OperationReport, PodReference,
    ProbeReference, SlowCallReport, Window,
};

/// The API group of both resources.
pub const GROUP: &str = "ckbprobe.dev";
