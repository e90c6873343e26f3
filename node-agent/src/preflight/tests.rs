use std::io;

use ckb_probe_testkit::PREFLIGHT_CHECKS;

use super::*;
use crate::kernel::{AttachError, Calibration, CalibrationError, ConfinedError, ConfinedReturn};

const CALIBRATION: Calibration = Calibration {
    cost_per_call_ns: 870,
    counted_cost_ns: 700,
    further_cost_ns: 400,
    single_step_cost_ns: 10_500,
    trap_ns: 400,
    inner_ns: 0,
    calls: 50_000,
    counted: 50_000,
};

/// BPF, PERFMON, SYS_PTRACE and DAC_READ_SEARCH.
const AGENT: u64 = 1 << 39 | 1 << 38 | 1 << 19 | 1 << 2;
const SYS_ADMIN: u64 = 1 << 21;

/// A node that has everything, seen with what the chart grants an agent.
fn facts() -> NodeFacts {
    NodeFacts {
        kernel: "6.18.44-cloud-amd64".to_string(),
        architecture: "x86_64",
        btf: Ok(()),
        capabilities: Some(AGENT),
        perf_event_paranoid: Some(2),
        lockdown: Some("none".to_string()),
        uprobe_pmu: Ok(8),
        confined: true,
        kernels_numbers: true,
    }
}

fn works(confined_return: ConfinedReturn) -> Attempt {
    Attempt::Works {
        calibration: CALIBRATION,
        confined_return,
    }
}

fn refused() -> Attempt {
    Attempt::Refused(CalibrationError::Attach(AttachError::NoSession))
}

/// All tiers, from the best down.
fn attempts(outcomes: [Attempt; 3]) -> Vec<(Tier, Attempt)> {
    Tier::ALL.iter().copied().zip(outcomes).collect()
}

fn sessions() -> Vec<(Tier, Attempt)> {
    let works = works(ConfinedReturn::Harmless);
    attempts([works, Attempt::NotTried, Attempt::NotTried])
}

fn perf_events() -> Vec<(Tier, Attempt)> {
    attempts([refused(), refused(), works(ConfinedReturn::Harmless)])
}

fn nothing() -> Vec<(Tier, Attempt)> {
    attempts([refused(), refused(), refused()])
}

fn failed(checks: &[Check]) -> Vec<&str> {
    let failed = checks.iter().filter(|check| !check.passed);
    failed.map(|check| check.name.as_str()).collect()
}

fn detail<'a>(checks: &'a [Check], name: &str) -> &'a str {
    &checks
        .iter()
        .find(|check| check.name == name)
        .unwrap()
        .detail
}

#[test]
fn every_check_is_there_under_its_name_and_passes_on_a_node_that_has_everything() {
    let checks = checks(&facts(), &sessions());
    let names: Vec<&str> = checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, PREFLIGHT_CHECKS);
    assert_eq!(failed(&checks), [""; 0]);
    assert_eq!(
        detail(&checks, "perf-event"),
        "not needed, since session works"
    );
}

#[test]
fn where_processes_have_other_numbers_than_in_the_kernel_nothing_is_told_of_them() {
    let facts = NodeFacts {
        kernels_numbers: false,
        ..facts()
    };
    let checks = checks(&facts, &sessions());
    assert_eq!(failed(&checks), ["PidNamespace"]);
    assert_eq!(detail(&checks, "PidNamespace"), Foreign.to_string());
    let refusal = Refusal::from(Unmeasurable::from(Foreign));
    assert_eq!(refusal.reason, Reason::PreflightFailed);
    assert!(
        refusal
            .message
            .ends_with("as those of kind, cannot be measured")
    );
}

#[test]
fn the_means_are_those_of_the_tier_that_works() {
    let means = |attempts: &[_]| means(attempts);
    let known = means(&perf_events()).unwrap();
    assert_eq!(known.tier, Tier::PerfEvent);
    assert_eq!(known.calibration, CALIBRATION);
    assert!(!known.returns_kill_confined);
    assert_eq!(means(&nothing()), None);
}

#[test]
fn confined_targets_are_spared_where_the_child_was_killed_and_where_nothing_is_known() {
    let unknown = ConfinedReturn::Unknown(ConfinedError::Late);
    for (confined_return, word) in [
        (ConfinedReturn::Kills { signal: 31 }, "signal 31"),
        (unknown, "not known"),
    ] {
        let attempts = attempts([works(confined_return), Attempt::NotTried, Attempt::NotTried]);
        assert!(means(&attempts).unwrap().returns_kill_confined);
        let checks = checks(&facts(), &attempts);
        assert_eq!(failed(&checks), ["SeccompReturn"]);
        let detail = detail(&checks, "SeccompReturn");
        for word in [word, "counted and not timed", "estimated"] {
            assert!(detail.contains(word), "{word} in {detail}");
        }
    }
}

#[test]
fn a_faster_tier_that_does_not_work_says_why_and_what_is_used_instead() {
    let works = works(ConfinedReturn::Harmless);
    let checks = checks(&facts(), &attempts([refused(), works, Attempt::NotTried]));
    assert_eq!(failed(&checks), ["session"]);
    let detail = detail(&checks, "session");
    assert!(detail.starts_with(&AttachError::NoSession.to_string()));
    assert!(
        detail.ends_with("; uprobe-multi is used instead"),
        "{detail}"
    );
}

#[test]
fn a_tier_that_is_passed_over_since_another_was_asked_for_is_no_good_sign() {
    let works = works(ConfinedReturn::Harmless);
    let forced = attempts([Attempt::NotTried, works, Attempt::NotTried]);
    let checks = checks(&facts(), &forced);
    assert_eq!(failed(&checks), ["session"]);
    assert_eq!(
        detail(&checks, "session"),
        "not tried, since uprobe-multi was asked for"
    );
}

#[test]
fn a_kernel_is_too_old_before_5_15() {
    let of = |kernel: &str| {
        let facts = NodeFacts {
            kernel: kernel.to_string(),
            ..facts()
        };
        failed(&checks(&facts, &sessions())) == ["Kernel"]
    };
    assert!(of("5.14.21"));
    assert!(of("4.19.0-27-amd64"));
    assert!(!of("5.15.0-1"));
    assert!(!of("6.1.176"));
    assert!(!of("unknown"));
}

#[test]
fn another_architecture_is_not_known_how_to_measure() {
    let is_refused = |architecture| {
        let facts = NodeFacts {
            architecture,
            ..facts()
        };
        failed(&checks(&facts, &sessions())) == ["Kernel"]
    };
    assert!(!is_refused("x86_64"));
    assert!(!is_refused("aarch64"));
    assert!(is_refused("riscv64"));
}

#[test]
fn each_missing_capability_is_named_with_what_it_is_needed_for() {
    for (bit, name) in [
        (39, "BPF"),
        (38, "PERFMON"),
        (19, "SYS_PTRACE"),
        (2, "DAC_READ_SEARCH"),
    ] {
        let facts = NodeFacts {
            capabilities: Some(AGENT & !(1 << bit)),
            ..facts()
        };
        let checks = checks(&facts, &sessions());
        assert_eq!(failed(&checks), ["Capabilities"]);
        let detail = detail(&checks, "Capabilities");
        assert!(
            detail.starts_with(&format!("{name} is missing (")),
            "{detail}"
        );
    }
}

#[test]
fn a_capability_may_be_part_of_a_greater_one() {
    // SYS_ADMIN includes BPF and PERFMON, DAC_OVERRIDE includes DAC_READ_SEARCH.
    let facts = NodeFacts {
        capabilities: Some(SYS_ADMIN | 1 << 19 | 1 << 1),
        ..facts()
    };
    assert_eq!(failed(&checks(&facts, &sessions())), [""; 0]);
}

#[test]
fn without_type_information_there_are_no_sessions() {
    let facts = NodeFacts {
        btf: Err(io::ErrorKind::NotFound.into()),
        ..facts()
    };
    assert_eq!(failed(&checks(&facts, &sessions())), ["Btf"]);
}

#[test]
fn what_perf_events_need_matters_only_where_they_would_be_used() {
    let facts = |capabilities| NodeFacts {
        capabilities: Some(capabilities),
        perf_event_paranoid: Some(4),
        uprobe_pmu: Err(io::ErrorKind::NotFound.into()),
        ..facts()
    };
    assert_eq!(failed(&checks(&facts(AGENT), &sessions())), [""; 0]);
    let tiers = ["session", "uprobe-multi", "perf-event"];
    assert_eq!(
        failed(&checks(&facts(AGENT), &nothing())),
        [&["PerfEventParanoid", "UprobePmu"][..], &tiers].concat()
    );
    let with_admin = checks(&facts(AGENT | SYS_ADMIN), &nothing());
    assert_eq!(failed(&with_admin), [&["UprobePmu"][..], &tiers].concat());
}

#[test]
fn lockdown_is_blamed_only_where_nothing_works_and_nothing_else_explains_it() {
    let fails = |mode: Option<&str>, capabilities, attempts: &[_]| {
        let facts = NodeFacts {
            lockdown: mode.map(str::to_string),
            capabilities: Some(capabilities),
            ..facts()
        };
        failed(&checks(&facts, attempts)).contains(&"Lockdown")
    };
    let (strict, all) = (Some("confidentiality"), AGENT | SYS_ADMIN);
    assert!(fails(strict, all, &nothing()));
    assert!(!fails(strict, AGENT, &nothing()));
    assert!(!fails(strict, all, &sessions()));
    assert!(!fails(Some("integrity"), all, &nothing()));
    assert!(!fails(None, all, &nothing()));
}

#[test]
fn a_failure_tells_everything_that_is_in_the_way_and_is_each_targets() {
    let facts = NodeFacts {
        capabilities: Some(AGENT & !(1 << 39)),
        ..facts()
    };
    let checks = checks(&facts, &nothing());
    assert!(checks.iter().all(|check| check.name != "SeccompReturn"));
    let failure = unmeasurable(&checks);
    let text = failure.to_string();
    let start = "no way to attach works: Capabilities: BPF is missing";
    assert!(text.starts_with(start), "{text}");
    assert!(text.contains("; session: "), "{text}");
    assert!(text.contains("; perf-event: "), "{text}");

    let refusal = Refusal::from(failure);
    assert_eq!(refusal.reason, Reason::PreflightFailed);
    assert!(refusal.message.contains(&text), "{}", refusal.message);
}
