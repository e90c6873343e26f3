//! Condition types and reasons: one spelling for the operator, the agents, the tests and the docs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::value::StrDeserializer};
use strum::IntoStaticStr;

/// The condition types of a `CkbProbe`. Always chosen by type, never by index.
pub mod condition {
    /// Every matched target is attached, and each of its probes that its node's kernel supports is, and counts something
    /// unless it is of a quiet kind.
    pub const READY: &str = "Ready";
    /// The operator or an agent is still on its way to what the spec asks for.
    pub const PROGRESSING: &str = "Progressing";
    /// Something a person must look at: the message says what, of which object, and what to do.
    pub const DEGRADED: &str = "Degraded";
    /// What probing costs each target is estimated at no more than its budget: the greatest `spec.overhead.maxPercent` that any
    /// CkbProbe asks of it, or the installation's ceiling where that is lower. With `onBreach: Sample`
    /// the estimate of one report interval may lie above, since an interval is a handful of time slices: false only when an agent
    /// says that sampling does not suffice, or when the estimates of the last interval and of the last minute are more than a
    /// tenth above; and then until either is back at the ceiling, so that it does not come and go.
    pub const WITHIN_BUDGET: &str = "WithinBudget";
    /// The kernels of the targets' nodes support each probe in full. One that is not supported everywhere keeps the others from
    /// nothing: it is false beside a `Ready` that is true, and says of how many probes so much is true.
    pub const SUPPORTED: &str = "Supported";
    /// What is measured tells of nothing that a person must see to in the targets themselves, such as errors of RocksDB's background
    /// work. That measuring itself goes wrong is not meant: see [`DEGRADED`].
    pub const TARGETS_HEALTHY: &str = "TargetsHealthy";
}

/// Why an instance, or a condition, is as it is. One list for both, so that a reason means one thing.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    Hash,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
    IntoStaticStr,
    strum::Display,
)]
pub enum Reason {
    /// Attached, and something was counted lately.
    Firing,
    /// Attached, but nothing was counted for three report intervals.
    Silent,
    /// Attached a moment ago: no full report interval has passed yet.
    Attaching,
    /// No pod of the namespace matches `target.selector`.
    NoMatchingPods,
    /// The matched pod is not running yet, or not on a node yet.
    PodNotRunning,
    /// The pod runs, but none of its selected containers runs the executable.
    ExecutableNotFound,
    /// Functions were asked for that the binary lacks.
    SymbolNotFound,
    /// More functions match than the probe's limit.
    TooManyMatches,
    /// Functions were asked for that begin with an instruction that the kernel would have to single-step, at many times
    /// the cost: they are left out unless the spec says `includeSingleStepped`.
    SingleStepped,
    /// The kernel refused a probe.
    AttachFailed,
    /// This node's kernel, or what the agent may do there, cannot give what the probe asks.
    UnsupportedByKernel,
    /// The node's kernel, or what the agent may do there, lets nothing be measured.
    PreflightFailed,
    /// The target died within seconds of an attach, twice: it is left alone until the spec changes.
    TargetDied,
    /// Calls are counted but not timed, since probing their return would kill the target.
    EntryOnly,
    /// The agent has not reported on this target yet.
    AgentStarting,
    /// The agent pod cannot start; the message carries the kubelet's or scheduler's reason.
    AgentUnavailable,
    /// The agent has said nothing for longer than three report intervals.
    AgentSilent,
    /// More is asked than this installation admits of one namespace, pod or node: the message says which limit it is. The
    /// oldest CkbProbes are measured.
    LimitExceeded,
    /// One of the probes is of a kind that this installation does not admit: nothing of the CkbProbe is measured.
    KindNotAdmitted,
    /// Its traces are to go by an exporter that its namespace may not name, or that there is not: nothing of the CkbProbe is measured.
    ExporterNotAdmitted,
    /// The agent's report cannot be stored, or not be read.
    ReportRefused,
    /// The reports of this node's targets are more than one object holds: something is left out, and said.
    ReportTruncated,
    /// What measuring it would take of the agent's memory is more than there is.
    MemoryLimit,
    /// More rows, or parts of one, come by than are told apart: the rest counts in `other`.
    TooManyRows,
    /// Probing cost the target more than the budget.
    OverBudget,
    /// Probing costs the target no more than the budget.
    UnderBudget,
    /// Nothing is attached, so there is no cost to speak of.
    NothingAttached,
    /// `spec.paused` is true.
    Paused,
    /// `spec.duration` has passed since the CkbProbe was created.
    Expired,
    /// The stored object does not fit this version's schema.
    InvalidSpec,
    /// RocksDB cannot flush or compact, or took down an error that is not over.
    BackgroundErrors,
    /// RocksDB delays or stops writes, since flushes or compactions cannot keep up.
    WritesHeldBack,
    /// Calls of RocksDB read far more blocks than there are levels.
    ReadAmplification,
    /// RocksDB's compactions write each byte far more often than there are levels.
    WriteAmplification,
    /// Rates or durations are not what they usually are.
    Unusual,
    /// Everything that was asked for is in place.
    Done,
}

impl Reason {
    /// The reason that is spelled like this, if there is one.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = StrDeserializer::<serde::de::value::Error>::new(word);
        Self::deserialize(word).ok()
    }

    /// The CamelCase word as it stands in conditions, Events and metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}
