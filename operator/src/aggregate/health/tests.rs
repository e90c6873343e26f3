use super::*;
use crate::testing::measuring;

fn like(state: InstanceState, reason: Reason, firing: bool) -> ProbeReport {
    ProbeReport {
        state,
        reason: Some(reason),
        message: "as it is".into(),
        firing,
        ..measuring("storage", vec![])
    }
}

#[test]
fn silence_is_no_fault_of_a_quiet_kind() {
    for (reason, loud) in [
        (Reason::Silent, Prognosis::Lasting(Reason::Silent)),
        (Reason::Attaching, Prognosis::Passing),
    ] {
        let report = like(InstanceState::Attached, reason, false);
        assert_eq!(problem(&report, true), None);
        let expected = Problem {
            reason,
            message: "as it is".into(),
            prognosis: loud,
            firing: false,
        };
        assert_eq!(problem(&report, false), Some(expected));
    }
}

#[test]
fn a_quiet_kind_that_is_not_attached_is_not_well() {
    for (state, reason, prognosis) in [
        (
            InstanceState::Failed,
            Reason::UnsupportedByKernel,
            Prognosis::Lasting(Reason::UnsupportedByKernel),
        ),
        (
            InstanceState::Failed,
            Reason::Done,
            Prognosis::Lasting(Reason::AttachFailed),
        ),
        (
            InstanceState::Detached,
            Reason::TargetDied,
            Prognosis::Lasting(Reason::TargetDied),
        ),
        (InstanceState::Detached, Reason::Paused, Prognosis::Intended),
        (
            InstanceState::Waiting,
            Reason::ExecutableNotFound,
            Prognosis::Passing,
        ),
    ] {
        for quiet in [false, true] {
            let found = problem(&like(state, reason, true), quiet).unwrap();
            assert_eq!((found.reason, found.prognosis), (reason, prognosis));
        }
    }
}

#[test]
fn one_that_fires_is_well_whatever_its_reason() {
    for reason in [Reason::Firing, Reason::Attaching, Reason::OverBudget] {
        let report = like(InstanceState::Attached, reason, true);
        assert_eq!(problem(&report, false), None);
    }
}

#[test]
fn a_reason_that_is_missing_or_makes_no_sense_is_the_usual_one() {
    for (state, expected) in [
        (InstanceState::Failed, Reason::AttachFailed),
        (InstanceState::Waiting, Reason::Attaching),
        (InstanceState::Attached, Reason::Attaching),
    ] {
        for reason in [None, Some(Reason::Firing)] {
            let report = ProbeReport {
                state,
                reason,
                firing: false,
                ..measuring("storage", vec![])
            };
            let found = problem(&report, false).unwrap();
            assert_eq!(found.reason, expected);
            assert_eq!(found.message, expected.as_str(), "no message but that");
        }
    }
}

#[test]
fn the_gravest_comes_first_and_what_passes_after_it() {
    let problems = [
        like(InstanceState::Failed, Reason::PreflightFailed, false),
        like(InstanceState::Failed, Reason::UnsupportedByKernel, false),
        like(InstanceState::Failed, Reason::TooManyMatches, false),
        like(InstanceState::Failed, Reason::SymbolNotFound, false),
        like(InstanceState::Attached, Reason::Silent, false),
        like(InstanceState::Waiting, Reason::AgentStarting, false),
        like(InstanceState::Detached, Reason::Paused, false),
    ]
    .map(|report| problem(&report, false).unwrap().gravity());
    assert!(problems.is_sorted_by(|a, b| a < b), "{problems:?}");
}
