use proptest::{option, prelude::*};

use super::*;

/// Throttling, and what was sent again, in percent; pressure is unknown, as with cgroups of version 1.
fn told(throttled: u64, again: u64) -> Option<Contention> {
    Some(Contention {
        throttled_millipercent: Some(throttled * 1000),
        retransmitted_millipercent: Some(again * 1000),
        ..Contention::default()
    })
}

/// What is said where no target tells anything.
const UNKNOWN: &str = "unknown: throttling by the CPU limit, waiting for a CPU, waiting for a disk, TCP segments sent again";

fn after(intervals: usize, of: &[Told]) -> Waits {
    let mut waits = Waits::default();
    for _ in 0..intervals {
        waits.learn(of, &Work::new());
    }
    waits
}

#[test]
fn what_is_more_than_usual_is_told_with_what_is_usual_and_what_is_unknown() {
    let waits = after(64, &[("ckb-0", told(0, 0)), ("ckb-1", told(0, 0))]);
    let beside = waits.beside(
        &[("ckb-0", told(0, 0)), ("ckb-1", told(38, 0))],
        &Work::new(),
    );
    assert_eq!(
        beside,
        "38% of the CPU limit's periods throttled, usually 0% (pod ckb-1); unknown: waiting for a CPU, waiting for a disk; \
         as usual: TCP segments sent again"
    );
    let beside = waits.beside(&[("ckb-0", None), ("ckb-1", told(0, 0))], &Work::new());
    assert_eq!(
        beside,
        "unknown: throttling by the CPU limit of 1 of 2 targets, waiting for a CPU, waiting for a disk, \
         TCP segments sent again of 1 of 2 targets; as usual: throttling by the CPU limit, TCP segments sent again"
    );
}

#[test]
fn of_agents_that_do_not_tell_nothing_is_known_and_of_young_ones_not_what_is_usual() {
    let silent: &[Told] = &[("ckb-0", None)];
    assert_eq!(after(64, silent).beside(silent, &Work::new()), UNKNOWN);
    assert_eq!(Waits::default().beside(&[], &Work::new()), UNKNOWN);
    let young = after(20, &[("ckb-0", told(0, 0))]);
    assert_eq!(
        young.beside(&[("ckb-0", told(90, 90))], &Work::new()),
        "unknown: waiting for a CPU, waiting for a disk; \
         not measured for long enough to say: throttling by the CPU limit, TCP segments sent again"
    );
}

#[test]
fn what_ran_beside_it_is_told_where_it_was_more_than_usual() {
    let silent: &[Told] = &[("ckb-0", None)];
    let work = |compaction, stall| {
        let of = [("Compaction", compaction), ("WriteStall", stall)];
        Work::from(of.map(|(name, part)| (name.to_owned(), part)))
    };
    let mut waits = Waits::default();
    for _ in 0..64 {
        waits.learn(silent, &work(Some(0.02), Some(0.0)));
    }
    let beside = |compaction, stall| waits.beside(silent, &work(compaction, stall));
    assert_eq!(
        beside(Some(1.8), Some(0.0)),
        format!(
            "Compaction under way for 180% of the time, usually 2%; {UNKNOWN}; as usual: WriteStall"
        )
    );
    assert_eq!(
        beside(Some(0.06), Some(0.0)),
        format!("{UNKNOWN}; as usual: Compaction, WriteStall")
    );
    assert_eq!(
        beside(Some(0.02), Some(0.4)),
        format!(
            "WriteStall under way for 40% of the time, usually 0%; {UNKNOWN}; as usual: Compaction"
        )
    );
    // What was not seen is not none.
    assert_eq!(
        beside(None, Some(0.0)),
        format!("{UNKNOWN}, Compaction; as usual: WriteStall")
    );
    assert_eq!(
        Waits::default().beside(silent, &work(Some(1.0), Some(0.0))),
        format!("{UNKNOWN}; not measured for long enough to say: Compaction, WriteStall")
    );
}

/// A pod's name may have 253 characters. What is as usual is left out first, and what is unknown never.
#[test]
fn where_there_is_no_room_for_all_whole_clauses_are_left_out_and_what_is_unknown_is_not() {
    let waits = after(64, &[("ckb-0", told(0, 0))]);
    let beside = |length, throttled, again, work: &Work| {
        let pod = "x".repeat(length);
        let of: &[Told] = &[(pod.as_str(), told(throttled, again))];
        waits.beside(of, work).replace(&pod, "POD")
    };
    let none = Work::new();
    let names: Vec<String> = (0..MOST_WORK)
        .map(|number| format!("Compaction{number:02}"))
        .collect();
    let work: Work = names.iter().map(|name| (name.clone(), Some(0.0))).collect();
    let new = format!("not measured for long enough to say: {}", names.join(", "));
    let throttled = "38% of the CPU limit's periods throttled, usually 0% (pod POD)";
    let again = "2% of TCP segments sent again, usually 0% (pod POD)";
    let unknown = "unknown: waiting for a CPU, waiting for a disk";
    assert_eq!(
        beside(253, 38, 0, &none),
        format!("{throttled}; {unknown}; as usual: TCP segments sent again")
    );
    assert_eq!(
        beside(120, 38, 0, &work),
        format!("{throttled}; {unknown}; {new}")
    );
    assert_eq!(beside(253, 38, 0, &work), format!("{throttled}; {unknown}"));
    let both = throttled.len() + again.len() - 2 * "POD".len() + unknown.len() + 2 * "; ".len();
    let fits = (MAX_BESIDE - both) / 2;
    assert_eq!(
        beside(fits, 38, 2, &none),
        format!("{throttled}; {again}; {unknown}")
    );
    assert_eq!(
        beside(fits + 1, 38, 2, &none),
        format!("{throttled}; {unknown}")
    );
}

/// What is to be said to be unknown.
fn unknown(told: &[Told], work: &Work) -> Vec<String> {
    let resources = RESOURCES.iter().filter_map(|resource| {
        let silent = told.iter().filter(|one| part(resource, one).is_none());
        match (silent.count(), told.len(), resource.name) {
            (0, 1.., _) => None,
            (silent, all, name) if silent == all => Some(name.to_owned()),
            (silent, all, name) => Some(format!("{name} of {silent} of {all} targets")),
        }
    });
    let work = work.iter().take(MOST_WORK);
    let unseen = work.filter(|(_, part)| part.is_none());
    resources
        .chain(unseen.map(|(name, _)| name.clone()))
        .collect()
}

/// The place of a clause among others; None if something of it is missing. Lists have names that there are, and what is more than usual ends with
/// what is usual, and of what is waited for with the pod.
fn place(clause: &str, pods: &[String], work: &Work) -> Option<usize> {
    let heads = [
        "unknown: ",
        "not measured for long enough to say: ",
        "as usual: ",
    ];
    for (place, head) in (1..).zip(heads) {
        if let Some(names) = clause.strip_prefix(head) {
            let mut names = names.split(", ");
            let is_whole = names.all(|name| {
                let name = name.split(" of ").next().unwrap_or(name);
                work.contains_key(name) || RESOURCES.iter().any(|resource| resource.name == name)
            });
            return is_whole.then_some(place);
        }
    }
    let (said, usual) = clause.split_once(", usually ")?;
    let (_, pod) = usual.split_once('%')?;
    let is_whole = match said.split_once(" under way for ") {
        Some((name, _)) => work.contains_key(name) && pod.is_empty(),
        None => {
            RESOURCES.iter().any(|one| said.ends_with(one.said))
                && pods.iter().any(|name| pod == named(name))
        }
    };
    is_whole.then_some(0)
}

proptest! {
    /// Whatever agents tell, it fits, no cause is named, what is unknown always is, and no clause is cut; each resource is named where names are short.
    #[test]
    fn each_resource_is_named_and_no_cause(
        parts in prop::collection::vec(option::of(prop::array::uniform4(option::of(any::<u64>()))), 0..5),
        pods in prop_oneof![prop::array::uniform5("ckb-[0-9]"), prop::array::uniform5("[ckb0-9]{1,253}")],
        works in prop_oneof![
            Just(BTreeMap::new()),
            prop::collection::btree_map("[A-D][a-d]{0,11}", (option::of(0.0..4.0_f64), any::<bool>()), 0..20),
        ],
        pressure in any::<bool>(),
        learned in 0_usize..80,
    ) {
        let contention = |[a, b, c, d]: [Option<u64>; 4]| Contention {
            cpu_wait_millipercent: a,
            throttled_millipercent: b,
            disk_wait_millipercent: c,
            retransmitted_millipercent: d,
        };
        let of: Vec<Told> = pods.iter().zip(&parts).map(|(name, of)| (name.as_str(), of.map(contention))).collect();
        let pressure = pressure.then_some(0);
        let none = contention([pressure, Some(0), pressure, Some(0)]);
        let work: Work = works.iter().map(|(name, (part, _))| (name.clone(), *part)).collect();
        let idle: Work = works.iter().filter(|(_, (_, old))| *old).map(|(name, _)| (name.clone(), Some(0.0))).collect();
        let mut waits = Waits::default();
        for _ in 0..learned {
            waits.learn(&[("ckb-0", Some(none))], &idle);
        }
        let beside = waits.beside(&of, &work);
        prop_assert!(beside.chars().count() <= MAX_BESIDE);
        let clauses: Vec<&str> = beside.split("; ").filter(|clause| !clause.is_empty()).collect();
        let places: Option<Vec<usize>> = clauses.iter().map(|clause| place(clause, &pods, &work)).collect();
        prop_assert!(places.is_some_and(|places| places.is_sorted()), "{}", beside);
        let said = clauses.iter().find_map(|clause| clause.strip_prefix("unknown: "));
        prop_assert_eq!(said.unwrap_or_default(), unknown(&of, &work).join(", "));
        if work.is_empty() && pods.iter().all(|pod| pod.len() < 8) {
            for resource in &RESOURCES {
                prop_assert!(beside.contains(resource.name) || beside.contains(resource.said), "{}", beside);
            }
        }
        for word in ["cause", "because", "due to", "since"] {
            prop_assert!(!beside.contains(word), "{}", beside);
        }
        let mut reversed = of.clone();
        reversed.reverse();
        prop_assert_eq!(waits.beside(&reversed, &work), beside);
    }
}
