//! Worlds made up at random, by the news of them.

use proptest::sample::Index;

use super::*;

/// Probes and pods of two namespaces on three nodes, in any state.
pub fn changes() -> impl Strategy<Value = Vec<Change>> {
    prop::collection::vec(change(), 0..24)
}

/// The same, where the CkbProbes are of several ages, ask for different things, and for so much that no order holds three.
pub fn varied() -> impl Strategy<Value = Vec<Change>> {
    use kube::runtime::watcher::Event::Apply;
    let varied = (change(), 0..3_i64, 1..3_u64, any::<bool>());
    let varied = varied.prop_map(|(mut change, age, seconds, large)| {
        match &mut change {
            Change::Probe(Apply(row)) => {
                row.created = at(-100 - age);
                let spec = row.spec.as_mut().unwrap();
                // Most ask for something.
                if seconds == 1 {
                    spec.spec.paused = false;
                    spec.spec.duration = None;
                }
                spec.asks = format!("{seconds} {large}");
                spec.bytes = if large { 200_000 } else { 300 };
            }
            Change::Pod(Apply(row)) => {
                row.created = at(-100 - age);
                let id = Some(format!("id-{seconds}"));
                row.containers
                    .iter_mut()
                    .for_each(|one| one.id.clone_from(&id));
                if large && seconds == 1 {
                    row.containers = vec![container("ckb"); 65];
                }
            }
            _ => {}
        }
        change
    });
    prop::collection::vec(varied, 0..24)
}

fn change() -> impl Strategy<Value = Change> {
    let namespace = || prop::sample::select(vec!["a", "b"]);
    let probes =
        (namespace(), 0..3_u8, any::<bool>(), any::<bool>()).prop_map(|(ns, n, paused, brief)| {
            let duration = if brief { "1m" } else { "1h" };
            let name = format!("p{n}");
            has(&probe(
                ns,
                &name,
                json!({ "paused": paused, "duration": duration }),
            ))
        });
    let pods = (
        namespace(),
        0..4_u8,
        prop::option::of(0..3_u8),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(ns, n, on, labelled, finished)| {
            let on = on.map(|on| format!("n{on}"));
            let mut pod = pod(ns, &format!("ckb-{n}"), on.as_deref());
            if !labelled {
                pod.labels = Default::default();
            }
            if finished {
                pod.phase = Phase::Finished;
            }
            runs(&pod)
        });
    let nodes = (0..3_u8).prop_map(|n| node(&format!("n{n}")));
    prop_oneof![2 => probes, 3 => pods, 2 => nodes]
}

/// One change for each object: those that come twice would leave another world in another order.
pub fn distinct(changes: Vec<Change>) -> Vec<Change> {
    let mut seen = BTreeSet::new();
    let key = |change: &Change| {
        use kube::runtime::watcher::Event::Apply;
        match change {
            Change::Probe(Apply(row)) => format!("probe {:?}", row.reference),
            Change::Pod(Apply(row)) => format!("pod {:?}", row.reference),
            other => format!("{other:?}"),
        }
    };
    changes
        .into_iter()
        .filter(|change| seen.insert(key(change)))
        .collect()
}

/// The same in another order.
pub fn shuffled<T: Clone>(items: &[T], picks: &[Index]) -> Vec<T> {
    let mut left = items.to_vec();
    let mut all = Vec::new();
    for pick in picks {
        if !left.is_empty() {
            all.push(left.remove(pick.index(left.len())));
        }
    }
    all.extend(left);
    all
}

/// The same changes, each of an object of its own, in two orders.
pub fn in_two_orders() -> impl Strategy<Value = [Vec<Change>; 2]> {
    let picks = prop::collection::vec(any::<Index>(), 24);
    (changes(), picks).prop_map(|(changes, picks)| {
        let changes = distinct(changes);
        let again = shuffled(&changes, &picks);
        [changes, again]
    })
}

/// What is asked by those who ask for a lot: twice as much as the limits that are drawn for it.
pub fn limits() -> impl Strategy<Value = Limits> {
    (1..4_usize, 1..6_usize, 1..3_usize).prop_map(|(ckb_probes, targets, per_target)| Limits {
        ckb_probes_per_namespace: ckb_probes,
        targets_per_namespace: targets,
        ckb_probes_per_target: per_target,
        ..Limits::default()
    })
}
