//! How the namespaces share the order of a node, when they ask for more than it holds.

use std::{cmp::Reverse, collections::BinaryHeap};

use crate::limits::Limit;

/// What an order holds. The API server and etcd take an object of 1.5 MiB; the report in its status may have 1 MiB of it, and
/// the rest is for what Kubernetes itself notes.
pub const BYTES: usize = 448 << 10;

/// How many entries an order has at most: as the schema of the NodeProbe says.
pub const ENTRIES: usize = 1024;

/// An entry without what is of any length in it: the names of its fields, uids and a time.
const FIXED: usize = 400;

/// A container's id, which is unknown at first, and the names of its fields.
const CONTAINER: usize = 128;

/// What an order has room for.
#[derive(Debug, PartialEq)]
pub struct Entries {
    /// How many of the first entries of each namespace.
    pub fit: Vec<usize>,
    /// What the others are beyond.
    pub limit: Limit,
}

/// What an entry takes of an order: its bytes, as JSON, whatever ids its containers will have; and as much as makes sure that
/// there are no more than [`ENTRIES`].
pub fn weight<'a>(
    asked: usize,
    names: impl Iterator<Item = &'a String>,
    containers: impl Iterator<Item = &'a String>,
) -> usize {
    let containers: usize = containers.map(|name| CONTAINER + name.len()).sum();
    let bytes = FIXED + asked + containers + names.map(String::len).sum::<usize>();
    bytes.max(BYTES / ENTRIES)
}

/// How many of the entries of each namespace fit, by their weights, in their order. Who has taken least takes next, so that
/// nobody who asks for little goes without because others ask for much; and what comes after in a namespace takes nothing from
/// what came before.
pub fn entries(namespaces: Vec<Vec<usize>>) -> Entries {
    let limit = Limit::Order {
        bytes: BYTES,
        entries: ENTRIES,
    };
    let mut fit = vec![0; namespaces.len()];
    let mut left = BYTES;
    let turns = (0..namespaces.len()).map(|namespace| Reverse((0, namespace)));
    let mut turns: BinaryHeap<_> = turns.collect();
    while let Some(Reverse((taken, namespace))) = turns.pop() {
        let next = namespaces[namespace].get(fit[namespace]);
        let Some(weight) = next.filter(|weight| **weight <= left) else {
            // It has all that it asks for, or no room for its next.
            continue;
        };
        left -= weight;
        fit[namespace] += 1;
        turns.push(Reverse((taken + weight, namespace)));
    }
    Entries { fit, limit }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fit(namespaces: &[(usize, usize)]) -> Vec<usize> {
        let weights = namespaces
            .iter()
            .map(|(entries, weight)| vec![*weight; *entries]);
        entries(weights.collect()).fit
    }

    #[test]
    fn an_entry_weighs_what_is_of_any_length_in_it_and_no_less_than_its_share() {
        let text = |length| "x".repeat(length);
        let weight = |asked, names: &[String], containers: &[String]| {
            super::weight(asked, names.iter(), containers.iter())
        };
        assert_eq!(weight(0, &[], &[]), 448);
        let (names, containers) = ([text(2), text(3)], [text(1), text(7)]);
        assert_eq!(weight(100, &names, &containers), 400 + 100 + 5 + 256 + 8);
    }

    #[test]
    fn an_order_that_holds_everything_leaves_nothing_out() {
        assert_eq!(fit(&[(600, 448), (424, 448)]), [600, 424]);
        assert_eq!(fit(&[]), [0; 0]);
    }

    #[test]
    fn who_asks_for_little_has_it_however_much_others_ask() {
        assert_eq!(fit(&[(5_000, 448), (3, 448), (40, 448)]), [981, 3, 40]);
        // In bytes, not in entries.
        let few = [(100, 45_875), (5_000, 448)];
        let [large, small] = fit(&few)[..] else {
            panic!("two namespaces");
        };
        assert_eq!(large, 5);
        assert!((500..=520).contains(&small), "{small}");
    }

    #[test]
    fn an_entry_that_fits_no_order_keeps_nobody_else_out() {
        assert_eq!(fit(&[(1, BYTES + 1), (2, 448)]), [0, 2]);
    }

    proptest! {
        #[test]
        fn no_order_is_too_large_and_nobody_is_pushed_out(
            namespaces in prop::collection::vec(prop::collection::vec(BYTES / ENTRIES..20_000, 0..400), 1..8),
        ) {
            let Entries { fit, .. } = entries(namespaces.clone());
            let taken: Vec<usize> = namespaces.iter().zip(&fit).map(|(all, fit)| all[..*fit].iter().sum()).collect();
            prop_assert!(taken.iter().sum::<usize>() <= BYTES);
            prop_assert!(fit.iter().sum::<usize>() <= ENTRIES);
            // Whoever is cut has as much as anybody else, but for one entry.
            let most = taken.iter().max().copied().unwrap_or_default();
            for ((all, fit), taken) in namespaces.iter().zip(&fit).zip(&taken) {
                if let Some(next) = all.get(*fit) {
                    prop_assert!(taken + next + 20_000 > most, "{} and {} of {}", taken, next, most);
                }
            }
        }

        #[test]
        fn what_comes_after_takes_nothing_from_what_came_before(
            namespaces in prop::collection::vec(prop::collection::vec(BYTES / ENTRIES..20_000, 0..400), 1..8),
        ) {
            let before = entries(namespaces.clone());
            let mut more = namespaces;
            // Only of who was cut already: what others leave is for all.
            for (all, fit) in more.iter_mut().zip(&before.fit) {
                if *fit < all.len() {
                    all.push(448);
                }
            }
            prop_assert_eq!(entries(more), before);
        }
    }
}
