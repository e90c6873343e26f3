use proptest::prelude::*;

use super::*;
use crate::{
    categories,
    pprof::Limits,
    testing::{any_mode, any_profile, any_stacks, stacks},
};

fn merged(one: &Profile, other: &Profile) -> Profile {
    let mut sum = one.clone();
    sum.merge(other).unwrap();
    sum
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn profiles_merge_in_any_order((a, b, c) in any_mode().prop_flat_map(|mode| (any_profile(mode), any_profile(mode), any_profile(mode)))) {
        prop_assert_eq!(merged(&a, &b), merged(&b, &a));
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
    }

    #[test]
    fn nothing_changes_nothing((mode, a) in any_mode().prop_flat_map(|mode| (Just(mode), any_profile(mode)))) {
        prop_assert_eq!(merged(&a, &Profile::of(mode)), a.clone());
        prop_assert_eq!(merged(&Profile::of(mode), &a), a);
    }

    #[test]
    fn the_sum_weighs_what_its_parts_weigh((a, b) in (any_stacks(ProfileMode::Cpu), any_stacks(ProfileMode::Cpu))) {
        let mut sum = a.clone();
        sum.merge(&b).unwrap();
        for place in [0, 1] {
            prop_assert_eq!(sum.total(place), plus(a.total(place), b.total(place)));
        }
    }

    #[test]
    fn what_is_pruned_weighs_what_it_weighed(
        (profile, limit) in any_mode().prop_flat_map(any_profile).prop_flat_map(|profile| {
            let size = profile.to_pprof().len();
            (Just(profile), 0..size + 10)
        }),
    ) {
        let pruned = profile.prune(limit);
        let (before, after) = (&profile.stacks, &pruned.profile.stacks);
        for place in 0..before.types().len() {
            prop_assert_eq!(after.total(place), before.total(place));
        }
        let least = profile.prune(0).bytes.len();
        prop_assert!(pruned.bytes.len() <= limit.max(least));
        prop_assert_eq!(Profile::from_pprof(&pruned.bytes, &Limits::PART).unwrap(), pruned.profile);
    }
}

/// On-CPU time of these calls, in samples of 10 ms.
fn calls(calls: &[(u32, u64)]) -> Profile {
    let mut profile = Profile::of(ProfileMode::Cpu);
    for (call, samples) in calls {
        profile.stacks.add(&Stack {
            frames: vec![
                Frame::user("start_thread", "libc.so.6"),
                Frame::user(&format!("f{call}"), "ckb"),
            ],
            thread: "verify_blocks",
            target: "default/ckb-0/ckb",
            weights: &[*samples, samples * 10_000_000],
            ..Stack::default()
        });
    }
    profile
}

/// Fewer than so many calls, of so many functions at most.
fn varied(functions: u32, most: usize) -> impl Strategy<Value = Profile> {
    let weights = prop::collection::vec((0..functions, 1..1000_u64), 1..most);
    weights.prop_map(|weights| calls(&weights))
}

proptest! {
    #[test]
    fn what_is_too_much_is_folded_and_no_weight_is_lost(
        whole in varied(40, 60),
        frames in 0..80_usize,
    ) {
        let mut light = whole.clone();
        light.lighten(frames);
        for place in 0..2 {
            prop_assert_eq!(light.stacks.total(place), whole.stacks.total(place));
        }
        prop_assert_eq!(categories::split(&light.stacks, 0), categories::split(&whole.stacks, 0));
        let is_pruned = |stack: &Stack| stack.frames[0].name == PRUNED;
        let kept = light.stacks.filter(|stack| !is_pruned(stack));
        let depth: usize = kept.iter().map(|stack| stack.frames.len()).sum();
        prop_assert!(depth <= frames || kept.len() == whole.stacks.len());
        let heaviest_folded = whole.stacks.iter()
            .filter(|stack| kept.iter().all(|one| one != *stack))
            .map(|stack| stack.weights[1])
            .max();
        let lightest_kept = kept.iter().map(|stack| stack.weights[1]).min();
        prop_assert!(heaviest_folded.is_none_or(|folded| lightest_kept.is_none_or(|kept| folded <= kept)));
        prop_assert_eq!(light.stacks.pruned(), whole.stacks.total(1) - kept.total(1));
        let order = light.stacks.clone();
        light.lighten(frames);
        prop_assert_eq!(light.stacks, order);
    }

    #[test]
    fn what_takes_too_much_memory_takes_less_and_weighs_the_same(
        whole in varied(400, 400),
        bytes in 1_000..100_000_usize,
    ) {
        let mut light = whole.clone();
        light.lighten_to(bytes);
        prop_assert!(light.stacks.bytes() <= bytes, "{}", light.stacks.bytes());
        prop_assert!(light == whole || whole.stacks.bytes() > bytes);
        for place in 0..2 {
            prop_assert_eq!(light.stacks.total(place), whole.stacks.total(place));
        }
    }
}

#[test]
fn equal_stacks_are_one_and_a_thread_s_name_tells_them_apart() {
    let some = stacks(
        ProfileMode::Cpu,
        &[
            "a;main;run 1 10",
            "b;main;run 1 10",
            "a;main;run 2 20",
            "a;main 0 0",
        ],
    );
    assert_eq!(
        some,
        stacks(ProfileMode::Cpu, &["b;main;run 1 10", "a;main;run 3 30"])
    );
    assert_eq!((some.len(), some.total(0), some.total(1)), (2, 4, 40));
    assert!(!some.is_empty() && Stacks::of(ProfileMode::Cpu).is_empty());
    let order: Vec<&str> = some.sorted().iter().map(|stack| stack.thread).collect();
    assert_eq!(order, ["a", "b"]);
}

#[test]
fn profiles_differ_where_anything_of_them_does() {
    let some = stacks(ProfileMode::Cpu, &["a;main 1 10"]);
    for other in [
        "b;main 1 10",
        "a;run 1 10",
        "a;ckb|main 1 10",
        "a;main 1 11",
    ] {
        assert_ne!(some, stacks(ProfileMode::Cpu, &[other]), "{other}");
    }
    assert_ne!(
        Stacks::of(ProfileMode::Cpu),
        Stacks::of(ProfileMode::OffCpu)
    );
    let showing = |shown| Stacks::new(ProfileMode::Cpu.sample_types(), shown);
    assert_ne!(showing(0), showing(1));
    assert_eq!(showing(7).shown(), 1, "there is no other");
    assert_eq!(Stacks::new(Vec::new(), 1).shown(), 0);
}

#[test]
fn weights_that_are_missing_are_none_and_those_too_many_count_for_nothing() {
    let some = stacks(
        ProfileMode::Cpu,
        &["a;main 1", "b;main 0 5", "c;main 2 10 7", "d;main 0 0 7"],
    );
    assert_eq!((some.len(), some.total(0), some.total(1)), (3, 3, 15));
    assert!(some.iter().all(|stack| stack.weights.len() == 2));
}

#[test]
fn a_weight_stops_at_the_limit_and_does_not_begin_again() {
    let limit = format!("a;main {WEIGHT_LIMIT}");
    let some = stacks(ProfileMode::OffCpu, &[&limit, "a;main 1"]);
    assert_eq!(some.total(0), WEIGHT_LIMIT);
}

#[test]
fn profiles_of_different_modes_do_not_merge() {
    let error = Stacks::of(ProfileMode::Cpu)
        .merge(&Stacks::of(ProfileMode::OffCpu))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "a profile of samples/count and cpu/nanoseconds and one of wait/nanoseconds cannot be put together: take two of the same mode"
    );
}

#[test]
fn a_window_spans_from_the_first_to_the_last() {
    let window = |start_ns, duration_ns| Window {
        start_ns,
        duration_ns,
    };
    assert_eq!(window(10, 5).spanning(window(12, 10)), window(10, 12));
    assert_eq!(window(10, 50).spanning(window(12, 10)), window(10, 50));
    assert_eq!(Window::default().spanning(window(12, 10)), window(12, 10));
}

#[test]
fn a_mode_is_told_by_its_types_and_its_name() {
    for &mode in ProfileMode::ALL {
        assert_eq!(Stacks::of(mode).mode(), Some(mode));
        assert_eq!(mode.as_str().parse(), Ok(mode));
    }
    assert_eq!("off-cpu".parse(), Ok(ProfileMode::OffCpu));
    assert_eq!(
        Stacks::new(vec![SampleType::new("alloc", "count")], 0).mode(),
        None
    );
    let shown = ProfileMode::ALL.iter();
    let shown = shown.map(|mode| mode.sample_types().remove(mode.shown()).to_string());
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "cpu/nanoseconds",
            "wait/nanoseconds",
            "space/bytes",
            "alloc_space/bytes",
            "threads/count",
            "duration/nanoseconds"
        ]
    );
}

/// Three thousand stacks, of names that do not compress well.
fn large() -> Profile {
    let mut profile = Profile::of(ProfileMode::Cpu);
    let mut noise = 1_u64;
    let mut next = || {
        noise = noise
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        noise >> 33
    };
    for number in 0..3_000_u64 {
        let names: Vec<String> = (0..8)
            .map(|_| format!("rocksdb_get_{:x}", next() % 3000))
            .collect();
        let weight = 1 + 1_000_000 / (number + 1);
        profile.stacks.add(&Stack {
            frames: names.iter().map(|name| Frame::user(name, "ckb")).collect(),
            thread: "verify_blocks",
            target: if number % 2 == 0 {
                "default/a"
            } else {
                "default/b"
            },
            weights: &[weight, 10 * weight],
            ..Stack::default()
        });
    }
    profile
}

#[test]
fn the_lightest_stacks_go_and_what_is_said_by_heading_and_target_stays() {
    let large = large();
    let limit = large.to_pprof().len() / 3;
    let pruned = large.prune(limit);
    assert!(
        pruned.bytes.len() <= limit,
        "{} of {limit}",
        pruned.bytes.len()
    );
    assert!(
        pruned.bytes.len() >= limit * 9 / 10,
        "{} of {limit}",
        pruned.bytes.len()
    );
    let (before, after) = (&large.stacks, &pruned.profile.stacks);
    assert_eq!(categories::split(after, 1), categories::split(before, 1));
    for target in ["default/a", "default/b"] {
        let of = |stacks: &Stacks| stacks.filter(|stack| stack.target == target).total(1);
        assert!(of(before) > 0);
        assert_eq!(of(after), of(before));
    }
    let (folded, kept): (Vec<Stack>, Vec<Stack>) = after
        .sorted()
        .into_iter()
        .partition(|stack| stack.frames[0].name == PRUNED);
    assert_eq!(folded.len(), 2);
    assert_eq!(kept.len() + pruned.folded, before.len());
    assert_eq!(kept, before.sorted()[..kept.len()]);
    // Where not even one for each category and target fits, all are one.
    let least = large.prune(0);
    let all = stacks(
        ProfileMode::Cpu,
        &[&format!(
            ";[pruned] {} {}",
            before.total(0),
            before.total(1)
        )],
    );
    assert_eq!((least.profile.stacks, least.folded), (all, before.len()));
}

#[test]
fn what_was_pruned_merges_and_is_pruned_again() {
    let pruned = large().prune(12_000).profile;
    let mut sum = pruned.clone();
    sum.merge(&pruned).unwrap();
    let again = sum.prune(6_000);
    assert!(again.bytes.len() <= 6_000);
    assert_eq!(again.profile.stacks.total(1), 2 * large().stacks.total(1));
    let folded = again
        .profile
        .stacks
        .iter()
        .filter(|stack| stack.frames[0].name == PRUNED);
    assert_eq!(folded.count(), 2);
}

#[test]
fn names_are_changed_and_what_becomes_equal_is_one() {
    let some = stacks(ProfileMode::Cpu, &["a;x<A>::f 1 10", "a;x<B>::f 2 20"]);
    let renamed = some.renamed(|name| name.replace(['A', 'B'], "_"));
    assert_eq!(renamed, stacks(ProfileMode::Cpu, &["a;x<_>::f 3 30"]));
    assert_eq!(
        renamed.map(|stack| stack.thread = ""),
        stacks(ProfileMode::Cpu, &[";x<_>::f 3 30"])
    );
}
