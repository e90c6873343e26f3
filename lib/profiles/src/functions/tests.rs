use super::*;
use crate::{ProfileMode, testing::stacks};

fn listed(functions: &[Function]) -> Vec<(&str, &str, u64, u64)> {
    (functions.iter())
        .map(|one| (&*one.name, &*one.module, one.itself, one.total))
        .collect()
}

#[test]
fn functions_are_listed_by_what_is_seen_of_themselves_and_below_them() {
    let some = stacks(
        ProfileMode::Cpu,
        &[
            "a;ckb|main;ckb|run;ckb|verify 1 30",
            // A function that calls itself is on the stack once.
            "a;ckb|main;ckb|run;ckb|run 2 50",
            "b;ckb|main;libc.so.6|run 1 15",
            // Stacks that were folded are one function, whichever part of CKB they belong to.
            "b;[pruned];scripts 1 3",
            "b;[pruned];rpc 1 2",
            // Nothing was seen of it by what is listed here.
            "b;ckb|main;ckb|idle 1 0",
        ],
    );
    let all = top(&some, 1, 10);
    assert_eq!(all.of, 100);
    assert_eq!(
        listed(&all.by_total),
        [
            ("main", "ckb", 0, 95),
            ("run", "ckb", 50, 80),
            ("verify", "ckb", 30, 30),
            ("run", "libc.so.6", 15, 15),
            ("[pruned]", "", 5, 5),
        ]
    );
    assert_eq!(
        listed(&all.by_self),
        [
            ("run", "ckb", 50, 80),
            ("verify", "ckb", 30, 30),
            ("run", "libc.so.6", 15, 15),
            ("[pruned]", "", 5, 5),
        ]
    );
    let two = top(&some, 1, 2);
    assert_eq!(two.by_total, all.by_total[..2]);
    assert_eq!(two.by_self, all.by_self[..2]);
    assert_eq!(two.of, 100);
}

#[test]
fn functions_seen_equally_are_in_the_order_of_their_names() {
    let some = stacks(ProfileMode::OffCpu, &["t;c 1", "t;a 1", "t;b 1"]);
    let all = top(&some, 0, 2);
    let expected = [("a", "", 1, 1), ("b", "", 1, 1)];
    assert_eq!(listed(&all.by_self), expected);
    assert_eq!(listed(&all.by_total), expected);
}
