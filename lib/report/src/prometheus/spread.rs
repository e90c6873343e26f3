//! The buckets of a metric, which end at powers of two, in the finer buckets of [`Histogram`].
//!
//! Where in its bucket a value is nobody knows. Prometheus' `histogram_quantile` has them evenly in it, and so has this: the values of a bucket,
//! in the order in which they were counted, go to the places of van der Corput's sequence, so that any number of them that follow each
//! other is spread evenly, and what is counted in several intervals is spread together as it is in each. A quantile of this is in
//! the right bucket of the metric: of durations beyond the first bound it is more than half and less than twice what it was.

use ckb_probe_crds::Histogram;
use ckb_probe_figures::histogram::{SUBBUCKETS, bucket};

/// Places in a bucket, where it is not one of a power of two, which has [`SUBBUCKETS`].
const PLACES: u64 = 512;

/// Adds so many values between these bounds, of which so many were before, to a histogram. Without an end they are at the beginning.
pub fn spread(to: &mut Histogram, (begin, end): (u64, Option<u64>), before: u64, count: u64) {
    let Some(end) = end.filter(|end| *end > begin) else {
        to.add(bucket(begin), count);
        return;
    };
    let is_power = begin >= SUBBUCKETS && begin.is_power_of_two() && end == 2 * begin;
    let places = if is_power { SUBBUCKETS } else { PLACES };
    let place = |number: u64| {
        let reversed = (number % places).reverse_bits() >> (64 - places.ilog2());
        let offset = u128::from(end - begin) * u128::from(reversed) / u128::from(places);
        bucket(begin + offset as u64)
    };
    let each = count / places;
    for number in 0..places {
        to.add(place(number), each);
    }
    for number in 0..count % places {
        to.add(place(before.wrapping_add(number)), 1);
    }
}

#[cfg(test)]
mod tests {
    use ckb_probe_figures::histogram::bounds;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_value_stays_between_its_bounds_and_none_is_lost(
            power in 0_u32..42, before in any::<u64>(), count in 0_u64..5000, whole in any::<bool>(),
        ) {
            let begin = if whole { 0 } else { 1 << power };
            let end = 2 << power;
            let mut histogram = Histogram::default();
            spread(&mut histogram, (begin, Some(end)), before, count);
            prop_assert_eq!(histogram.count(), count);
            for (bucket, _) in histogram.iter() {
                let of = bounds(bucket);
                prop_assert!(of.start >= begin && of.start < end, "{of:?} of {begin}..{end}");
            }
        }

        #[test]
        fn what_is_counted_in_parts_is_spread_as_evenly_as_at_once(parts in prop::collection::vec(0_u64..40, 1..40)) {
            let (mut histogram, mut before) = (Histogram::default(), 0);
            for part in parts {
                spread(&mut histogram, (1024, Some(2048)), before, part);
                before += part;
            }
            let counts: Vec<u64> = histogram.iter().map(|(_, count)| count).collect();
            prop_assert_eq!(counts.iter().sum::<u64>(), before);
            for count in counts {
                prop_assert!(count.abs_diff(before / SUBBUCKETS) <= 1);
            }
        }
    }

    #[test]
    fn what_has_no_end_is_at_its_beginning() {
        let mut histogram = Histogram::default();
        spread(&mut histogram, (1 << 34, None), 3, 7);
        assert_eq!(histogram.iter().collect::<Vec<_>>(), [(bucket(1 << 34), 7)]);
    }
}
