//! Each breakage is found at its place, with what to type next; and each reason that a status can give has a paragraph to go to.

use ckb_probe_crds::Reason;

use super::{
    super::{Diagnosis, Mark, Place, cluster::Answer, reasons},
    objects::{
        agent, broken_first, deployment, first, healthy, lease, node, node_probe, probe, right,
    },
};

/// All reasons, by their words: the page has a paragraph for each, which the linter holds.
fn reasons() -> Vec<Reason> {
    let page = include_str!("../../../../../docs/troubleshooting.md");
    let words = page.lines().filter_map(|line| line.strip_prefix("### "));
    words.filter_map(Reason::from_word).collect()
}

/// A target in this state for this reason, as the operator tells it of all its targets.
fn answered(state: &str, reason: Reason, message: &str) -> Vec<(&'static str, String)> {
    let attached = if state == "Attached" { "1" } else { "0" };
    vec![
        ("status/targets/attached", attached.to_owned()),
        ("status/targets/firing", "0".to_owned()),
        ("status/instances/0/state", state.to_owned()),
        ("status/instances/0/reason", reason.to_string()),
        ("status/instances/0/message", format!("{message:?}")),
        ("status/conditions/0/status", "'False'".to_owned()),
        ("status/conditions/0/reason", reason.to_string()),
        ("status/conditions/2/status", "'True'".to_owned()),
        ("status/conditions/2/reason", reason.to_string()),
    ]
}

fn diagnosed(changes: &[(&str, String)]) -> Diagnosis {
    let changes: Vec<(&str, &str)> = changes
        .iter()
        .map(|(path, new)| (*path, new.as_str()))
        .collect();
    let mut found = healthy();
    found.probes = Answer::Known(vec![probe(&changes)]);
    found.diagnose()
}

/// What it warns of.
fn warnings(found: &Diagnosis) -> Vec<&str> {
    let warnings = found.findings.iter();
    let warnings = warnings.filter(|one| one.mark == Mark::Warning);
    warnings.map(|one| one.text.as_str()).collect()
}

#[test]
fn a_cluster_on_which_all_is_well_passes_at_each_place() {
    let found = healthy().diagnose();
    let marks: Vec<_> = found.findings.iter().map(|one| one.mark).collect();
    assert!(marks.iter().all(|mark| *mark == Mark::Passed), "{found:#?}");
    assert!(found.ok);
    let mut places: Vec<Place> = found.findings.iter().map(|one| one.place).collect();
    assert!(places.is_sorted(), "{places:?}");
    places.dedup();
    assert_eq!(places.len(), 12, "each place is told of: {places:?}");
    let parts: Vec<String> = found
        .parts
        .iter()
        .map(|one| format!("{} {}", one.name, one.version))
        .collect();
    assert_eq!(
        parts,
        [
            "command line 0.1.0",
            "API server v1.34.4",
            "operator 0.1.0",
            "agent on node0 0.1.0"
        ]
    );
    let text = &found.findings.last().unwrap().text;
    assert_eq!(
        text,
        "storage 733/s p99 96.3us; it costs 0.4% of the CPU time"
    );
}

#[test]
fn an_api_server_that_does_not_answer_is_all_that_is_told() {
    let mut found = healthy();
    found.server = Answer::Failed("connection refused".to_owned());
    let found = found.diagnose();
    assert_eq!(found.findings.len(), 1);
    let first = first(&found, Place::Cluster);
    assert_eq!(first.text, "connection refused");
    assert_eq!(first.next, ["kubectl cluster-info"]);
}

#[test]
fn resources_that_are_missing_are_named() {
    let mut found = healthy();
    found.resources = Answer::Known(vec!["ckbprobes".to_owned(), "ckbprofiles".to_owned()]);
    let first = broken_first(found, Place::Crd);
    assert!(
        first
            .text
            .starts_with("the API server has no nodeprobes, profileparts: "),
        "{}",
        first.text
    );
    assert!(first.next[0].starts_with("helm upgrade --install ckb-probe "));
}

#[test]
fn an_operator_that_is_not_there_or_is_not_to_be_or_cannot_start_is_told_apart() {
    let mut none = healthy();
    none.operators = Answer::Known(Vec::new());
    assert!(
        broken_first(none, Place::Operator)
            .text
            .starts_with("no operator is installed")
    );

    let mut scaled = healthy();
    scaled.lease = Answer::Known(None);
    scaled.operators = Answer::Known(vec![deployment(&[("spec/replicas", "0")])]);
    let scaled = scaled.diagnose();
    let failed = scaled
        .findings
        .iter()
        .filter(|one| one.mark == Mark::Failed);
    assert_eq!(
        failed.count(),
        1,
        "it goes without saying that it does not work"
    );
    let first_scaled = first(&scaled, Place::Operator);
    assert_eq!(
        first_scaled.next,
        ["kubectl -n ckb-probe-system scale deployment ckb-probe-operator --replicas 1"]
    );

    let mut stuck = healthy();
    stuck.operators = Answer::Known(vec![deployment(&[("status/readyReplicas", "0")])]);
    let waiting = "{waiting: {reason: ImagePullBackOff, message: 'Back-off pulling image \"ckb-probe:0.1\"'}}";
    let pod = agent(&[
        ("status/containerStatuses/0/ready", "false"),
        ("status/containerStatuses/0/state", waiting),
        ("status/containerStatuses/0/lastState", "{}"),
    ]);
    stuck.operator_pods = Answer::Known(vec![pod]);
    assert_eq!(
        broken_first(stuck, Place::Operator).text,
        "of Deployment ckb-probe-system/ckb-probe-operator 0 of 1 replicas are ready: ImagePullBackOff: Back-off pulling image \
         \"ckb-probe:0.1\""
    );
}

#[test]
fn an_operator_that_does_not_renew_its_lease_does_not_work() {
    let mut found = healthy();
    let late = lease(&[("spec/renewTime", "'2026-11-26T10:11:30.000000Z'")]);
    found.lease = Answer::Known(Some(late));
    let text = broken_first(found, Place::Operator).text;
    assert!(text.contains("was last renewed 40 s ago"), "{text}");

    let mut untaken = healthy();
    untaken.lease = Answer::Known(None);
    assert!(
        broken_first(untaken, Place::Operator)
            .text
            .starts_with("no operator has taken")
    );

    let mut released = healthy();
    released.lease = Answer::Known(Some(lease(&[("spec/holderIdentity", "''")])));
    let text = broken_first(released, Place::Operator).text;
    assert_eq!(
        text,
        "no operator works: nobody holds the Lease ckb-probe-operator"
    );

    // Fifteen seconds, and as much for clocks that differ.
    let mut late = healthy();
    late.lease = Answer::Known(Some(lease(&[(
        "spec/renewTime",
        "'2026-11-26T10:11:40.000000Z'",
    )])));
    assert!(late.diagnose().ok);
}

#[test]
fn an_operator_of_another_namespace_is_told_of() {
    let mut found = healthy();
    let only = deployment(&[(
        "spec/template/spec/containers/0/env/0",
        "{name: WATCH_NAMESPACE, value: other}",
    )]);
    found.operators = Answer::Known(vec![only]);
    let text = broken_first(found, Place::Operator).text;
    assert_eq!(
        text,
        "the operator serves namespace other alone, and not e2e-soak"
    );
}

#[test]
fn a_right_that_is_missing_is_told_with_how_to_ask_for_it() {
    let mut found = healthy();
    let who = "the operator's ServiceAccount ckb-probe-system/ckb-probe-operator";
    found
        .rights
        .push(right(who, "list pods", true, Some(false)));
    let first = broken_first(found, Place::Rbac);
    assert_eq!(
        first.next,
        [
            "kubectl auth can-i list pods -n e2e-soak --as system:serviceaccount:ckb-probe-system:ckb-probe-operator"
        ]
    );
    // What is not needed to measure is no failure, and nobody is blamed for what cannot be known.
    let mut known = healthy();
    known.rights.push(right(
        "you",
        "list nodeprobes.ckbprobe.dev",
        false,
        Some(false),
    ));
    known.rights.push(right("you", "list nodes", true, None));
    assert!(known.diagnose().ok);
}

#[test]
fn a_name_that_is_not_there_is_told_with_those_that_are() {
    let mut found = healthy();
    found.name = Some("stedy".to_owned());
    let first = broken_first(found, Place::CkbProbe);
    assert_eq!(
        first.text,
        "there is no CkbProbe stedy in namespace e2e-soak: it has steady"
    );

    let mut none = healthy();
    (none.name, none.probes) = (None, Answer::Known(Vec::new()));
    let none = none.diagnose();
    assert!(
        none.ok,
        "nothing is wrong with a cluster on which nothing is asked"
    );
    assert!(none.is_settled(), "and nothing is waited for");
}

#[test]
fn an_answer_that_does_not_come_is_the_operators_fault_after_ten_seconds() {
    let age = |created: &str| {
        let mut found = healthy();
        let mut one = probe(&[("metadata/creationTimestamp", created)]);
        one.status = None;
        found.probes = Answer::Known(vec![one]);
        found.diagnose()
    };
    let new = age("'2026-11-26T10:12:01Z'");
    assert!(new.ok && !new.is_settled(), "it is waited for");
    let old = age("'2026-11-26T10:11:10Z'");
    let text = &first(&old, Place::CkbProbe).text;
    assert_eq!(text, "the operator has not answered it, for 60 s");
    let edited = |time: &str| {
        let managed = format!("[{{manager: kubectl, operation: Update, time: '{time}'}}]");
        diagnosed(&[
            ("metadata/generation", "2".to_owned()),
            ("metadata/managedFields", managed),
        ])
    };
    assert!(
        edited("2026-11-26T10:12:01Z").ok,
        "it was edited a moment ago"
    );
    let edited = edited("2026-11-26T10:11:59Z");
    let text = &first(&edited, Place::CkbProbe).text;
    assert!(
        text.contains("generation 1, and not what is asked now, generation 2"),
        "{text}"
    );
}

#[test]
fn one_that_cost_left_paused_is_told_with_how_it_is_put_back() {
    let noted = |was: &str| {
        let annotation = format!("{{ckbprobe.dev/paused-before-cost: '{was}'}}");
        diagnosed(&[("metadata/annotations", annotation)])
    };
    let found = noted("false");
    let mut told = found.findings.iter();
    let told = told.find(|one| one.text.contains("kubectl ckbprobe cost"));
    let told = told.unwrap();
    assert_eq!((told.place, told.mark), (Place::CkbProbe, Mark::Warning));
    assert!(told.text.contains("it was not paused before"), "{told:?}");
    assert_eq!(
        told.next,
        ["kubectl ckbprobe cost steady -n e2e-soak --restore"]
    );
    let paused = noted("true").findings;
    assert!(
        paused
            .iter()
            .any(|one| one.text.contains("it was paused before"))
    );
    // Nothing of it where nobody compared.
    let none = healthy().diagnose().findings;
    assert!(!none.iter().any(|one| one.text.contains("ckbprobe cost")));
}

#[test]
fn each_reason_is_found_at_its_place_with_a_command_and_its_paragraph() {
    let all = reasons();
    assert!(all.len() > 30, "{all:?}");
    for reason in all {
        let Some(place) = reasons::place(reason) else {
            let well = [Reason::Firing, Reason::UnderBudget, Reason::Done];
            assert!(well.contains(&reason), "{reason} stands nowhere");
            continue;
        };
        let state = if reason == Reason::Silent {
            "Attached"
        } else {
            "Failed"
        };
        let found = diagnosed(&answered(state, reason, "what happened"));
        let finding = found
            .findings
            .iter()
            .find(|one| one.reason == Some(reason))
            .unwrap();
        assert_eq!(finding.place, place, "{reason}");
        assert_eq!(finding.text, "steady: what happened");
        let mark = if reasons::passes(reason) {
            Mark::Warning
        } else {
            Mark::Failed
        };
        assert_eq!(finding.mark, mark, "{reason}");
        assert_eq!(found.ok, mark != Mark::Failed, "{reason}");
        assert_eq!(finding.next.len(), 1, "{reason}");
        assert!(
            finding.next[0].starts_with("kubectl -n "),
            "{reason}: {:?}",
            finding.next
        );
        let anchor = format!("#{}", reason.as_str().to_lowercase());
        assert!(finding.see.as_deref().unwrap().ends_with(&anchor));
        // Nothing is said of what nothing got to.
        let last = found.findings.last().unwrap().place;
        assert!(state == "Attached" || last == place, "{reason}: {last:?}");
    }
}

#[test]
fn what_keeps_one_target_of_two_is_told_and_the_rest_looked_at() {
    let mut found = healthy();
    let mut one = probe(&[("status/targets/matched", "2")]);
    let status = one.status.as_mut().unwrap();
    let mut other = status.instances[0].clone();
    other.pod = "other".to_owned();
    other.reason = Reason::ExecutableNotFound;
    other.state = ckb_probe_crds::InstanceState::Waiting;
    other.message = "no process of container fixture runs nosuch".to_owned();
    status.instances.insert(0, other);
    found.probes = Answer::Known(vec![one]);
    let found = found.diagnose();
    let broken = first(&found, Place::Process);
    assert_eq!(
        broken.text,
        "other: no process of container fixture runs nosuch"
    );
    assert_eq!(
        broken.next,
        ["kubectl -n e2e-soak exec other -- sh -c 'readlink /proc/[0-9]*/exe'"]
    );
    let last = found.findings.last().unwrap();
    assert_eq!((last.place, last.mark), (Place::Figures, Mark::Passed));
}

#[test]
fn what_is_measured_without_is_a_warning_where_the_rest_fires() {
    let partial = diagnosed(&[
        ("status/conditions/2/status", "'True'".to_owned()),
        ("status/conditions/2/reason", "SymbolNotFound".to_owned()),
        (
            "status/conditions/2/message",
            "MultiGet is not in the binary".to_owned(),
        ),
        ("status/conditions/4/status", "'False'".to_owned()),
        (
            "status/conditions/4/reason",
            "UnsupportedByKernel".to_owned(),
        ),
        ("status/conditions/3/status", "'False'".to_owned()),
        ("status/conditions/3/reason", "OverBudget".to_owned()),
        ("status/conditions/5/status", "'False'".to_owned()),
        ("status/conditions/5/reason", "WritesHeldBack".to_owned()),
    ]);
    assert!(partial.ok);
    let warned = partial
        .findings
        .iter()
        .filter(|one| one.mark == Mark::Warning);
    let warned: Vec<_> = warned
        .filter_map(|one| Some((one.place, one.reason?)))
        .collect();
    assert_eq!(
        warned,
        [
            (Place::Symbols, Reason::SymbolNotFound),
            (Place::Kernel, Reason::UnsupportedByKernel),
            (Place::Figures, Reason::OverBudget),
            (Place::Figures, Reason::WritesHeldBack),
        ]
    );
}

#[test]
fn agents_and_nodes_are_looked_at_where_no_status_tells_of_them() {
    let mut found = healthy();
    found.node_probes = Answer::Known(vec![node_probe(&[
        ("status/agent/version", "0.0.9"),
        ("status/agent/preflight/1/passed", "false"),
        ("status/agent/preflight/1/detail", "no type information"),
    ])]);
    found.agents = Answer::Known(vec![agent(&[
        ("status/conditions/2/status", "'False'"),
        ("status/containerStatuses/0/ready", "false"),
        (
            "status/containerStatuses/0/state",
            "{waiting: {reason: CrashLoopBackOff}}",
        ),
    ])]);
    let ready = node(&[]).status.unwrap().conditions.unwrap();
    let place = ready.iter().position(|one| one.type_ == "Ready").unwrap();
    let path = format!("status/conditions/{place}/status");
    found.nodes = Answer::Known(vec![node(&[(&path, "Unknown")])]);
    let found = found.diagnose();
    let told = warnings(&found);
    assert_eq!(told.len(), 4, "{told:#?}");
    assert!(
        told[0].starts_with("the agent on node0 is of version 0.0.9, and the operator of 0.1.0")
    );
    assert!(told[1].starts_with("pod ckb-probe-system/ckb-probe-agent-node0 is not ready: CrashLoopBackOff; it ended with 255: "));
    assert_eq!(told[2], "node node0 is not Ready");
    assert_eq!(told[3], "node0: Btf: no type information");
}

#[test]
fn calls_that_are_missing_and_traces_that_do_not_arrive_are_told() {
    let found = diagnosed(&[
        ("status/probes/0/lost/calls", "3".to_owned()),
        (
            "status/traces",
            "{started: 1, dropped: 1, message: the receiver refuses them}".to_owned(),
        ),
    ]);
    assert!(found.ok);
    let told = warnings(&found);
    assert_eq!(
        told,
        [
            "probe storage: 3 calls are missing from all figures",
            "traces: the receiver refuses them"
        ]
    );
}

#[test]
fn whoever_may_see_only_ckbprobes_is_told_what_they_say() {
    let mut found = healthy();
    found.operators = Answer::Forbidden;
    found.lease = Answer::Forbidden;
    found.node_probes = Answer::Forbidden;
    found.agents = Answer::Forbidden;
    found.nodes = Answer::Forbidden;
    let found = found.diagnose();
    assert!(found.ok, "{found:#?}");
    assert_eq!(found.findings.last().unwrap().place, Place::Figures);
}

#[test]
fn each_kind_of_breakage_is_at_the_place_where_a_person_would_look() {
    for (reason, place) in [
        (Reason::KindNotAdmitted, Place::CkbProbe),
        (Reason::ExporterNotAdmitted, Place::CkbProbe),
        (Reason::LimitExceeded, Place::CkbProbe),
        (Reason::NoMatchingPods, Place::Pods),
        (Reason::PodNotRunning, Place::Pods),
        (Reason::AgentUnavailable, Place::Agent),
        (Reason::AgentSilent, Place::Agent),
        (Reason::ReportRefused, Place::Agent),
        (Reason::PreflightFailed, Place::Node),
        (Reason::ExecutableNotFound, Place::Process),
        (Reason::TargetDied, Place::Process),
        (Reason::SymbolNotFound, Place::Symbols),
        (Reason::TooManyMatches, Place::Symbols),
        (Reason::SingleStepped, Place::Symbols),
        (Reason::AttachFailed, Place::Kernel),
        (Reason::UnsupportedByKernel, Place::Kernel),
        (Reason::EntryOnly, Place::Kernel),
        (Reason::Silent, Place::Figures),
    ] {
        let found = diagnosed(&answered("Failed", reason, "what happened"));
        assert_eq!(first(&found, place).reason, Some(reason));
    }
}
