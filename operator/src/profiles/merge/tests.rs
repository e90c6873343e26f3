use ckb_probe_profiles::{Frame, PRUNED, ProfileMode, Stack};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;

use super::*;

fn pod(name: &str) -> PodReference {
    PodReference {
        namespace: "a".into(),
        name: name.into(),
        uid: format!("uid-{name}"),
    }
}

/// On-CPU time of these calls, in samples of 10 ms.
fn stacks(calls: &[(&str, u64)]) -> Profile {
    let mut profile = Profile::of(ProfileMode::Cpu);
    for (call, samples) in calls {
        profile.stacks.add(&Stack {
            frames: vec![
                Frame::user("start_thread", "libc.so.6"),
                Frame::user(call, "ckb"),
            ],
            thread: "verify_blocks",
            target: "somebody/else/altogether",
            weights: &[*samples, samples * 10_000_000],
            ..Stack::default()
        });
    }
    profile
}

fn part(profile: &Profile, samples: u64) -> ProfilePartSpec {
    ProfilePartSpec {
        asks: "0123456789abcdef".into(),
        probe: "flames".into(),
        pod: pod("says another"),
        container: "ckb".into(),
        mode: ProfileMode::Cpu,
        window: window(1_000),
        counts: ProfileCounts {
            samples,
            complete: samples - 1,
            lost: 1,
            millihertz: 99_000 - samples,
            cpu_microseconds: Some(10_000 * samples),
            sampled_microseconds: Some(9_000 * samples),
            ..ProfileCounts::default()
        },
        pprof: Some(ByteString(profile.to_pprof())),
        failure: None,
    }
}

fn window(second: i64) -> ProfileWindow {
    ProfileWindow {
        number: 7,
        began_at: MicroTime(Timestamp::from_second(second).unwrap()),
        milliseconds: 30_000,
    }
}

fn merger() -> Merger {
    Merger::new(ProfileMode::Cpu)
}

#[test]
fn parts_become_one_profile_with_each_target_by_itself() {
    let mut merger = merger();
    let read = stacks(&[("rocksdb_get_pinned_cf", 60)]);
    let run = stacks(&[
        ("ckb_script::verify::run", 30),
        ("rocksdb_get_pinned_cf", 10),
    ]);
    let mut second = part(&run, 40);
    second.window = window(998);
    second.window.milliseconds = 31_000;
    merger
        .add("u1", "n", &pod("ckb-1"), part(&read, 60))
        .unwrap();
    merger.add("u2", "m", &pod("ckb-0"), second).unwrap();
    let spec = merger.finish("p", "flames").unwrap();
    assert_eq!((&*spec.ckb_probe, &*spec.probe), ("p", "flames"));
    assert_eq!(spec.window.began_at, window(998).began_at);
    assert_eq!(spec.window.milliseconds, 31_000);
    assert_eq!(
        spec.counts,
        ProfileCounts {
            samples: 100,
            complete: 98,
            lost: 2,
            millihertz: 98_940,
            cpu_microseconds: Some(1_000_000),
            sampled_microseconds: Some(900_000),
            ..ProfileCounts::default()
        }
    );
    assert_eq!(spec.complete_percent, "98.0");
    assert_eq!(spec.sampled_percent.as_deref(), Some("90.0"));
    assert_eq!(spec.headline, "Cpu: rocksdb read 70 %, scripts 30 %");
    let shares: Vec<_> = (spec.headings.iter())
        .map(|share| (&*share.name, &*share.percent))
        .collect();
    assert_eq!(shares, [("rocksdb read", "70.0"), ("scripts", "30.0")]);
    let functions: Vec<_> = (spec.functions.iter())
        .map(|function| {
            (
                &*function.name,
                &*function.self_percent,
                &*function.total_percent,
            )
        })
        .collect();
    assert_eq!(
        functions,
        [
            ("start_thread", "0.0", "100.0"),
            ("rocksdb_get_pinned_cf", "70.0", "70.0"),
            ("ckb_script::verify::run", "30.0", "30.0"),
        ]
    );
    let targets: Vec<_> = (spec.targets.iter())
        .map(|target| (&*target.pod, &*target.node, target.counts.samples))
        .collect();
    assert_eq!(targets, [("ckb-0", "m", 40), ("ckb-1", "n", 60)]);
    assert_eq!(spec.pruned_percent, None);
    assert_eq!(spec.bytes, spec.pprof.0.len() as u64);

    let profile = Profile::from_pprof(&spec.pprof.0, &LIMITS).unwrap();
    let of = |target: &str| {
        profile
            .stacks
            .filter(|stack| stack.target == target)
            .total(0)
    };
    assert_eq!((of("a/ckb-0/ckb"), of("a/ckb-1/ckb")), (40, 60));
    assert_eq!(profile.stacks.total(0), 100);
}

#[test]
fn a_profile_goes_on_where_it_was_published() {
    let mut first = merger();
    let one = stacks(&[("a", 60)]);
    let other = stacks(&[("b", 40)]);
    first.add("u1", "n", &pod("ckb-0"), part(&one, 60)).unwrap();
    let merged = first.merged().clone();
    let published = first.finish("p", "flames").unwrap();
    let mut again = Merger::resume(published, merged).unwrap();
    assert!(again.merged().contains("u1"));
    again
        .add("u2", "m", &pod("ckb-1"), part(&other, 40))
        .unwrap();
    let late = again.finish("p", "flames").unwrap();

    let mut both = merger();
    both.add("u1", "n", &pod("ckb-0"), part(&one, 60)).unwrap();
    both.add("u2", "m", &pod("ckb-1"), part(&other, 40))
        .unwrap();
    assert_eq!(late, both.finish("p", "flames").unwrap());
}

#[test]
fn who_has_no_stacks_is_listed_with_the_reason_and_nothing_else_suffers() {
    let mut merger = merger();
    let failed = ProfilePartSpec {
        pprof: None,
        failure: Some("this kernel has no page_fault_user: 6.18 has".into()),
        ..part(&stacks(&[]), 1)
    };
    merger.add("u1", "n", &pod("ckb-0"), failed).unwrap();
    assert!(!merger.has_stacks());
    let good = part(&stacks(&[("a", 5)]), 5);
    merger.add("u2", "n", &pod("ckb-1"), good).unwrap();
    let spec = merger.finish("p", "flames").unwrap();
    let failure = spec.targets[0].failure.as_deref();
    assert_eq!(
        failure,
        Some("this kernel has no page_fault_user: 6.18 has")
    );
    assert_eq!(spec.counts.samples, 5);
    assert_eq!(spec.counts.millihertz, 98_995);
}

#[test]
fn hostile_parts_are_refused_and_leave_the_profile_as_it_was() {
    let good = stacks(&[("a", 5)]);
    let pprof = good.to_pprof();
    let with = |bytes: Vec<u8>| ProfilePartSpec {
        pprof: Some(ByteString(bytes)),
        ..part(&good, 5)
    };
    let bomb = {
        use std::io::Write;
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        out.write_all(&vec![0; 64 << 20]).unwrap();
        out.finish().unwrap()
    };
    assert!(bomb.len() < 100 << 10);
    let other_mode = Profile::of(ProfileMode::Memory).to_pprof();
    let refused = [
        with(vec![0; PPROF_LIMIT + 1]),
        with(bomb),
        with(pprof[..pprof.len() / 2].to_vec()),
        with(b"no pprof".to_vec()),
        with(other_mode),
        ProfilePartSpec {
            container: "../../etc".into(),
            ..part(&good, 5)
        },
    ];
    let mut merger = merger();
    merger
        .add("u0", "n", &pod("ckb-0"), part(&good, 5))
        .unwrap();
    for (number, hostile) in refused.into_iter().enumerate() {
        let uid = format!("hostile-{number}");
        let added = merger.add(&uid, "n", &pod("ckb-1"), hostile);
        assert!(added.is_err(), "{number}");
    }
    let spec = merger.finish("p", "flames").unwrap();
    assert_eq!(spec.counts.samples, 5);
    let profile = Profile::from_pprof(&spec.pprof.0, &LIMITS).unwrap();
    assert_eq!(profile.stacks.total(0), 5);
    let failure = spec.targets[1].failure.as_deref().unwrap();
    assert_eq!(
        failure,
        "it has 524289 bytes of stacks, and may have 524288"
    );
}

#[test]
fn a_container_has_a_name_that_kubernetes_takes() {
    let longest = "c".repeat(63);
    for name in ["c", "ckb-0", &longest] {
        assert!(is_name(name), "{name}");
    }
    let too_long = "c".repeat(64);
    for name in ["", "Ckb", "c/k", "c.k", "c k", "ü", &too_long] {
        assert!(!is_name(name), "{name}");
    }
}

#[test]
fn a_part_has_the_sample_types_of_what_it_says_it_is_of() {
    for &says in ProfileMode::ALL {
        for &mode in ProfileMode::ALL {
            let spec = ProfilePartSpec {
                mode: says,
                ..part(&Profile::of(mode), 5)
            };
            let added = Merger::new(says).add("u", "n", &pod("ckb-0"), spec);
            match added {
                Ok(()) => assert_eq!(says, mode),
                Err(error) => {
                    assert_ne!(says, mode);
                    assert!(
                        matches!(error, PartError::Mode(of) if of == says.as_str()),
                        "{error}"
                    );
                }
            }
        }
    }
}

#[test]
fn what_is_kept_between_parts_is_bounded() {
    let names: Vec<String> = (0..600).map(|number| format!("f{number}")).collect();
    let deep = {
        let mut profile = Profile::of(ProfileMode::Cpu);
        for last in &names {
            let mut frames = vec![Frame::user("f", "ckb"); 400];
            frames.push(Frame::user(last, "ckb"));
            profile.stacks.add(&Stack {
                frames,
                weights: &[1, 1],
                ..Stack::default()
            });
        }
        part(&profile, 600)
    };
    let mut merger = merger();
    for target in ["ckb-0", "ckb-1"] {
        merger.add(target, "n", &pod(target), deep.clone()).unwrap();
        let stacks = &merger.profile.as_ref().unwrap().stacks;
        let kept = stacks.filter(|stack| stack.frames[0].name != PRUNED);
        let frames: usize = kept.iter().map(|stack| stack.frames.len()).sum();
        assert!((FRAMES - 401..=FRAMES).contains(&frames), "{frames}");
    }
}

#[test]
fn two_parts_of_one_target_are_one_target() {
    let mut merger = merger();
    let one = stacks(&[("rocksdb_get_pinned_cf", 60)]);
    let failed = ProfilePartSpec {
        pprof: None,
        failure: Some("no room".into()),
        ..part(&one, 1)
    };
    for (uid, part) in [
        ("u1", part(&one, 60)),
        ("u2", failed),
        ("u3", part(&one, 40)),
    ] {
        merger.add(uid, "n", &pod("ckb-1"), part).unwrap();
    }
    merger.add("u4", "m", &pod("ckb-1"), part(&one, 1)).unwrap();
    let spec = merger.finish("p", "flames").unwrap();
    let told = spec.targets.iter();
    let told: Vec<_> = told
        .map(|one| (&*one.node, one.counts.samples, one.failure.as_deref()))
        .collect();
    assert_eq!(told, [("n", 100, None), ("m", 1, None)]);
    assert_eq!(spec.counts.samples, 101);
}

#[test]
fn an_object_of_ten_thousand_wide_targets_is_small_enough_to_be_stored() {
    let mut merger = merger();
    let long = "x".repeat(20_000);
    let mut numbers = part(&stacks(&[(&long, 5)]), 5);
    numbers.counts = ProfileCounts {
        samples: u64::MAX,
        complete: u64::MAX,
        guessed: u64::MAX,
        lost: u64::MAX,
        millihertz: u64::MAX,
        by_any_timer: true,
        cpu_microseconds: Some(u64::MAX),
        sampled_microseconds: Some(u64::MAX),
        resident_before: Some(u64::MAX),
        resident_after: Some(u64::MAX),
        anonymous_before: Some(u64::MAX),
        anonymous_after: Some(u64::MAX),
        in_step: u64::MAX,
    };
    numbers.failure = Some("€".repeat(1024));
    for number in 0..TARGETS + 3 {
        let uid = format!("u{number}");
        let pod = pod(&format!("ckb-{number:04}"));
        merger.add(&uid, "n", &pod, numbers.clone()).unwrap();
    }
    let spec = merger.finish("p", "flames").unwrap();
    assert_eq!((spec.targets.len(), spec.targets_omitted), (TARGETS, 3));
    assert_eq!(spec.counts.samples, i64::MAX as u64);
    assert_eq!(spec.complete_percent, "100.0");
    assert_eq!(spec.functions[1].name.chars().count(), TEXT + 1);
    let stored = serde_json::to_vec(&spec).unwrap().len();
    // What etcd takes by default, less what the object's metadata may be.
    assert!(stored < (3 << 20) / 2 - (256 << 10), "{stored} bytes");
}

fn any_counts() -> impl Strategy<Value = ProfileCounts> {
    let count = || prop_oneof![Just(0), 0..1_000_u64];
    let maybe = || prop::array::uniform6(prop::option::of(count()));
    (count(), count(), count(), count(), any::<bool>(), maybe()).prop_map(
        |(
            samples,
            complete,
            lost,
            millihertz,
            by_any_timer,
            [clock, sampled, before, after, own_before, own_after],
        )| ProfileCounts {
            samples,
            complete: complete.min(samples),
            guessed: samples / 3,
            lost,
            millihertz,
            by_any_timer,
            cpu_microseconds: clock,
            sampled_microseconds: sampled,
            resident_before: before,
            resident_after: after,
            anonymous_before: own_before,
            anonymous_after: own_after,
            in_step: samples / 2,
        },
    )
}

proptest! {
    #[test]
    fn parts_may_come_in_any_order_and_nothing_of_their_counts_is_lost(
        counts in prop::collection::vec(any_counts(), 1..5),
        turn in 0..5_usize,
    ) {
        let all: Vec<ProfilePartSpec> = counts.iter().zip(0..).map(|(counts, number)| ProfilePartSpec {
            counts: counts.clone(),
            window: window(1_000 - number),
            ..part(&stacks(&[("a", counts.samples)]), 1)
        }).collect();
        let merged = |order: &[usize]| {
            let mut merger = merger();
            for number in order {
                let uid = format!("u{number}");
                merger.add(&uid, "n", &pod(&uid), all[*number].clone()).unwrap();
            }
            merger.finish("p", "flames").unwrap()
        };
        let mut order: Vec<usize> = (0..all.len()).collect();
        let one = merged(&order);
        order.rotate_left(turn % all.len());
        order.reverse();
        prop_assert_eq!(&one, &merged(&order));
        let total = |of: fn(&ProfileCounts) -> u64| counts.iter().map(of).sum::<u64>();
        prop_assert_eq!(one.counts.samples, total(|one| one.samples));
        prop_assert_eq!(one.counts.complete, total(|one| one.complete));
        prop_assert_eq!(one.counts.guessed, total(|one| one.guessed));
        prop_assert_eq!(one.counts.lost, total(|one| one.lost));
        prop_assert_eq!(one.counts.by_any_timer, counts.iter().any(|one| one.by_any_timer));
        prop_assert_eq!(one.counts.cpu_microseconds.unwrap_or(0), total(|one| one.cpu_microseconds.unwrap_or(0)));
        prop_assert_eq!(one.counts.sampled_microseconds.unwrap_or(0), total(|one| one.sampled_microseconds.unwrap_or(0)));
        prop_assert_eq!(one.counts.resident_before.unwrap_or(0), total(|one| one.resident_before.unwrap_or(0)));
        prop_assert_eq!(one.counts.anonymous_after.unwrap_or(0), total(|one| one.anonymous_after.unwrap_or(0)));
        let seen = counts.iter().filter(|one| one.samples > 0).map(|one| one.millihertz).min();
        let slowest = seen.or(counts.iter().map(|one| one.millihertz).max());
        prop_assert_eq!(Some(one.counts.millihertz), slowest);
    }
}
