use ckb_probe_crds::{
    CkbProbeStatus, EventReport, Figures, InstanceReport, InstanceState, IntervalFigures,
    PartReport, condition,
};
use serde_json::json;

use super::*;
use crate::{
    aggregate::tests::{answer, found, scene_of},
    testing::{firing, measuring, row},
};

/// A row of health with one part, of which so much was counted in the last interval and stands now.
fn ill(
    key: &str,
    part: &str,
    recent: &[(&'static str, u64)],
    levels: &[(&'static str, u64)],
) -> RowReport {
    let named = |all: &[(&'static str, u64)]| all.iter().map(|(n, v)| ((*n).into(), *v)).collect();
    let total = Figures {
        sums: [("problems".into(), 50_193)].into(),
        levels: named(levels),
        ..Figures::default()
    };
    let window = IntervalFigures {
        milliseconds: 1000,
        recorded_milliseconds: 1000,
        figures: Figures {
            sums: named(recent),
            ..Figures::default()
        },
        ..IntervalFigures::default()
    };
    RowReport {
        key: key.into(),
        total: total.clone(),
        window: window.clone(),
        parts: vec![PartReport {
            key: part.into(),
            total,
            window,
        }],
    }
}

/// The status of a target with these rows, of which this was told.
fn status(rows: Vec<RowReport>, state: InstanceState, told: &[(&str, &str)]) -> CkbProbeStatus {
    let events: Vec<EventReport> = told
        .iter()
        .map(|(row, text)| EventReport {
            row: (*row).into(),
            text: (*text).into(),
            ..EventReport::default()
        })
        .collect();
    let scene = scene_of(json!({}), |probe, pod| {
        let mut measured = measuring("storage", rows.clone());
        measured.events.clone_from(&events);
        measured.state = state;
        InstanceReport {
            probes: vec![measured],
            ..firing(probe, pod)
        }
    });
    scene.status()
}

fn told(status: &CkbProbeStatus) -> (&str, &str, &str) {
    let (is, reason) = answer(status, condition::TARGETS_HEALTHY);
    (
        is,
        reason,
        &found(status, condition::TARGETS_HEALTHY).message,
    )
}

const WELL: (&str, &str, &str) = (
    "True",
    "Done",
    "what is measured tells of nothing that is wrong in the targets",
);

#[test]
fn errors_of_background_work_are_told_with_what_rocksdb_says_and_hide_nothing_else() {
    let rows = vec![
        row("Get", 10, "119:1"),
        ill(
            "FailedCompaction",
            "CompactionTooLarge",
            &[("problems", 5)],
            &[],
        ),
    ];
    let status = status(
        rows,
        InstanceState::Attached,
        &[("Get", "2ms"), ("FailedCompaction", "CompactionTooLarge")],
    );
    let (is, reason, message) = told(&status);
    assert_eq!((is, reason), ("False", "BackgroundErrors"));
    assert_eq!(
        message,
        "pod a/ckb-0: background work of RocksDB fails (FailedCompaction: CompactionTooLarge): CompactionTooLarge"
    );
    // That the target is ill does not make measuring it so.
    assert_eq!(answer(&status, condition::READY).0, "True");
    assert_eq!(answer(&status, condition::DEGRADED).0, "False");
}

#[test]
fn an_error_that_lasts_is_told_as_long_and_one_that_is_over_no_more() {
    let lasting = |lasting| {
        let row = ill(
            "BackgroundError",
            "Flush IOError/NoSpace hard",
            &[],
            &[("lasting", lasting)],
        );
        status(vec![row], InstanceState::Attached, &[])
    };
    assert_eq!(
        told(&lasting(1)),
        (
            "False",
            "BackgroundErrors",
            "pod a/ckb-0: an error of RocksDB's background work that is not over (BackgroundError: Flush IOError/NoSpace hard)"
        )
    );
    assert_eq!(told(&lasting(0)), WELL);
}

#[test]
fn the_gravest_gives_its_reason_and_all_are_told() {
    let rows = vec![
        ill(
            "StoppedByLevel0Files",
            "CELL",
            &[("stalled", 51_000_000)],
            &[],
        ),
        ill(
            "BackgroundError",
            "Flush IOError hard",
            &[],
            &[("lasting", 1)],
        ),
    ];
    let status = status(rows, InstanceState::Attached, &[]);
    let (_, reason, message) = told(&status);
    assert_eq!(reason, "BackgroundErrors");
    assert!(
        message.ends_with("; pod a/ckb-0: RocksDB holds writes back (StoppedByLevel0Files: CELL)"),
        "{message}"
    );
}

#[test]
fn what_is_held_back_for_a_moment_alarms_nobody() {
    let held_back = |nanos| {
        let row = ill("DelayedByMemtables", "CELL", &[("stalled", nanos)], &[]);
        status(vec![row], InstanceState::Attached, &[])
    };
    // A twentieth of the interval, which is a second.
    assert_eq!(told(&held_back(50_000_000)), WELL);
    assert_eq!(told(&held_back(50_000_001)).1, "WritesHeldBack");
}

#[test]
fn what_is_not_measured_any_more_alarms_nobody() {
    let rows = || {
        vec![ill(
            "StoppedByMemtables",
            "CELL",
            &[("stalled", 51_000_000)],
            &[],
        )]
    };
    let reason = "WritesHeldBack";
    assert_eq!(
        told(&status(rows(), InstanceState::Attached, &[])).1,
        reason
    );
    assert_eq!(told(&status(rows(), InstanceState::Failed, &[])), WELL);
}

/// A row of which these were counted, in the last interval and in all.
fn counted(key: &str, calls: u64, sums: &[(&'static str, u64)]) -> RowReport {
    let mut counted = row(key, calls, &format!("119:{calls}"));
    for (name, sum) in sums {
        for figures in [&mut counted.total, &mut counted.window.figures] {
            figures.sums.insert((*name).into(), *sum);
        }
    }
    counted
}

#[test]
fn what_reads_or_writes_far_more_than_is_asked_is_alarming_once_there_is_enough_of_it() {
    let of = |row| status(vec![row], InstanceState::Attached, &[]);
    let reads = |key, calls, reads| of(counted(key, calls, &[("reads", reads)]));
    assert_eq!(told(&reads("Get", 100, 2500)), WELL);
    assert_eq!(
        told(&reads("Get", 100, 2501)),
        (
            "False",
            "ReadAmplification",
            "pod a/ckb-0: a call of RocksDB reads more than 25 blocks from files (Get)"
        )
    );
    assert_eq!(told(&reads("Get", 99, 1_000_000)), WELL);
    // What it reads is what it is for.
    assert_eq!(told(&reads("Compaction", 100, 1_000_000)), WELL);
    let writes = |flushed: u64, more| {
        let sums = [
            ("flushedBytes", flushed),
            ("tableBytes", flushed * 50 + more),
        ];
        of(counted("Compaction", 1, &sums))
    };
    assert_eq!(told(&writes(256 << 20, 0)), WELL);
    assert_eq!(
        told(&writes(256 << 20, 1)),
        (
            "False",
            "WriteAmplification",
            "pod a/ckb-0: RocksDB writes more than 50 bytes for each that it flushes (Compaction)"
        )
    );
    assert_eq!(told(&writes((256 << 20) - 1, 1 << 40)), WELL);
}
