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
        (Reason::Silent, Outlook::Stays(Reason::Silent)),
        (Reason::Attaching, Outlook::Passes),
    ] {
        let report = like(InstanceState::Attached, reason, false);
        assert_eq!(ailment(&report, true), None);
        let expected = Ailment {
            reason,
            message: "as it is".into(),
            outlook: loud,
            firing: false,
        };
        assert_eq!(ailment(&report, false), Some(expected));
    }
}

#[test]
fn a_quiet_kind_that_is_not_attached_is_not_well() {
    for (state, reason, outlook) in [
        (
            InstanceState::Failed,
            Reason::UnsupportedByKernel,
            Outlook::Stays(Reason::UnsupportedByKernel),
        ),
        (
            InstanceState::Failed,
            Reason::Done,
            Outlook::Stays(Reason::AttachFailed),
        ),
        (
            InstanceState::Detached,
            Reason::TargetDied,
            Outlook::Stays(Reason::TargetDied),
        ),
        (InstanceState::Detached, Reason::Paused, Outlook::Meant),
        (
            InstanceState::Waiting,
            Reason::ExecutableNotFound,
            Outlook::Passes,
        ),
    ] {
        for quiet in [false, true] {
            let found = ailment(&like(state, reason, true), quiet).unwrap();
            assert_eq!((found.reason, found.outlook), (reason, outlook));
        }
    }
}

#[test]
fn one_that_fires_is_well_whatever_its_reason() {
    for reason in [Reason::Firing, Reason::Attaching, Reason::OverBudget] {
        let report = like(InstanceState::Attached, reason, true);
        assert_eq!(ailment(&report, false), None);
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
            let found = ailment(&report, false).unwrap();
            assert_eq!(found.reason, expected);
            assert_eq!(found.message, expected.as_str(), "no message but that");
        }
    }
}

#[test]
fn the_gravest_comes_first_and_what_passes_after_it() {
    let ailments = [
        like(InstanceState::Failed, Reason::PreflightFailed, false),
        like(InstanceState::Failed, Reason::UnsupportedByKernel, false),
        like(InstanceState::Failed, Reason::TooManyMatches, false),
        like(InstanceState::Failed, Reason::SymbolNotFound, false),
        like(InstanceState::Attached, Reason::Silent, false),
        like(InstanceState::Waiting, Reason::AgentStarting, false),
        like(InstanceState::Detached, Reason::Paused, false),
    ]
    .map(|report| ailment(&report, false).unwrap().gravity());
    assert!(ailments.is_sorted_by(|a, b| a < b), "{ailments:?}");
}
