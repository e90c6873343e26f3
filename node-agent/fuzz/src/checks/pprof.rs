//! Crafted profiles: the reader of pprof, on any bytes, and what is made of what it reads.

use ckb_probe_profiles::{
    Profile,
    categories::{split, summary},
    names::shorten,
    pprof::Limits,
    render::{By, View, folded},
};

/// Less than agents may send, so that what goes beyond is found soon.
const LIMITS: Limits = Limits {
    unzipped: 1 << 20,
    elements: 10_000,
    frames: 100_000,
};

/// Reads the bytes as a profile, and what was read once more.
pub fn check(bytes: &[u8]) {
    shorten(&String::from_utf8_lossy(bytes));
    let Ok(profile) = Profile::from_pprof(bytes, &LIMITS) else {
        return;
    };
    let stacks = &profile.stacks;
    let place = stacks.shown();
    let by_category: u128 = split(stacks, place)
        .iter()
        .map(|(_, sum)| u128::from(*sum))
        .sum();
    assert!(by_category >= u128::from(stacks.total(place)));
    summary(stacks);
    folded(
        stacks,
        View {
            place,
            by: By::Thread,
        },
    );
    let written = Profile::from_pprof(&profile.to_pprof(), &Limits::FILE).unwrap();
    assert_eq!(written.stacks.sorted(), stacks.sorted());
    let pruned = profile.prune(512);
    assert_eq!(pruned.profile.stacks.total(place), stacks.total(place));
}
