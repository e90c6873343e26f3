//! What Prometheus is told of every target and row, whatever is asked of it: the names of metrics and labels, said once for whoever exports
//! them and whoever reads them again. Metrics and labels of a kind are in its [descriptor](crate::descriptor).

/// Whether a probe is in place.
pub const ATTACHED: &str = "ckb_probe_attached";
/// Whether probes are in place on the target.
pub const TARGET_ATTACHED: &str = "ckb_probe_target_attached";
/// Whether something was counted of it lately.
pub const TARGET_FIRING: &str = "ckb_probe_target_firing";
/// What could not be recorded.
pub const LOST: &str = "ckb_probe_lost_total";
/// What measuring was estimated to cost.
pub const OVERHEAD: &str = "ckb_probe_overhead_ratio";
/// What it might have cost.
pub const OVERHEAD_GRANTED: &str = "ckb_probe_overhead_granted_ratio";
/// Whether calls are counted and not timed.
pub const ENTRY_ONLY: &str = "ckb_probe_entry_only";
/// How often the process was found anew.
pub const REATTACHES: &str = "ckb_probe_reattaches_total";
/// Time without a probe.
pub const GAP: &str = "ckb_probe_gap_seconds_total";
/// How many rows are left out.
pub const ROWS_LEFT_OUT: &str = "ckb_probe_rows_left_out";
/// What was seen of a row.
pub const SAMPLES: &str = "ckb_probe_samples_total";
/// In which part of the time it was recorded.
pub const SAMPLING: &str = "ckb_probe_sampling_ratio";
/// How far off its count may be.
pub const RELATIVE_ERROR: &str = "ckb_probe_relative_error_ratio";

/// Labels of these, and of the metrics of kinds.
pub mod label {
    /// The namespace of the CkbProbe and of the pod.
    pub const NAMESPACE: &str = "namespace";
    /// The pod.
    pub const POD: &str = "pod";
    /// The container.
    pub const CONTAINER: &str = "container";
    /// The CkbProbe.
    pub const CKBPROBE: &str = "ckbprobe";
    /// The probe of the CkbProbe.
    pub const PROBE: &str = "probe";
    /// The kind of the probe.
    pub const KIND: &str = "kind";
    /// What was lost.
    pub const WHAT: &str = "what";
}
