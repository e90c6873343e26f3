use ckb_probe_common as kernel;
use ckb_probe_crds::histogram;
use proptest::prelude::*;

use super::*;

#[test]
fn both_sides_have_as_many_buckets() {
    assert_eq!(kernel::BUCKETS, histogram::BUCKETS as usize);
}

#[test]
fn both_sides_agree_at_every_bucket_boundary() {
    for index in 0..histogram::BUCKETS {
        let bounds = histogram::bounds(index);
        assert_eq!(kernel::bucket(bounds.start), index);
        assert_eq!(kernel::bucket(bounds.end - 1), index);
    }
}

proptest! {
    #[test]
    fn both_sides_put_a_duration_into_the_same_bucket(bits in 0u32..=64, value: u64) {
        let value = if bits == 64 { value } else { value & ((1 << bits) - 1) };
        prop_assert_eq!(kernel::bucket(value), histogram::bucket(value));
    }

    #[test]
    fn a_cookie_gives_back_what_was_put_in(slot: u8, threshold in 0u64..Cookie::MAX_THRESHOLD_NS) {
        let cookie = Cookie::new(slot, Payload::PointedToBy5, threshold);
        prop_assert_eq!(cookie.slot(), u32::from(slot));
        prop_assert_eq!(cookie.payload(), Payload::PointedToBy5 as u8);
        prop_assert_eq!(cookie.slow_threshold_ns(), threshold);
    }

    #[test]
    fn a_threshold_that_does_not_fit_is_the_longest_that_does(excess: u64) {
        let threshold = Cookie::MAX_THRESHOLD_NS.saturating_add(excess);
        let cookie = Cookie::new(0, Payload::Unknown, threshold);
        prop_assert_eq!(cookie.slow_threshold_ns(), Cookie::MAX_THRESHOLD_NS);
    }
}
