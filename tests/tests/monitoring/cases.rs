//! What raises each alert, and what comes close to it.

/// What an alert does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Raised,
    Quiet,
}

/// One test: a sample of each series a minute, as promtool writes them.
pub struct Case {
    pub alert: &'static str,
    pub expected: Expected,
    /// What is the case.
    pub about: &'static str,
    /// When it is looked at.
    pub at: &'static str,
    /// `TARGET` stands for the labels of a target.
    pub series: &'static [(&'static str, &'static str)],
    /// Whether there is a number to compare at all.
    pub has_data: bool,
}

macro_rules! cases {
    ($($alert:ident $expected:ident at $at:literal, $about:literal: $([$series:literal, $values:literal])*;)*) => {
        &[$(Case {
            alert: stringify!($alert),
            expected: Expected::$expected,
            about: $about,
            at: $at,
            series: &[$(($series, $values)),*],
            has_data: true,
        }),*]
    };
}

/// At least one of each kind for each alert.
pub const ALL: &[Case] = cases! {
    CkbProbeNoLeader Raised at "20m", "nobody is scraped": ;
    CkbProbeNoLeader Raised at "20m", "two stand by":
        ["ckb_probe_operator_leader{instance=\"a\"}", "0x60"] ["ckb_probe_operator_leader{instance=\"b\"}", "0x60"];
    CkbProbeNoLeader Quiet at "20m", "one of two leads":
        ["ckb_probe_operator_leader{instance=\"a\"}", "0x60"] ["ckb_probe_operator_leader{instance=\"b\"}", "1x60"];
    CkbProbeNoLeader Quiet at "9m", "not for long enough":
        ["ckb_probe_operator_leader{instance=\"a\"}", "0x60"];

    CkbProbeAgentMissing Raised at "30m", "two of three":
        ["ckb_probe_operator_nodeprobes", "3x60"]
        ["ckb_probe_tier_info{instance=\"a\", tier=\"x\"}", "1x60"] ["ckb_probe_tier_info{instance=\"b\", tier=\"y\"}", "1x60"];
    CkbProbeAgentMissing Raised at "30m", "the only one": ["ckb_probe_operator_nodeprobes", "1x60"];
    CkbProbeAgentMissing Quiet at "30m", "both are there, and the operator that stands by knows nothing":
        ["ckb_probe_operator_nodeprobes{instance=\"a\"}", "2x60"] ["ckb_probe_operator_nodeprobes{instance=\"b\"}", "0x60"]
        ["ckb_probe_tier_info{instance=\"a\", tier=\"x\"}", "1x60"] ["ckb_probe_tier_info{instance=\"b\", tier=\"y\"}", "1x60"];

    CkbProbeTargetNotAttached Raised at "30m", "never": ["ckb_probe_target_attached{TARGET}", "0x60"];
    CkbProbeTargetNotAttached Quiet at "30m", "again after a restart": ["ckb_probe_target_attached{TARGET}", "1x10 0x10 1x60"];

    CkbProbeTargetSilent Raised at "30m", "attached, and nothing is counted":
        ["ckb_probe_target_attached{TARGET}", "1x60"] ["ckb_probe_target_firing{TARGET}", "0x60"];
    CkbProbeTargetSilent Quiet at "30m", "attached and firing":
        ["ckb_probe_target_attached{TARGET}", "1x60"] ["ckb_probe_target_firing{TARGET}", "1x60"];
    CkbProbeTargetSilent Quiet at "30m", "not attached, which is another alert":
        ["ckb_probe_target_attached{TARGET}", "0x60"] ["ckb_probe_target_firing{TARGET}", "0x60"];

    CkbProbeSamplingTooThin Raised at "80m", "always by a third":
        ["ckb_probe_relative_error_ratio{TARGET, probe=\"storage\", operation=\"Get\"}", "0.35x100"]
        ["ckb_probe_relative_error_ratio{TARGET, probe=\"storage\", operation=\"TxnCommit\"}", "0x100"];
    CkbProbeSamplingTooThin Quiet at "80m", "once in a while a lot":
        ["ckb_probe_relative_error_ratio{TARGET, probe=\"storage\", operation=\"Get\"}", "0.02x70 2 0.02x60"];

    CkbProbeEventsLost Raised at "25m", "the first ever, with which the series begins":
        ["ckb_probe_lost_total{TARGET, what=\"calls\"}", "_x20 3x30"];
    CkbProbeEventsLost Raised at "25m", "more of them": ["ckb_probe_lost_total{TARGET, what=\"calls\"}", "3x20 5x30"];
    CkbProbeEventsLost Quiet at "50m", "long ago, and what is counted all the same":
        ["ckb_probe_lost_total{TARGET, what=\"calls\"}", "3x60"] ["ckb_probe_lost_total{TARGET, what=\"lines\"}", "0+100x60"];

    CkbProbeOverheadHigh Raised at "40m", "above the budget":
        ["ckb_probe_overhead_ratio{TARGET}", "0.012x60"] ["ckb_probe_overhead_granted_ratio{TARGET}", "0.01x60"];
    CkbProbeOverheadHigh Quiet at "40m", "at the budget":
        ["ckb_probe_overhead_ratio{TARGET}", "0.01x60"] ["ckb_probe_overhead_granted_ratio{TARGET}", "0.01x60"];
    CkbProbeOverheadHigh Quiet at "40m", "of an idle target, on the floor":
        ["ckb_probe_overhead_ratio{TARGET}", "0.3x60"] ["ckb_probe_overhead_granted_ratio{TARGET}", "0.41x60"];

    CkbProbeGaps Raised at "80m", "ten seconds of each minute": ["ckb_probe_gap_seconds_total{TARGET}", "0+10x100"];
    CkbProbeGaps Quiet at "80m", "three seconds of each minute": ["ckb_probe_gap_seconds_total{TARGET}", "0+3x100"];

    CkbProbeRowsLeftOut Raised at "30m", "five": ["ckb_probe_rows_left_out{TARGET}", "5x60"];
    CkbProbeRowsLeftOut Quiet at "30m", "none": ["ckb_probe_rows_left_out{TARGET}", "0x60"];

    CkbProbeReportsFail Raised at "40m", "one in a minute":
        ["ckb_probe_reports_total{instance=\"a\", result=\"failed\"}", "0+1x60"];
    CkbProbeReportsFail Quiet at "40m", "one in five minutes, and those that are written":
        ["ckb_probe_reports_total{instance=\"a\", result=\"failed\"}", "0+0.2x60"]
        ["ckb_probe_reports_total{instance=\"a\", result=\"written\"}", "0+6x60"];

    CkbProbeReconcileErrors Raised at "45m", "two in a minute": ["ckb_probe_reconcile_errors_total{reason=\"WriteStatus\"}", "0+2x60"];
    CkbProbeReconcileErrors Quiet at "45m", "one in two minutes":
        ["ckb_probe_reconcile_errors_total{reason=\"WriteStatus\"}", "0+0.5x60"];

    CkbProbeProfilePartsDropped Raised at "40m", "the first":
        ["ckb_probe_profile_parts_dropped_total{reason=\"Malformed\"}", "_x30 1x60"];
    CkbProbeProfilePartsDropped Quiet at "100m", "long ago, and those that nobody asks for any more":
        ["ckb_probe_profile_parts_dropped_total{reason=\"Malformed\"}", "1x120"]
        ["ckb_probe_profile_parts_dropped_total{reason=\"Unasked\"}", "0+1x120"];

    CkbProbeProfilesNotPushed Raised at "40m", "the first":
        ["ckb_probe_profiles_push_dropped_total{reason=\"Unreachable\"}", "_x30 1x60"];
    CkbProbeProfilesNotPushed Quiet at "100m", "long ago": ["ckb_probe_profiles_push_dropped_total{reason=\"Unreachable\"}", "1x120"];

    CkbProbeSpansDropped Raised at "20m", "too many waited":
        ["ckb_probe_spans_dropped_total{instance=\"a\", exporter=\"default\", cause=\"full\"}", "0x10 7x60"];
    CkbProbeSpansDropped Quiet at "20m", "none": ["ckb_probe_spans_dropped_total{instance=\"a\", exporter=\"default\", cause=\"full\"}", "0x60"];

    CkbProbeMetricPointsDropped Raised at "20m", "refused":
        ["ckb_probe_metric_points_dropped_total{instance=\"a\", cause=\"refused\"}", "0x10 7x60"];
    CkbProbeMetricPointsDropped Quiet at "20m", "none":
        ["ckb_probe_metric_points_dropped_total{instance=\"a\", cause=\"refused\"}", "0x60"];

    CkbRocksDbErrorLasts Raised at "5m", "it lasts":
        ["ckb_probe_rocksdb_lasting_errors{TARGET, operation=\"BackgroundError\", reason=\"Flush IOError/NoSpace hard\"}", "1x20"];
    CkbRocksDbErrorLasts Quiet at "15m", "it is over":
        ["ckb_probe_rocksdb_lasting_errors{TARGET, operation=\"BackgroundError\", reason=\"Flush IOError/NoSpace hard\"}", "1x10 0x20"];

    CkbRocksDbWorkFails Raised at "25m", "the first failure, with which the series begins":
        ["ckb_probe_rocksdb_problems_total{TARGET, operation=\"FailedFlush\", reason=\"IOError/NoSpace\"}", "_x20 1x30"];
    CkbRocksDbWorkFails Quiet at "40m", "long ago, and another alert's":
        ["ckb_probe_rocksdb_problems_total{TARGET, operation=\"FailedFlush\", reason=\"IOError/NoSpace\"}", "4x60"]
        ["ckb_probe_rocksdb_problems_total{TARGET, operation=\"NoRoomForCompaction\", reason=\"BLOCK_BODY\"}", "0+1x60"];

    CkbRocksDbNoRoom Raised at "25m", "the first":
        ["ckb_probe_rocksdb_problems_total{TARGET, operation=\"NoRoomForCompaction\", reason=\"BLOCK_BODY\"}", "_x20 1x30"];
    CkbRocksDbNoRoom Quiet at "40m", "long ago, and another alert's":
        ["ckb_probe_rocksdb_problems_total{TARGET, operation=\"NoRoomForCompaction\", reason=\"BLOCK_BODY\"}", "1x60"]
        ["ckb_probe_rocksdb_problems_total{TARGET, operation=\"FailedFlush\", reason=\"IOError/NoSpace\"}", "0+1x60"];

    CkbRocksDbHoldsWritesBack Raised at "20m", "a tenth of the time":
        ["ckb_probe_rocksdb_write_stall_seconds_total{TARGET, operation=\"DelayedByLevel0Files\", column_family=\"default\"}", "0+6x60"];
    CkbRocksDbHoldsWritesBack Quiet at "20m", "a thirtieth of the time":
        ["ckb_probe_rocksdb_write_stall_seconds_total{TARGET, operation=\"DelayedByLevel0Files\", column_family=\"default\"}", "0+2x60"];

    CkbCommitsSlow Raised at "40m", "one in twenty above half a second":
        ["ckb_probe_operation_duration_seconds_bucket{TARGET, operation=\"TxnCommit\", le=\"0.5\"}", "0+95x60"]
        ["ckb_probe_operation_duration_seconds_bucket{TARGET, operation=\"TxnCommit\", le=\"2\"}", "0+100x60"]
        ["ckb_probe_operation_duration_seconds_bucket{TARGET, operation=\"TxnCommit\", le=\"+Inf\"}", "0+100x60"];
    CkbCommitsSlow Quiet at "40m", "all within half a second, and slow reads":
        ["ckb_probe_operation_duration_seconds_bucket{TARGET, operation=\"TxnCommit\", le=\"0.5\"}", "0+100x60"]
        ["ckb_probe_operation_duration_seconds_bucket{TARGET, operation=\"TxnCommit\", le=\"+Inf\"}", "0+100x60"]
        ["ckb_probe_operation_duration_seconds_bucket{TARGET, operation=\"Get\", le=\"0.5\"}", "0x60"]
        ["ckb_probe_operation_duration_seconds_bucket{TARGET, operation=\"Get\", le=\"+Inf\"}", "0+100x60"];

    CkbNoBlocks Raised at "40m", "none any more":
        ["ckb_probe_blocks_total{TARGET, probe=\"blocks\", outcome=\"Attached\"}", "0+5x10 50x60"] ["ckb_probe_attached{TARGET, probe=\"blocks\", kind=\"chain\"}", "1x80"];
    CkbNoBlocks Raised at "40m", "none since the agent started":
        ["ckb_probe_attached{TARGET, probe=\"blocks\", kind=\"chain\"}", "1x80"];
    CkbNoBlocks Quiet at "40m", "one in five minutes":
        ["ckb_probe_blocks_total{TARGET, probe=\"blocks\", outcome=\"Attached\"}", "0+0.2x80"] ["ckb_probe_attached{TARGET, probe=\"blocks\", kind=\"chain\"}", "1x80"];

    CkbBlocksSlow Raised at "50m", "one in five above two seconds":
        ["ckb_probe_block_duration_seconds_bucket{TARGET, outcome=\"Attached\", le=\"2\"}", "0+80x60"]
        ["ckb_probe_block_duration_seconds_bucket{TARGET, outcome=\"Attached\", le=\"8\"}", "0+100x60"]
        ["ckb_probe_block_duration_seconds_bucket{TARGET, outcome=\"Attached\", le=\"+Inf\"}", "0+100x60"];
    CkbBlocksSlow Quiet at "50m", "one in twenty above two seconds":
        ["ckb_probe_block_duration_seconds_bucket{TARGET, outcome=\"Attached\", le=\"2\"}", "0+95x60"]
        ["ckb_probe_block_duration_seconds_bucket{TARGET, outcome=\"Attached\", le=\"8\"}", "0+100x60"]
        ["ckb_probe_block_duration_seconds_bucket{TARGET, outcome=\"Attached\", le=\"+Inf\"}", "0+100x60"];

    CkbReorganisations Raised at "70m", "one in a minute":
        ["ckb_probe_blocks_detached_total{TARGET, outcome=\"Attached\"}", "0+1x80"];
    CkbReorganisations Quiet at "70m", "one in ten minutes":
        ["ckb_probe_blocks_detached_total{TARGET, outcome=\"Attached\"}", "0+0.1x80"];

    CkbDiskSlow Raised at "40m", "one in ten above an eighth of a second":
        ["ckb_probe_block_io_device_seconds_bucket{TARGET, disk=\"vda write\", le=\"0.125\"}", "0+90x60"]
        ["ckb_probe_block_io_device_seconds_bucket{TARGET, disk=\"vda write\", le=\"1\"}", "0+100x60"]
        ["ckb_probe_block_io_device_seconds_bucket{TARGET, disk=\"vda write\", le=\"+Inf\"}", "0+100x60"];
    CkbDiskSlow Quiet at "40m", "none above an eighth of a second":
        ["ckb_probe_block_io_device_seconds_bucket{TARGET, disk=\"vda write\", le=\"0.125\"}", "0+100x60"]
        ["ckb_probe_block_io_device_seconds_bucket{TARGET, disk=\"vda write\", le=\"1\"}", "0+100x60"]
        ["ckb_probe_block_io_device_seconds_bucket{TARGET, disk=\"vda write\", le=\"+Inf\"}", "0+100x60"];

    CkbPeersLoseSegments Raised at "50m", "a fifth":
        ["ckb_probe_tcp_retransmits_total{TARGET, peer=\"192.0.2.1\"}", "0+20x60"] ["ckb_probe_tcp_segments_total{TARGET, peer=\"192.0.2.1\"}", "0+100x60"];
    CkbPeersLoseSegments Quiet at "50m", "one peer in ten, by a fifth":
        ["ckb_probe_tcp_retransmits_total{TARGET, peer=\"192.0.2.1\"}", "0+20x60"] ["ckb_probe_tcp_segments_total{TARGET, peer=\"192.0.2.1\"}", "0+100x60"]
        ["ckb_probe_tcp_segments_total{TARGET, peer=\"192.0.2.2\"}", "0+900x60"];

    CkbKilledForMemory Raised at "25m", "the first, with which the series begins":
        ["ckb_probe_process_oom_kills_total{TARGET, command=\"ckb\"}", "_x20 1x60"];
    CkbKilledForMemory Quiet at "100m", "long ago": ["ckb_probe_process_oom_kills_total{TARGET, command=\"ckb\"}", "1x120"];

    CkbFiguresUnusual Raised at "30m", "two figures for ten minutes, of a CkbProbe with a target":
        ["ckb_probe_target_attached{TARGET}", "1x60"] ["ckb_probe_anomalies{namespace=\"ckb\", ckbprobe=\"ckb\"}", "_x20 2x40"];
    CkbFiguresUnusual Quiet at "24m", "for four minutes":
        ["ckb_probe_target_attached{TARGET}", "1x60"] ["ckb_probe_anomalies{namespace=\"ckb\", ckbprobe=\"ckb\"}", "_x20 2x40"];
    CkbFiguresUnusual Quiet at "40m", "over for ten minutes, with which the series ends":
        ["ckb_probe_target_attached{TARGET}", "1x60"] ["ckb_probe_anomalies{namespace=\"ckb\", ckbprobe=\"ckb\"}", "2x30 stale"];
};
