use super::*;
use crate::mechanism::stacks::{Sample, TRUNCATED};

const CPU: ProfileMode = ProfileMode::Cpu;

fn call(name: &str, place: CodeOrigin) -> Call {
    Call {
        name: name.into(),
        file: if place == CodeOrigin::User { "ckb" } else { "" }.into(),
        place,
    }
}

/// Two stacks of RocksDB's, seen three times and once for 10 ms each, on which 8 KiB and 4 KiB were touched. Of the one that waits
/// frames are missing.
fn sampled() -> stacks::Profile {
    let sample = |calls: &[(&str, CodeOrigin)], count| Sample {
        thread: "verify_blocks".to_string(),
        calls: (calls.iter())
            .map(|(name, place)| call(name, *place))
            .collect(),
        count,
        time: Duration::from_millis(10 * count),
        memory: if count > 1 { 8_192 } else { 4_096 },
        freed: 0,
    };
    let get = ("rocksdb::DBImpl::Get<std::string>", CodeOrigin::User);
    let read = ("[read of 000123.sst]", CodeOrigin::Said);
    let futex = ("[futex]", CodeOrigin::Said);
    stacks::Profile {
        samples: vec![
            sample(&[get, ("ext4_file_read_iter", CodeOrigin::Kernel), read], 3),
            sample(&[(TRUNCATED, CodeOrigin::Said), get, futex], 1),
        ],
        frequency: 50.0,
        took: Duration::from_secs(2),
        taken: 4,
        complete: 3,
        ..stacks::Profile::default()
    }
}

fn samples_of(told: &CategorizedStacks) -> Vec<(Vec<&str>, &str, &[u64])> {
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
        let told = CategorizedStacks::sampled(mode, &sampled(), began, "ckb");
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
            freed: 0,
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
    let told = CategorizedStacks::sampled(CPU, &never, Duration::ZERO, "ckb");
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
            .map(|name| call(name, CodeOrigin::User))
            .collect(),
    };
    let second = Some(Duration::from_secs(1));
    let told = CategorizedStacks::dumped(
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
