//! Which blocks are told one by one, and with whom that called.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use ckb_probe_crds::{KindSpec, kinds::chain::ChainProbe};

use super::{blocks, every_block, heights, node, number};
use crate::way::{in_every_way, lost, total};

/// Stacks are unwound as they come, and nobody waits for long: in an emulated machine the first ones are not there in time.
const PATIENCE: Duration = Duration::from_secs(120);

/// In so long they are, where the target's files have been read.
const UNWINDING: Duration = Duration::from_millis(200);

#[test]
fn only_blocks_as_slow_as_the_threshold_are_listed_and_all_are_counted() {
    let threshold = Duration::from_millis(20).into();
    let slow = ChainProbe {
        threshold,
        ..ChainProbe::default()
    };
    in_every_way(slow, |way| {
        let mut node = node();
        let mut session = way.attach(node.pid());
        node.tell("accept 1 30 1");
        node.tell("accept 31 33 1 20000");
        let events = session.events();
        session.read().unwrap();
        let slow: Vec<u64> = heights(&events, "accepted");
        // Where the machine is busy, others may be as slow.
        assert!(slow.ends_with(&[31, 32, 33]), "{slow:?}");
        for event in &events {
            assert!(
                number(event, "durationNanoseconds") >= 20_000_000,
                "{event}"
            );
        }
        assert_eq!(blocks(total(&session, "accepted")), [33, 33]);
    });
}

#[test]
fn thresholds_that_differ_are_attached_once_and_each_is_told_what_is_as_slow() {
    let at = |threshold: Duration| {
        let threshold = threshold.into();
        let asked = ChainProbe {
            threshold,
            ..ChainProbe::default()
        };
        KindSpec::from(asked)
    };
    in_every_way(every_block(), |way| {
        let mut node = node();
        let questions = [
            at(Duration::from_millis(50)),
            at(Duration::ZERO),
            at(Duration::from_millis(20)),
        ];
        let mut session = way.ask_all(questions, node.pid()).unwrap();
        node.tell("accept 1 5 1");
        node.tell("accept 6 8 1 25000");
        node.tell("accept 9 9 1 60000");
        let events = session.events();
        session.read().unwrap();
        let of = |probe: &str| -> Vec<u64> {
            let own = events.iter().filter(|event| event["probe"] == probe);
            own.map(|event| number(event, "height")).collect()
        };
        assert!(of("probe-0").ends_with(&[9]) && of("probe-0").len() < 9);
        assert_eq!(of("probe-1"), (1..=9).collect::<Vec<_>>());
        assert!(of("probe-2").ends_with(&[6, 7, 8, 9]));
        let probes = session.instance().probes.iter();
        let groups: BTreeSet<_> = probes
            .flat_map(|probe| &probe.series)
            .map(|series| series.subscription.group)
            .collect();
        assert_eq!(groups.len(), 1);
    });
}

#[test]
fn slow_blocks_are_told_with_the_callers_of_what_took_longest_in_them() {
    let with_stacks = ChainProbe {
        threshold: Duration::from_millis(8).into(),
        stacks: true,
        ..ChainProbe::default()
    };
    in_every_way(with_stacks, |way| {
        let mut node = node();
        let mut session = way.attach(node.pid());
        let end = Instant::now() + PATIENCE;
        let (mut without, mut otherwise, mut told) = (0, 0, BTreeSet::new());
        for height in (1..).step_by(2) {
            node.tell(&format!("sync {height} 5000"));
            node.tell(&format!("accept {0} {0} 1 9000", height + 1));
            thread::sleep(UNWINDING);
            let events = session.events();
            let [synced, slept] = &events[..] else {
                panic!("{events:?}");
            };
            // By whom the file was synced; of a block without a long call, by whom it was committed.
            let expected = [
                (synced, "FileSync", "rocksdb_transaction_commit"),
                (slept, "TxnCommit", "main"),
            ];
            for (event, of, caller) in expected {
                if event["stackOf"] == of {
                    let stack = event["stack"].to_string();
                    assert!(stack.contains(caller) && stack.contains("main"), "{event}");
                    told.insert(of);
                    continue;
                }
                // Where a kernel preempts whoever copies it, there may be no room for it, and where a machine is slow, it may come too late:
                // both are counted. There another call may have taken longest, too.
                without += u64::from(event["stackOf"].is_null());
                otherwise += 1;
            }
            session.read().unwrap();
            if told.len() == expected.len() {
                break;
            }
            assert!(Instant::now() < end, "{told:?} {events:?}");
        }
        assert!((without..=otherwise).contains(&lost(&session)));
    });
}
