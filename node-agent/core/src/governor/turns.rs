//! Who shares a slice with whom. No clock, no I/O.
//!
//! A target that has no time to spare does less while it is watched, and what is to be thought of that is an estimate
//! ([`crate::disturbance`]). So the sliced operations take turns where they can be halved: a slice is then as long again for
//! the same cost, every operation is recorded for as much of the time as before, and the target is disturbed half as much.

use super::sum;

/// Halves as unequal as this are not worth it: the lighter one leaves its part of the budget unused.
const BEGIN: f64 = 0.6;

/// And halves that have become as unequal as this are made anew.
const STAY: f64 = 0.7;

/// Which of the slices an operation is attached in, if it is sliced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Every slice.
    Every,
    /// Every other.
    Even,
    /// Those in between.
    Odd,
}

impl Turn {
    /// Whether that is one of them, of slices that are numbered.
    pub fn takes(self, slice: u64) -> bool {
        match self {
            Self::Every => true,
            Self::Even => slice.is_multiple_of(2),
            Self::Odd => !slice.is_multiple_of(2),
        }
    }

    /// The part of the slices that these are.
    pub(super) fn part(self) -> f64 {
        match self {
            Self::Every => 1.0,
            Self::Even | Self::Odd => 0.5,
        }
    }
}

/// Halves the sliced operations, given by their loads; the others have none. Keeps what was, as long as that will do: an
/// operation that is moved to and fro might never have its turn.
pub(super) fn halve(loads: &[Option<f64>], last: Option<&[Turn]>) -> Vec<Turn> {
    let all = sum(loads.iter().flatten().copied());
    let is_even = |turns: &[Turn], limit: f64| heaviest(loads, turns) <= limit * all;
    let halved = last.filter(|last| last.iter().any(|turn| *turn != Turn::Every));
    if let Some(last) = halved {
        let turn = |i: usize| last.get(i).copied().filter(|turn| *turn != Turn::Every);
        let kept = complete(loads, turn);
        if is_even(&kept, STAY) {
            return kept;
        }
    }
    let anew = complete(loads, |_| None);
    if is_even(&anew, BEGIN) {
        anew
    } else {
        every(loads)
    }
}

/// All in all slices.
pub(super) fn every(loads: &[Option<f64>]) -> Vec<Turn> {
    vec![Turn::Every; loads.len()]
}

/// The load of the heavier slices.
pub(super) fn heaviest(loads: &[Option<f64>], turns: &[Turn]) -> f64 {
    let load = |slice| {
        let sharing = loads
            .iter()
            .zip(turns)
            .filter(|(_, turn)| turn.takes(slice));
        sum(sharing.filter_map(|(load, _)| *load))
    };
    f64::max(load(0), load(1))
}

/// Gives those that have no turn yet to the lighter half, the heaviest first.
fn complete(loads: &[Option<f64>], given: impl Fn(usize) -> Option<Turn>) -> Vec<Turn> {
    let mut turns: Vec<Turn> = every(loads);
    let mut halves = [0.0, 0.0];
    let mut rest = Vec::new();
    for (i, load) in loads.iter().enumerate() {
        let Some(load) = load else { continue };
        match given(i) {
            Some(turn) => {
                turns[i] = turn;
                halves[usize::from(turn == Turn::Odd)] += load;
            }
            None => rest.push((i, *load)),
        }
    }
    rest.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    for (i, load) in rest {
        let odd = halves[1] < halves[0];
        turns[i] = if odd { Turn::Odd } else { Turn::Even };
        halves[usize::from(odd)] += load;
    }
    turns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Turn::*, *};

    /// TxnGet, TxnPut, Get, TxnCommit and IteratorNew of an import of blocks; the sixth is always attached.
    const IMPORT: [Option<f64>; 6] = [
        Some(0.42),
        Some(0.3),
        Some(0.21),
        Some(0.035),
        Some(0.035),
        None,
    ];

    fn halved(loads: &[f64], last: Option<&[Turn]>) -> Vec<Turn> {
        let loads: Vec<_> = loads.iter().copied().map(Some).collect();
        halve(&loads, last)
    }

    #[test]
    fn an_import_is_halved_evenly() {
        let turns = halve(&IMPORT, None);
        assert_eq!(turns, [Even, Odd, Odd, Even, Even, Every]);
        assert!((heaviest(&IMPORT, &turns) - 0.51).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_halved_is_not() {
        assert_eq!(halved(&[1.0], None), [Every]);
        assert_eq!(halved(&[0.9, 0.1], None), [Every; 2]);
        assert_eq!(halved(&[1.0; 3], None), [Every; 3]);
        assert_eq!(halved(&[], None), []);
        assert_eq!(halve(&[None, None], None), [Every; 2]);
    }

    #[test]
    fn a_half_stays_one_though_loads_change_and_more_come() {
        let last = [Even, Odd, Every];
        assert_eq!(halved(&[0.35, 0.65, 0.0], Some(&last))[..2], [Even, Odd]);
        assert_eq!(halved(&[0.5, 0.6, 0.2], Some(&last)), [Even, Odd, Even]);
        // Neither will these do as they are, nor otherwise.
        assert_eq!(halved(&[0.8, 0.1, 0.1], Some(&last)), [Every; 3]);
        // These will.
        let last = [Even, Even, Odd];
        assert_eq!(halved(&[0.5, 0.4, 0.1], Some(&last)), [Even, Odd, Odd]);
    }

    #[test]
    fn each_slice_is_somebodys() {
        assert_eq!(
            [0, 1, 2].map(|slice| Even.takes(slice)),
            [true, false, true]
        );
        assert_eq!(
            [0, 1, 2].map(|slice| Odd.takes(slice)),
            [false, true, false]
        );
        assert_eq!([0, 1, 2].map(|slice| Every.takes(slice)), [true; 3]);
    }

    proptest! {
        #[test]
        fn halves_are_even_and_stay(
            loads in prop::collection::vec(prop::option::of(0.0..1.0f64), 0..20),
            change in prop::collection::vec(0.9..1.1f64, 20),
        ) {
            let turns = halve(&loads, None);
            let all: f64 = loads.iter().flatten().sum();
            let limit = if turns.iter().all(|turn| *turn == Every) { 1.0 } else { 0.6 };
            prop_assert!(heaviest(&loads, &turns) <= limit * all + 1e-9);
            let others = loads.iter().zip(&turns).filter(|(load, _)| load.is_none());
            prop_assert!(others.into_iter().all(|(_, turn)| *turn == Every));
            if limit < 1.0 {
                let changed: Vec<_> = loads.iter().zip(change)
                    .map(|(load, change)| load.map(|load| load * change)).collect();
                prop_assert_eq!(halve(&changed, Some(&turns)), turns);
            }
        }
    }
}
