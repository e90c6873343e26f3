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
        "38% of the CPU limit's periods throttled, usually 0% (pod ckb-1); as usual: TCP segments sent again; \
         unknown: waiting for a CPU, waiting for a disk"
    );
    let beside = waits.beside(&[("ckb-0", None), ("ckb-1", told(0, 0))], &Work::new());
    assert_eq!(
        beside,
        "as usual: throttling by the CPU limit, TCP segments sent again; unknown: throttling by the CPU limit of 1 of 2 targets, \
         waiting for a CPU, waiting for a disk, TCP segments sent again of 1 of 2 targets"
    );
}

#[test]
fn of_agents_that_do_not_tell_nothing_is_known_and_of_young_ones_not_what_is_usual() {
    let unknown = "unknown: throttling by the CPU limit, waiting for a CPU, waiting for a disk, TCP segments sent again";
    let silent: &[Told] = &[("ckb-0", None)];
    assert_eq!(after(64, silent).beside(silent, &Work::new()), unknown);
    assert_eq!(Waits::default().beside(&[], &Work::new()), unknown);
    let young = after(20, &[("ckb-0", told(0, 0))]);
    assert_eq!(
        young.beside(&[("ckb-0", told(90, 90))], &Work::new()),
        "not measured for long enough to say: throttling by the CPU limit, TCP segments sent again; \
         unknown: waiting for a CPU, waiting for a disk"
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
    let beside = |compaction, stall| {
        let beside = waits.beside(silent, &work(compaction, stall));
        beside.split("; unknown: ").next().unwrap().to_owned()
    };
    assert_eq!(
        beside(Some(1.8), Some(0.0)),
        "Compaction under way for 180% of the time, usually 2%; as usual: WriteStall"
    );
    assert_eq!(
        beside(Some(0.06), Some(0.0)),
        "as usual: Compaction, WriteStall"
    );
    assert_eq!(
        beside(Some(0.02), Some(0.4)),
        "WriteStall under way for 40% of the time, usually 0%; as usual: Compaction"
    );
    // What was not seen is not none.
    let beside = waits.beside(silent, &work(None, Some(0.0)));
    assert!(beside.ends_with(", Compaction"), "{beside}");
    let young = Waits::default().beside(silent, &work(Some(1.0), Some(0.0)));
    assert!(
        young.starts_with("not measured for long enough to say: Compaction, WriteStall; unknown: "),
        "{young}"
    );
}

proptest! {
    /// Whatever agents tell, each resource is named, no cause is, and it fits.
    #[test]
    fn each_resource_is_named_and_no_cause(
        parts in prop::collection::vec(option::of(prop::array::uniform4(option::of(any::<u64>()))), 0..5),
        learned in 0_usize..80,
    ) {
        let contention = |[a, b, c, d]: [Option<u64>; 4]| Contention {
            cpu_wait_millipercent: a,
            throttled_millipercent: b,
            disk_wait_millipercent: c,
            retransmitted_millipercent: d,
        };
        let names: Vec<String> = (0..5).map(|number| format!("ckb-{number}")).collect();
        let of: Vec<Told> = names.iter().zip(&parts).map(|(name, of)| (name.as_str(), of.map(contention))).collect();
        let beside = after(learned, &[("ckb-0", told(0, 0))]).beside(&of, &Work::new());
        prop_assert!(beside.chars().count() <= MAX_BESIDE);
        for resource in &RESOURCES {
            prop_assert!(beside.contains(resource.name) || beside.contains(resource.said), "{}", beside);
        }
        for word in ["cause", "because", "due to", "since"] {
            prop_assert!(!beside.contains(word), "{}", beside);
        }
        let mut reversed = of.clone();
        reversed.reverse();
        prop_assert_eq!(after(learned, &[("ckb-0", told(0, 0))]).beside(&reversed, &Work::new()), beside);
    }
}
