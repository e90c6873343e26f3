//! How namespaces share what a node has once for all of them.
//!
//! Nobody knows who comes next, and what somebody has is not taken away again: whoever comes and goes would have others begin anew
//! each time. So who has much leaves as much for others. (Shared memory of switches is divided like that: Choudhury and Hahne,
//! *Dynamic queue length thresholds*, 1998.)

use std::collections::{BTreeMap, BTreeSet};

/// Whether a namespace that has so much of a pool may take so much more, where so much is left for all: it may have as much as it
/// leaves. One that is alone can have half of the pool, the next half of what that leaves; so whoever has nothing gets something for
/// as long as anything is left.
pub fn may_take(held: usize, wanted: usize, left: usize) -> bool {
    wanted <= left && held.saturating_add(wanted) <= left
}

/// The same, of what its holders are known by.
pub fn may_take_one<'a>(
    holders: impl Iterator<Item = &'a str>,
    namespace: &str,
    pool: usize,
) -> bool {
    let (mut held, mut all) = (0, 0);
    for holder in holders {
        all += 1;
        held += usize::from(holder == namespace);
    }
    may_take(held, 1, pool.saturating_sub(all))
}

/// How much of a pool each one may have that takes as it goes, by the namespace, where namespaces have so many each: equal shares of
/// the pool for the namespaces and one more, that may come, and of a namespace's for its own; no more than `most`.
pub fn of_each<'a>(
    holders: impl Iterator<Item = &'a str>,
    pool: usize,
    most: usize,
) -> BTreeMap<&'a str, usize> {
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for namespace in holders {
        *shares.entry(namespace).or_default() += 1;
    }
    let share = pool / (shares.len() + 1);
    for each in shares.values_mut() {
        *each = (share / (*each).max(1)).min(most);
    }
    shares
}

/// The number of a namespace among those that have one: what it has already, or the lowest that nobody has.
pub fn number_of<'a>(
    numbered: impl Iterator<Item = (&'a str, u32)> + Clone,
    namespace: &str,
) -> u32 {
    let own = numbered.clone().find(|(holder, _)| *holder == namespace);
    if let Some((_, number)) = own {
        return number;
    }
    let taken: BTreeSet<u32> = numbered.map(|(_, number)| number).collect();
    (0..).find(|number| !taken.contains(number)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn who_is_alone_has_half_and_who_comes_next_half_of_the_rest() {
        let mut holders: Vec<&str> = Vec::new();
        for namespace in ["a", "b", "c", "d", "e"] {
            while may_take_one(holders.iter().copied(), namespace, 16) {
                holders.push(namespace);
            }
        }
        let held = |name| holders.iter().filter(|holder| **holder == name).count();
        assert_eq!(["a", "b", "c", "d", "e"].map(held), [8, 4, 2, 1, 1]);
    }

    #[test]
    fn what_is_taken_as_it_goes_is_shared_by_namespaces_and_then_by_who_they_have() {
        let holders = ["few", "many", "many", "many"];
        let shares = of_each(holders.into_iter(), 450, 96);
        assert_eq!(shares, BTreeMap::from([("few", 96), ("many", 50)]));
        assert_eq!(of_each([].into_iter(), 450, 96), BTreeMap::new());
    }

    #[test]
    fn a_namespace_has_one_number_and_no_two_have_the_same() {
        let mut holders: Vec<(&str, u32)> = Vec::new();
        for namespace in ["a", "b", "a", "c"] {
            let number = number_of(holders.iter().copied(), namespace);
            holders.push((namespace, number));
        }
        assert_eq!(holders, [("a", 0), ("b", 1), ("a", 0), ("c", 2)]);
        holders.retain(|(namespace, _)| *namespace != "b");
        assert_eq!(number_of(holders.iter().copied(), "d"), 1);
    }

    /// What happens to a pool: a namespace wants one more, or gives one back.
    fn happenings() -> impl Strategy<Value = Vec<(usize, bool)>> {
        prop::collection::vec((0..6_usize, prop::bool::weighted(0.7)), 0..200)
    }

    proptest! {
        #[test]
        fn whoever_has_nothing_gets_something_and_nobody_more_than_half(
            pool in 2..64_usize,
            happened in happenings(),
        ) {
            let names = ["a", "b", "c", "d", "e", "f"];
            let mut holders: Vec<&str> = Vec::new();
            for (who, takes) in happened {
                let namespace = names[who];
                let left = pool - holders.len();
                if !takes {
                    if let Some(at) = holders.iter().position(|holder| *holder == namespace) {
                        holders.swap_remove(at);
                    }
                    continue;
                }
                let held = holders.iter().filter(|holder| **holder == namespace).count();
                let may = may_take_one(holders.iter().copied(), namespace, pool);
                prop_assert_eq!(may, held < left);
                prop_assert!(held > 0 || may || left == 0);
                if may {
                    holders.push(namespace);
                    prop_assert!(2 * (held + 1) <= pool + 1, "{} of {}", held + 1, pool);
                }
                prop_assert!(holders.len() <= pool);
            }
        }

        #[test]
        fn who_has_many_takes_nothing_from_who_has_few(
            counts in prop::collection::vec(1..40_usize, 1..8),
            more in 1..40_usize,
        ) {
            let names = ["a", "b", "c", "d", "e", "f", "g"];
            let holders = |counts: &[usize]| -> Vec<&str> {
                let all = names.iter().zip(counts.iter().copied());
                all.flat_map(|(name, count)| std::iter::repeat_n(*name, count)).collect()
            };
            let shares = |counts: &[usize]| -> Vec<usize> {
                let holders = holders(counts);
                of_each(holders.into_iter(), 512, 512).into_values().collect()
            };
            let before = shares(&counts);
            let taken: usize = before.iter().zip(&counts).map(|(each, count)| each * count).sum();
            prop_assert!(taken <= 512 / (counts.len() + 1) * counts.len());
            // However many more one of them has, the others have what they had.
            let mut grown = counts;
            grown[0] += more;
            let after = shares(&grown);
            prop_assert_eq!(&before[1..], &after[1..]);
        }
    }
}
