//! Medians, and how far the values lie apart.

/// Some values of one quantity, summed up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The median: of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The least value.
    pub least: f64,
    /// The greatest value.
    pub most: f64,
    /// How many there are.
    pub values: usize,
}

impl Summary {
    /// That of a single value.
    pub fn of_one(value: f64) -> Self {
        Self {
            median: value,
            least: value,
            most: value,
            values: 1,
        }
    }
}

/// Sums up; None of nothing.
pub fn summary(values: impl IntoIterator<Item = f64>) -> Option<Summary> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median = if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    } else {
        sorted[middle]
    };
    Some(Summary {
        median,
        least: first,
        most: last,
        values: sorted.len(),
    })
}

/// The mean; None of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// `measured` over `base`, round by round: what drifts slower than a round lasts cancels out.
pub fn ratios(measured: &[f64], base: &[f64]) -> Vec<f64> {
    let pairs = measured.iter().zip(base);
    pairs.map(|(measured, base)| measured / base).collect()
}

/// How much more `measured` is than `base`, in percent, round by round.
pub fn percent_more(measured: &[f64], base: &[f64]) -> Vec<f64> {
    let ratios = ratios(measured, base);
    ratios.iter().map(|ratio| (ratio - 1.0) * 100.0).collect()
}

/// The order of so many things in a round: each round begins one further on, so that none is always the first.
pub fn rotated(things: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..things).map(move |index| (index + round) % things)
}

/// The order of things in a round: forth, then back. What changes slowly meanwhile is the same for things that stand on
/// both sides of another one as it is for that.
pub fn to_and_fro(things: usize, round: usize) -> impl Iterator<Item = usize> {
    let back = !round.is_multiple_of(2);
    (0..things).map(move |index| if back { things - 1 - index } else { index })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle_or_between_the_two_in_the_middle() {
        let odd = summary([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.least, odd.most), (2.0, 1.0, 3.0));
        let even = summary([4.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((even.median, even.values), (3.0, 4));
        assert_eq!(summary([]), None);
    }

    #[test]
    fn a_drift_of_the_machine_does_not_show_in_paired_figures() {
        let base = [1.0, 2.0, 4.0];
        let measured = [1.1, 2.2, 4.4];
        for percent in percent_more(&measured, &base) {
            assert!((percent - 10.0).abs() < 1e-9, "{percent}");
        }
    }

    #[test]
    fn every_round_has_everything_once_and_another_beginning() {
        assert_eq!(rotated(3, 0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(rotated(3, 4).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(to_and_fro(3, 4).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(to_and_fro(3, 1).collect::<Vec<_>>(), [2, 1, 0]);
    }
}
