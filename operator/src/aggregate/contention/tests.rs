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
        waits.learn(of);
    }
    waits
}

#[test]
fn what_is_more_than_usual_is_told_with_what_is_usual_and_what_is_unknown() {
    let waits = after(64, &[("ckb-0", told(0, 0)), ("ckb-1", told(0, 0))]);
    let beside = waits.beside(&[("ckb-0", told(0, 0)), ("ckb-1", told(38, 0))]);
    assert_eq!(
        beside,
        "38% of the CPU limit's periods throttled, usually 0% (pod ckb-1); as usual: TCP segments sent again; \
         unknown: waiting for a CPU, waiting for a disk"
    );
    let beside = waits.beside(&[("ckb-0", None), ("ckb-1", told(0, 0))]);
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
    assert_eq!(after(64, silent).beside(silent), unknown);
    assert_eq!(Waits::default().beside(&[]), unknown);
    let young = after(20, &[("ckb-0", told(0, 0))]);
    assert_eq!(
        young.beside(&[("ckb-0", told(90, 90))]),
        "not measured for long enough to say: throttling by the CPU limit, TCP segments sent again; \
         unknown: waiting for a CPU, waiting for a disk"
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
        let beside = after(learned, &[("ckb-0", told(0, 0))]).beside(&of);
        prop_assert!(beside.chars().count() <= MAX_BESIDE);
        for resource in &RESOURCES {
            prop_assert!(beside.contains(resource.name) || beside.contains(resource.said), "{}", beside);
        }
        for word in ["cause", "because", "due to", "since"] {
            prop_assert!(!beside.contains(word), "{}", beside);
        }
        let mut reversed = of.clone();
        reversed.reverse();
        prop_assert_eq!(after(learned, &[("ckb-0", told(0, 0))]).beside(&reversed), beside);
    }
}
