//! Who is told of which windows, without a kernel.

use std::sync::Mutex;

use ckb_probe_profiles::{Stack, Window};

use super::{
    super::stacks::{self, Call, Place, Sample, State, TRUNCATED},
    shared::{Registry, Sampled, Totals},
    told::Told,
    *,
};

const CPU: ProfileMode = ProfileMode::Cpu;

fn seen(mode: ProfileMode, weight: u64) -> Weighed {
    Weighed {
        mode,
        weight,
        samples: weight / 10,
        complete: weight / 20,
    }
}

fn finished(number: u64) -> Finished {
    Finished {
        mode: CPU,
        window: ProfileWindow {
            number,
            began_at: k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(
                k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            ),
            milliseconds: 1_000,
        },
        counts: ProfileCounts {
            lost: 1,
            ..ProfileCounts::default()
        },
        stacks: Ok(Arc::new(Profile::of(ckb_probe_profiles::Mode::Cpu))),
    }
}

fn told(receiver: &Receiver<Finished>) -> Vec<u64> {
    receiver.try_iter().map(|one| one.window.number).collect()
}

#[test]
fn totals_add_up_and_the_last_window_is_how_things_stand() {
    let mut totals = Totals::default();
    totals.add(
        CPU,
        &[("scripts", seen(CPU, 100)), ("rpc", seen(CPU, 40))].into(),
        2,
    );
    let before = totals.clone();
    totals.add(CPU, &[("scripts", seen(CPU, 60))].into(), 0);
    let sums = |totals: &Totals, heading| {
        let sums = totals.rows[&(CPU, heading)];
        (sums.all.weight, sums.last.weight)
    };
    assert_eq!(sums(&totals, "scripts"), (160, 60));
    assert_eq!(sums(&totals, "rpc"), (40, 0), "it is not there now");
    assert_eq!(totals.lost, 2);
    // What another mode does leaves this one as it is.
    totals.add(ProfileMode::Threads, &BTreeMap::new(), 0);
    assert_eq!(sums(&totals, "scripts"), (160, 60));
    assert_ne!(before, totals);
}

#[test]
fn a_window_goes_on_while_what_measures_the_process_is_replaced() {
    let sampled = Arc::<Sampled>::default();
    let mut first = Enrolled::of(&sampled, Some(0.01));
    let heard = first.receiver();
    sampled.finish(finished(1), &[("scripts", seen(CPU, 100))].into());
    assert_eq!(told(&heard), [1]);
    assert_eq!(first.totals().rows[&(CPU, "scripts")].all.weight, 100);
    drop(first);
    assert!(!sampled.is_over(), "somebody may come yet");
    // Nobody is there, but whoever was is told, as where the process has ended.
    sampled.finish(finished(2), &[("scripts", seen(CPU, 30))].into());
    assert_eq!(told(&heard), [2]);
    let mut second = Enrolled::of(&sampled, None);
    let then = second.receiver();
    sampled.finish(finished(3), &[("scripts", seen(CPU, 5))].into());
    assert_eq!((told(&heard), told(&then)), (vec![], vec![3]));
    let sums = second.totals().rows[&(CPU, "scripts")];
    assert_eq!((sums.all.weight, sums.last.weight), (5, 5), "from zero");
    assert_eq!(second.totals().lost, 1);
    assert_eq!(sampled.ratio(), None, "the budget is that of now");
}

#[test]
fn what_nobody_was_told_of_waits_and_not_for_ever() {
    let sampled = Arc::<Sampled>::default();
    let mut holder = Enrolled::of(&sampled, None);
    for number in 0..20 {
        sampled.finish(finished(number), &BTreeMap::new());
    }
    assert_eq!(told(&holder.receiver()), (12..20).collect::<Vec<u64>>());
}

#[test]
fn the_same_question_of_a_process_has_one_sampler() {
    let ask = |window| Ask {
        modes: vec![CPU],
        frequency: 99,
        passes: 19,
        window: Duration::from_secs(window),
        // Far off: nothing is sampled here.
        every: Some(Duration::from_secs(1 << 40)),
        figures: |_| Figures::default(),
    };
    let process = crate::observe::ProcessId {
        pid: std::process::id(),
        start_ticks: crate::observe::process(std::process::id(), |_| true)
            .unwrap()
            .unwrap()
            .id
            .start_ticks,
    };
    let registry = Arc::new(Mutex::new(Registry::default()));
    let enroll = |window| Registry::enroll(&registry, process, &ask(window), None).unwrap();
    let (one, same, other) = (enroll(1), enroll(1), enroll(2));
    assert!(one.shares_with(&same));
    assert!(!one.shares_with(&other));
    assert_eq!(one.sharing(), 2, "two share what the budget pays");
}

#[test]
fn modes_that_cannot_be_sampled_are_told_in_words() {
    let all = [
        CPU,
        ProfileMode::OffCpu,
        ProfileMode::Threads,
        ProfileMode::Memory,
        ProfileMode::SlowCalls,
    ];
    let told = all.map(|mode| lacking(mode).is_some());
    assert_eq!(told, [false, false, false, false, true]);
}

fn call(name: &str, place: Place) -> Call {
    Call {
        name: name.into(),
        file: if place == Place::User { "ckb" } else { "" }.into(),
        place,
    }
}

/// Two stacks of RocksDB's, seen three times and once for 10 ms each, on which 8 KiB and 4 KiB were touched. Of the one that waits
/// frames are missing.
fn sampled() -> stacks::Profile {
    let sample = |calls: &[(&str, Place)], count| Sample {
        thread: "verify_blocks".to_string(),
        calls: (calls.iter())
            .map(|(name, place)| call(name, *place))
            .collect(),
        count,
        time: Duration::from_millis(10 * count),
        memory: if count > 1 { 8_192 } else { 4_096 },
    };
    let get = ("rocksdb::DBImpl::Get<std::string>", Place::User);
    let read = ("[read of 000123.sst]", Place::Said);
    let futex = ("[futex]", Place::Said);
    stacks::Profile {
        samples: vec![
            sample(&[get, ("ext4_file_read_iter", Place::Kernel), read], 3),
            sample(&[(TRUNCATED, Place::Said), get, futex], 1),
        ],
        frequency: 50.0,
        took: Duration::from_secs(2),
        taken: 4,
        complete: 3,
        lost: 0,
    }
}

fn samples_of(told: &Told) -> Vec<(Vec<&str>, &str, &[u64])> {
    let stacks = told.profile.stacks.sorted().into_iter();
    let stacks = stacks.map(|stack| {
        let Stack {
            frames,
            thread,
            wait,
            weights,
            ..
        } = stack;
        assert_eq!(thread, "verify_blocks");
        let names = frames.into_iter().map(|frame| frame.name);
        (names.collect(), wait, weights)
    });
    stacks.collect()
}

#[test]
fn what_was_sampled_is_weighed_by_its_mode() {
    let began = Duration::from_secs(1_000);
    let get = "rocksdb::DBImpl::Get<string>";
    let whole = [get, "ext4_file_read_iter", "[read of 000123.sst]"];
    let cut = [TRUNCATED, get, "[futex]"];
    let (heavy, light) = (30_000_000, 10_000_000);
    for (mode, weights, waits, period) in [
        (CPU, [vec![3, heavy], vec![1, light]], ["", ""], 20_000_000),
        (
            ProfileMode::Memory,
            [vec![2, 8_192], vec![1, 4_096]],
            ["", ""],
            0,
        ),
        (
            ProfileMode::OffCpu,
            [vec![heavy], vec![light]],
            ["read of 000123.sst", "futex"],
            20_000_000,
        ),
    ] {
        let told = Told::sampled(mode, &sampled(), began);
        let expected = [
            (whole.to_vec(), waits[0], &*weights[0]),
            (cut.to_vec(), waits[1], &*weights[1]),
        ];
        assert_eq!(samples_of(&told), expected, "{mode:?}");
        assert_eq!(told.profile.period, period, "{mode:?}");
        assert_eq!(
            told.profile.window,
            Window {
                start_ns: 1_000_000_000_000,
                duration_ns: 2_000_000_000,
            }
        );
        let weighed = Weighed {
            mode,
            weight: weights.iter().filter_map(|weights| weights.last()).sum(),
            samples: 4,
            complete: 3,
        };
        assert_eq!(told.headings, [("rocksdb read", weighed)].into());
        assert_eq!(told.counts(), (4, 3));
    }
}

#[test]
fn nobody_knows_the_period_of_what_was_never_looked_at() {
    let never = stacks::Profile {
        frequency: 0.0,
        samples: Vec::new(),
        ..sampled()
    };
    let told = Told::sampled(CPU, &never, Duration::ZERO);
    assert_eq!(told.profile.period, 0);
    assert!(told.profile.stacks.is_empty());
    assert_eq!(told.counts(), (0, 0));
}

#[test]
fn threads_are_told_once_each_from_where_they_began() {
    let thread = |since, calls: &[&str]| State {
        thread: 7,
        name: "verify_blocks".to_string(),
        state: "sleeping",
        since,
        wait: Some("[futex]".into()),
        calls: (calls.iter().rev())
            .map(|name| call(name, Place::User))
            .collect(),
    };
    let second = Some(Duration::from_secs(1));
    let told = Told::dumped(
        &[
            thread(second, &["main", "rocksdb_write"]),
            thread(None, &["main", "rocksdb_write"]),
            thread(second, &["main"]),
        ],
        Duration::from_secs(5),
    );
    assert_eq!(
        samples_of(&told),
        [
            (
                vec!["main", "rocksdb_write"],
                "futex",
                &[2, 1_000_000_000][..]
            ),
            (vec!["main"], "futex", &[1, 1_000_000_000]),
        ]
    );
    let states = told.profile.stacks.iter().map(|stack| stack.state);
    assert_eq!(states.collect::<Vec<&str>>(), ["sleeping"; 2]);
    assert_eq!(told.profile.window.start_ns, 5_000_000_000);
    assert_eq!(told.headings["rocksdb write"].weight, 2);
    assert_eq!(told.counts(), (3, 3));
}
