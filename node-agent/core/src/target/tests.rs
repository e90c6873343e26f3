use ckb_probe_crds::{Container, Overhead};
use proptest::prelude::*;

use super::*;

fn assignment(probe: &str, pod: &str, containers: &[(&str, Option<&str>)]) -> Assignment {
    Assignment {
        probe: ProbeReference {
            namespace: "ckb".into(),
            name: probe.into(),
            uid: format!("{probe}-uid"),
        },
        asks: String::new(),
        pod: PodReference {
            namespace: "ckb".into(),
            name: pod.into(),
            uid: format!("{pod}-uid"),
        },
        containers: containers
            .iter()
            .map(|(name, id)| Container {
                name: name.to_string(),
                id: id.map(str::to_string),
            })
            .collect(),
        executable: "ckb".into(),
        report_interval: std::time::Duration::from_secs(10).into(),
        overhead: Overhead::default(),
        probes: vec![],
        traces: None,
        expires_at: None,
    }
}

fn process(pid: u32, start_ticks: u64, pod: &str, container: &str) -> Process {
    Process {
        id: ProcessId { pid, start_ticks },
        executable: "ckb".into(),
        place: Place {
            pod: Some(format!("{pod}-uid")),
            container: Some(format!("{pod}-{container}-id")),
        },
        name: Some(container.into()),
    }
}

fn observe(desired: &BTreeMap<InstanceKey, Desired>) -> BTreeMap<InstanceKey, Observed> {
    desired
        .iter()
        .map(|(key, want)| {
            let observed = Observed {
                assignment: want.assignment.clone(),
                process: want.located.as_ref().map(|located| located.process),
                held: false,
            };
            (key.clone(), observed)
        })
        .collect()
}

/// What the executor makes of the actions.
fn apply(
    mut observed: BTreeMap<InstanceKey, Observed>,
    actions: Vec<Action>,
) -> BTreeMap<InstanceKey, Observed> {
    for action in actions {
        match action {
            Action::Forget(key) => {
                observed.remove(&key);
            }
            Action::Lose(key) => {
                observed.get_mut(&key).unwrap().process = None;
            }
            Action::Attach(key, want) | Action::Await(key, want) => {
                let process = want.located.as_ref().map(|located| located.process);
                observed.insert(
                    key,
                    Observed {
                        assignment: want.assignment,
                        process,
                        held: false,
                    },
                );
            }
        }
    }
    observed
}

#[test]
fn only_the_assigned_pods_and_containers_processes_are_targets() {
    let assignments = [assignment("p", "a", &[("ckb", None)])];
    let processes = [
        process(10, 100, "a", "ckb"),
        process(11, 100, "a", "miner"),
        process(12, 100, "b", "ckb"),
    ];
    let targets = locate(&assignments, &processes, []);
    assert_eq!(targets.len(), 1);
    let (key, desired) = targets.first_key_value().unwrap();
    assert_eq!(key.container, "ckb");
    assert_eq!(
        desired.located,
        Some(Located {
            process: processes[0].id,
            others: 0
        })
    );
}

#[test]
fn pods_of_one_name_in_two_namespaces_are_told_apart_by_uid() {
    let mut other = assignment("p", "a", &[("ckb", None)]);
    other.pod = PodReference {
        namespace: "elsewhere".into(),
        name: "a".into(),
        uid: "other-uid".into(),
    };
    let targets = locate(&[other], &[process(10, 100, "a", "ckb")], []);
    assert_eq!(targets.len(), 0);
}

#[test]
fn a_process_of_another_executable_is_no_target() {
    let mut sidecar = process(10, 100, "a", "ckb");
    sidecar.executable = "sh".into();
    let assignments = [assignment("p", "a", &[("ckb", None)])];
    let targets = locate(&assignments, &[sidecar], []);
    assert_eq!(targets.len(), 0);
    assert_eq!(unmatched(&assignments, &targets), [&assignments[0]]);
}

#[test]
fn where_the_cgroup_names_no_pod_the_container_id_decides() {
    let mut bare = process(10, 100, "a", "ckb");
    bare.place.pod = None;
    let known = assignment("p", "a", &[("ckb", Some("a-ckb-id"))]);
    let unknown = assignment("p", "a", &[("ckb", None)]);
    assert_eq!(locate(&[known], &[bare.clone()], []).len(), 1);
    assert_eq!(locate(&[unknown], &[bare], []).len(), 0);
}

#[test]
fn a_static_pod_is_found_by_its_containers_id() {
    // The kubelet has another uid for it than the API.
    let mut running = process(10, 100, "a", "ckb");
    running.place.pod = Some("kubelets-uid".into());
    let order = assignment("p", "a", &[("ckb", Some("a-ckb-id"))]);
    let targets = locate(&[order], &[running], []);
    assert_eq!(targets.first_key_value().unwrap().0.container, "ckb");
}

#[test]
fn a_process_that_cannot_be_read_keeps_its_target() {
    let order = [assignment("p", "a", &[("ckb", None)])];
    let (old, new) = (process(10, 100, "a", "ckb"), process(11, 200, "a", "ckb"));
    let first = locate(&order, std::slice::from_ref(&old), []);
    let observed = observe(&first);
    let key = first.first_key_value().unwrap().0;
    let located = Located {
        process: old.id,
        others: 0,
    };
    let held = BTreeMap::from([(key.clone(), located)]);
    for found in [vec![], vec![new]] {
        let mut desired = locate(&order, &found, observed.keys());
        assert_ne!(plan(&desired, &observed), []);
        hold(&mut desired, held.clone());
        assert_eq!(plan(&desired, &observed), []);
    }
    // Of what is not asked for any more, nothing is held.
    let mut desired = locate(&[], &[], observed.keys());
    hold(&mut desired, held);
    assert_eq!(plan(&desired, &observed), [Action::Forget(key.clone())]);
}

#[test]
fn the_name_alone_makes_no_target() {
    // Another pod's container of the same name, or one of no pod at all.
    let order = [assignment("p", "a", &[("ckb", Some("a-ckb-id"))])];
    let mut others = [10, 11].map(|pid| process(pid, 100, "b", "ckb"));
    others[1].place = Place::default();
    assert_eq!(locate(&order, &others, []).len(), 0);
}

#[test]
fn of_several_processes_the_oldest_is_measured_and_the_others_are_counted() {
    let assignments = [assignment("p", "a", &[("ckb", None)])];
    let processes = [
        process(10, 300, "a", "ckb"),
        process(11, 200, "a", "ckb"),
        process(12, 250, "a", "ckb"),
    ];
    let targets = locate(&assignments, &processes, []);
    let located = targets
        .first_key_value()
        .unwrap()
        .1
        .located
        .clone()
        .unwrap();
    assert_eq!(
        located,
        Located {
            process: processes[1].id,
            others: 2
        }
    );
}

#[test]
fn a_restart_is_seen_by_name_before_the_new_container_id_is_known() {
    let stale = [assignment("p", "a", &[("ckb", Some("old-id"))])];
    let before = locate(&stale, &[process(10, 100, "a", "ckb")], []);
    let observed = observe(&before);
    let gone = locate(&stale, &[], observed.keys());
    let key = before.first_key_value().unwrap().0.clone();
    assert_eq!(plan(&gone, &observed), [Action::Lose(key.clone())]);
    let observed = apply(observed.clone(), plan(&gone, &observed));
    let again = locate(&stale, &[process(20, 900, "a", "ckb")], observed.keys());
    assert!(
        matches!(&plan(&again, &observed)[..], [Action::Attach(attached, _)] if *attached == key)
    );
}

#[test]
fn a_reused_pid_is_another_process() {
    let assignments = [assignment("p", "a", &[("ckb", None)])];
    let observed = observe(&locate(&assignments, &[process(10, 100, "a", "ckb")], []));
    let desired = locate(&assignments, &[process(10, 999, "a", "ckb")], []);
    assert!(matches!(
        &plan(&desired, &observed)[..],
        [Action::Attach(..)]
    ));
}

#[test]
fn a_new_container_id_alone_changes_nothing() {
    let processes = [process(10, 100, "a", "ckb")];
    let observed = observe(&locate(
        &[assignment("p", "a", &[("ckb", None)])],
        &processes,
        [],
    ));
    let desired = locate(
        &[assignment("p", "a", &[("ckb", Some("new"))])],
        &processes,
        [],
    );
    assert_eq!(plan(&desired, &observed), []);
}

#[test]
fn an_order_withdrawn_is_forgotten() {
    let observed = observe(&locate(
        &[assignment("p", "a", &[("ckb", None)])],
        &[process(1, 1, "a", "ckb")],
        [],
    ));
    let desired = locate(&[], &[process(1, 1, "a", "ckb")], observed.keys());
    assert!(matches!(
        &plan(&desired, &observed)[..],
        [Action::Forget(_)]
    ));
}

fn worlds() -> impl Strategy<Value = (Vec<Assignment>, Vec<Process>)> {
    let names = prop::sample::select(vec!["a", "b", "c"]);
    let containers = prop::sample::select(vec!["ckb", "miner"]);
    let assignments = prop::collection::btree_map(
        (prop::sample::select(vec!["p", "q"]), names.clone()),
        1u64..3,
        0..5,
    )
    .prop_map(|orders| {
        orders
            .into_iter()
            .map(|((probe, pod), seconds)| {
                let mut order = assignment(probe, pod, &[("ckb", None), ("miner", None)]);
                order.report_interval = std::time::Duration::from_secs(seconds).into();
                order
            })
            .collect()
    });
    let processes = prop::collection::btree_map(1u32..20, (1u64..5, names, containers), 0..8)
        .prop_map(|all| {
            all.into_iter()
                .map(|(pid, (start, pod, container))| process(pid, start, pod, container))
                .collect()
        });
    (assignments, processes)
}

proptest! {
    #[test]
    fn what_is_in_place_needs_no_step((assignments, processes) in worlds()) {
        let desired = locate(&assignments, &processes, []);
        prop_assert_eq!(plan(&desired, &observe(&desired)), vec![]);
    }

    #[test]
    fn the_steps_lead_to_what_is_asked_for(before in worlds(), after in worlds()) {
        let observed = observe(&locate(&before.0, &before.1, []));
        let desired = locate(&after.0, &after.1, observed.keys());
        let reached = apply(observed.clone(), plan(&desired, &observed));
        prop_assert_eq!(plan(&desired, &reached), vec![]);
        prop_assert_eq!(reached.keys().collect::<Vec<_>>(), desired.keys().collect::<Vec<_>>());
    }

    #[test]
    fn the_order_of_orders_and_processes_does_not_matter((assignments, processes) in worlds()) {
        let reversed: (Vec<_>, Vec<_>) =
            (assignments.iter().rev().cloned().collect(), processes.iter().rev().cloned().collect());
        prop_assert_eq!(locate(&assignments, &processes, []), locate(&reversed.0, &reversed.1, []));
    }
}
