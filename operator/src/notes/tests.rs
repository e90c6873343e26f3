use ckb_probe_crds::{AgentStatus, Check, InstanceState, InstanceStatus, TargetCounts};
use ckb_probe_testkit::PREFLIGHT_CHECKS;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::*;

/// Such as `Degraded True: AgentSilent`.
fn set(condition: &str) -> Condition {
    let words: Vec<&str> = condition.split([' ', ':']).collect();
    let [type_, status, _, reason] = words[..] else {
        panic!("{condition}");
    };
    Condition {
        last_transition_time: Time(Timestamp::UNIX_EPOCH),
        message: format!("{reason}, in full"),
        observed_generation: Some(1),
        reason: reason.into(),
        status: status.into(),
        type_: type_.into(),
    }
}

fn status(attached: u32, matched: u32, conditions: &str) -> CkbProbeStatus {
    CkbProbeStatus {
        conditions: conditions.split_terminator(", ").map(set).collect(),
        targets: TargetCounts {
            matched,
            attached,
            firing: attached,
            summary: format!("{attached}/{matched}"),
        },
        ..CkbProbeStatus::default()
    }
}

fn reasons(old: Option<&CkbProbeStatus>, new: &CkbProbeStatus) -> Vec<&'static str> {
    notes(old, new)
        .into_iter()
        .map(|note| note.reason)
        .collect()
}

fn instance(reattaches: u64) -> InstanceStatus {
    InstanceStatus {
        tier: None,
        pod: "ckb-0".into(),
        container: Some("ckb".into()),
        node: None,
        state: InstanceState::Attached,
        reason: Reason::Firing,
        message: String::new(),
        reattaches,
        gap_seconds: "1.5".into(),
        overhead_percent: None,
        own_overhead_percent: None,
        counted_since: None,
    }
}

#[test]
fn the_same_status_twice_tells_nothing() {
    let degraded = status(
        1,
        2,
        "Degraded True: SymbolNotFound, WithinBudget False: OverBudget",
    );
    let paused = status(0, 2, "Ready False: Paused, Degraded False: Paused");
    let whole = status(2, 2, "Ready True: Firing, Degraded False: Done");
    for status in [degraded, paused, whole] {
        assert_eq!(notes(Some(&status), &status), []);
    }
}

#[test]
fn trouble_is_told_when_it_begins_when_it_becomes_another_and_when_it_ends() {
    let fine = status(1, 1, "Degraded False: Done");
    let silent = status(0, 1, "Degraded True: AgentSilent");
    let missing = status(0, 1, "Degraded True: NoMatchingPods");
    assert_eq!(reasons(None, &silent), ["AgentSilent"]);
    assert_eq!(reasons(Some(&fine), &silent), ["AgentSilent"]);
    assert_eq!(reasons(Some(&silent), &missing), ["NoMatchingPods"]);
    assert_eq!(reasons(Some(&silent), &fine), ["Recovered", "Attached"]);
    assert_eq!(notes(Some(&fine), &silent)[0].type_, EventType::Warning);
    assert_eq!(notes(Some(&fine), &silent)[0].text, "AgentSilent, in full");
}

#[test]
fn attached_is_told_when_all_are_and_were_not() {
    let of = |attached, matched| status(attached, matched, "");
    assert_eq!(reasons(None, &of(0, 0)), Vec::<&str>::new());
    assert_eq!(reasons(None, &of(1, 2)), Vec::<&str>::new());
    assert_eq!(reasons(Some(&of(1, 2)), &of(2, 2)), ["Attached"]);
    assert_eq!(reasons(Some(&of(2, 2)), &of(3, 3)), ["Attached"]);
    assert_eq!(reasons(Some(&of(3, 3)), &of(2, 2)), Vec::<&str>::new());
}

#[test]
fn a_breach_is_told_once_whichever_condition_says_it() {
    let fine = status(1, 1, "WithinBudget True: UnderBudget, Degraded False: Done");
    let over = status(1, 1, "WithinBudget False: OverBudget, Degraded False: Done");
    let detached = status(
        0,
        1,
        "WithinBudget False: OverBudget, Degraded True: OverBudget",
    );
    assert_eq!(reasons(Some(&fine), &over), ["OverBudget"]);
    assert_eq!(reasons(Some(&fine), &detached), ["OverBudget"]);
}

#[test]
fn what_is_wrong_in_a_target_is_told_once_for_each_reason() {
    let of = |reason: &str| status(1, 1, &format!("TargetsHealthy False: {reason}"));
    let (errors, stalls) = (of("BackgroundErrors"), of("WritesHeldBack"));
    let well = status(1, 1, "TargetsHealthy True: Done");
    assert_eq!(reasons(Some(&well), &errors), ["BackgroundErrors"]);
    assert_eq!(reasons(Some(&errors), &errors), [] as [&str; 0]);
    assert_eq!(reasons(Some(&errors), &stalls), ["WritesHeldBack"]);
    assert_eq!(reasons(Some(&stalls), &well), [] as [&str; 0]);
}

#[test]
fn a_pause_is_told_and_is_no_recovery() {
    let silent = status(0, 1, "Ready False: AgentSilent, Degraded True: AgentSilent");
    let paused = status(0, 1, "Ready False: Paused, Degraded False: Paused");
    assert_eq!(reasons(Some(&silent), &paused), ["Paused"]);
}

#[test]
fn a_restart_is_told_for_a_target_that_was_known() {
    let with = |reattaches| CkbProbeStatus {
        instances: vec![instance(reattaches)],
        ..CkbProbeStatus::default()
    };
    assert_eq!(reasons(Some(&with(1)), &with(2)), ["TargetRestarted"]);
    assert_eq!(reasons(Some(&with(2)), &with(2)), Vec::<&str>::new());
    assert_eq!(reasons(None, &with(2)), Vec::<&str>::new());
    // Another agent counts from zero.
    assert_eq!(reasons(Some(&with(2)), &with(0)), Vec::<&str>::new());
}

#[test]
fn each_target_that_died_is_told_of_once() {
    let died = |pod: &str| InstanceStatus {
        pod: pod.into(),
        state: InstanceState::Detached,
        reason: Reason::TargetDied,
        message: "process 7 died 1 s after the attach".into(),
        ..instance(1)
    };
    let with = |instances: Vec<InstanceStatus>| CkbProbeStatus {
        instances,
        ..status(0, 2, "Degraded True: TargetDied")
    };
    let lives = with(vec![instance(1)]);
    let one = with(vec![died("ckb-0")]);
    let two = with(vec![died("ckb-0"), died("ckb-1")]);
    assert_eq!(reasons(Some(&lives), &one), ["TargetDied"]);
    assert_eq!(reasons(Some(&one), &one), Vec::<&str>::new());
    assert_eq!(reasons(None, &one), ["TargetDied"]);
    let [note] = &notes(Some(&one), &two)[..] else {
        panic!("one note");
    };
    assert_eq!(note.type_, EventType::Warning);
    assert_eq!(note.text, "pod ckb-1: process 7 died 1 s after the attach");
}

fn checked(passed: bool, names: &[&str]) -> AgentStatus {
    let check = |name: &&str| Check {
        name: (*name).into(),
        passed,
        detail: "as found".into(),
    };
    AgentStatus {
        preflight: names.iter().map(check).collect(),
        ..AgentStatus::default()
    }
}

#[test]
fn a_check_that_only_tells_which_way_of_attaching_there_is_is_no_failure() {
    let told = |agent: &AgentStatus| {
        let notes = preflight(agent).into_iter();
        notes.map(|note| note.text).collect::<Vec<_>>()
    };
    assert_eq!(
        told(&checked(true, &PREFLIGHT_CHECKS)),
        Vec::<String>::new()
    );
    assert_eq!(
        told(&checked(false, &PREFLIGHT_CHECKS)),
        [
            "Capabilities: as found",
            "Lockdown: as found",
            "SeccompReturn: as found"
        ]
    );
}

#[test]
fn a_node_where_nothing_can_be_measured_is_told_of() {
    let agent = AgentStatus {
        failure: Some("no way to attach works".into()),
        ..checked(false, &["session", "uprobe-multi", "perf-event"])
    };
    let [note] = &preflight(&agent)[..] else {
        panic!("one note");
    };
    assert_eq!(
        (note.type_, note.reason),
        (EventType::Warning, "PreflightFailed")
    );
    assert_eq!(
        note.text,
        "on this node nothing can be measured: no way to attach works"
    );
}

#[test]
fn what_is_notable_is_told_once() {
    use ckb_probe_crds::{EventStatus, ProbeStatus};
    let event = |row: &str, notable: &str| EventStatus {
        pod: "ckb-0".into(),
        container: "ckb".into(),
        row: row.into(),
        text: "end, signal SIGKILL, oom".into(),
        details: [("notable".to_string(), notable.to_string())].into(),
        ..EventStatus::default()
    };
    let with = |events: Vec<EventStatus>| CkbProbeStatus {
        probes: vec![ProbeStatus {
            events,
            ..ProbeStatus::default()
        }],
        ..status(1, 1, "")
    };
    let none = with(vec![event("sh", "false")]);
    let one = with(vec![event("ckb", "true"), event("sh", "false")]);
    let [note] = &notes(Some(&none), &one)[..] else {
        panic!("one note");
    };
    assert_eq!((note.reason, &note.type_), (OBSERVED, &EventType::Warning));
    assert_eq!(
        note.text,
        "pod ckb-0 container ckb: ckb: end, signal SIGKILL, oom"
    );
    assert_eq!(notes(Some(&one), &one), []);
}

#[test]
fn what_a_kernel_does_not_support_is_told_once_and_not_beside_degraded() {
    let fine = status(1, 1, "Degraded False: Done, Supported True: Done");
    let part = status(
        1,
        1,
        "Degraded False: Done, Supported False: UnsupportedByKernel",
    );
    let nothing = status(
        1,
        1,
        "Degraded True: UnsupportedByKernel, Supported False: UnsupportedByKernel",
    );
    assert_eq!(reasons(None, &part), ["UnsupportedByKernel", "Attached"]);
    assert_eq!(reasons(Some(&fine), &part), ["UnsupportedByKernel"]);
    assert_eq!(reasons(Some(&part), &part), Vec::<&str>::new());
    assert_eq!(reasons(Some(&part), &fine), Vec::<&str>::new());
    assert_eq!(reasons(Some(&fine), &nothing), ["UnsupportedByKernel"]);
    let note = &notes(Some(&fine), &part)[0];
    assert_eq!(note.type_, EventType::Warning);
    assert_eq!(note.text, "UnsupportedByKernel, in full");
}

#[test]
fn each_profile_of_an_anomaly_is_named_once_however_they_come() {
    use ckb_probe_crds::{CaptureStatus, ProbeStatus};
    let with = |since: i64, profiles: &[&str]| CkbProbeStatus {
        probes: vec![ProbeStatus {
            name: "flames".into(),
            capture: Some(CaptureStatus {
                since: Some(Time(Timestamp::from_second(since).unwrap())),
                anomaly: "p99 of Get".into(),
                profiles: profiles.iter().map(|name| name.to_string()).collect(),
                ..CaptureStatus::default()
            }),
            ..ProbeStatus::default()
        }],
        ..status(1, 1, "")
    };
    let texts = |old: &CkbProbeStatus, new: &CkbProbeStatus| -> Vec<String> {
        let notes = notes(Some(old), new).into_iter();
        let captured = notes.filter(|note| note.reason == CAPTURED);
        captured.map(|note| note.text).collect()
    };
    let (none, one) = (with(1, &[]), with(1, &["cpu.7"]));
    let both = with(1, &["cpu.7", "offcpu.7"]);
    assert_eq!(texts(&none, &none), Vec::<String>::new());
    let text = "CkbProfile cpu.7 shows what ran then: p99 of Get";
    assert_eq!(texts(&none, &one), [text]);
    let text = "CkbProfile offcpu.7 shows what ran then: p99 of Get";
    assert_eq!(texts(&one, &both), [text]);
    let text = "CkbProfiles cpu.7, offcpu.7 show what ran then: p99 of Get";
    assert_eq!(texts(&none, &both), [text]);
    // Some may have been deleted meanwhile; and of the next anomaly all are news.
    assert_eq!(texts(&both, &both), Vec::<String>::new());
    assert_eq!(texts(&both, &one), Vec::<String>::new());
    let text = "CkbProfile cpu.9 shows what ran then: p99 of Get";
    assert_eq!(texts(&both, &with(9, &["cpu.9"])), [text]);
}
