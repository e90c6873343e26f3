use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use ckb_probe_common::{self as kernel, Cookie};
use ckb_probe_figures::histogram;
use proptest::prelude::*;

use super::*;

/// Until what is on its way is there, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// Drops links, and waits until they are gone: a process that another test begins has copies of them until its exec.
pub(super) fn let_go(links: impl Into<Option<Links>>) {
    let links = links.into().unwrap();
    let ids = links.ids();
    assert!(!ids.is_empty());
    drop(links);
    let begun = Instant::now();
    while aya::programs::loaded_links().any(|link| ids.contains(&link.map_or(0, |link| link.id())))
    {
        assert!(begun.elapsed() < PATIENCE, "links {ids:?} are still there");
        sleep(Duration::from_millis(1));
    }
}

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

#[test]
fn a_maximum_is_of_its_epoch_only() {
    let held = kernel::maximum(0x1_0007, 1234);
    assert_eq!(kernel::maximum_of(7, held), Some(1234));
    assert_eq!(kernel::maximum_of(8, held), None);
    assert_eq!(
        kernel::maximum_of(7, kernel::maximum(7, u64::MAX)),
        Some(kernel::TIME_MASK)
    );
}

proptest! {
    #[test]
    fn both_sides_put_a_duration_into_the_same_bucket(bits in 0u32..=64, value: u64) {
        let value = if bits == 64 { value } else { value & ((1 << bits) - 1) };
        prop_assert_eq!(kernel::bucket(value), histogram::bucket(value));
    }

    #[test]
    fn a_cookie_gives_back_what_was_put_in(slot: u8, cause in 0..=kernel::MAX_CAUSE) {
        let family = FamilyArgument::Argument2;
        // All bits of its place.
        let cookie = Cookie::new(slot, Payload::PointedToBy4, family, cause, Group::Sliced);
        prop_assert_eq!(cookie.slot(), u32::from(slot));
        prop_assert_eq!(cookie.payload(), Payload::PointedToBy4 as u8);
        prop_assert_eq!(cookie.family(), family as u8);
        prop_assert_eq!(cookie.cause(), u32::from(cause));
        prop_assert_eq!(cookie.group(), Group::Sliced as u32);
        prop_assert!(cookie.is_sliced());
    }

    #[test]
    fn a_session_remembers_what_its_return_needs(
        began: u64,
        lasted in 0u64..1 << 47,
        slot in 0u32..512,
        cause in 0..=kernel::MAX_CAUSE,
    ) {
        let family = FamilyArgument::Argument1;
        let cookie = Cookie::new(7, Payload::PointedToBy4, family, cause, Group::Second);
        let session = kernel::Session::new(began, slot, cookie);
        prop_assert_ne!(session.0, 0);
        prop_assert_eq!(session.elapsed_ns(began.wrapping_add(lasted)), lasted);
        prop_assert_eq!(session.slot(), slot);
        let traits = session.traits();
        prop_assert_eq!(traits.payload(), cookie.payload());
        prop_assert_eq!(traits.cause(), cookie.cause());
        prop_assert_eq!(traits.group(), cookie.group());
    }
}
