//! Profiles for tests.

use proptest::prelude::*;

use crate::{Frame, Profile, ProfileMode, Stack, Stacks, WEIGHT_LIMIT, Window};

/// A table of cases, a row each: what is given, and what comes of it.
macro_rules! cases {
    ($($given:expr => $expected:expr;)*) => {
        [$(($given, $expected)),*]
    };
}

pub(crate) use cases;

/// Stacks of a mode, of lines such as `verify_blocks;ckb|main;[k]schedule 3 30`: a thread, functions with their modules, weights.
pub fn stacks(mode: ProfileMode, lines: &[&str]) -> Stacks {
    let mut stacks = Stacks::of(mode);
    for line in lines {
        let mut words: Vec<&str> = line.split(' ').collect();
        let mut weights: Vec<u64> = Vec::new();
        while let Some(Ok(weight)) = words.last().map(|word| word.parse()) {
            weights.insert(0, weight);
            words.pop();
        }
        let text = words.join(" ");
        let mut parts = text.split(';');
        let thread = parts.next().unwrap();
        let frame = |part| match str::strip_prefix(part, "[k]") {
            Some(name) => Frame::kernel(name),
            None => part
                .split_once('|')
                .map_or(Frame::user(part, ""), |(module, name)| {
                    Frame::user(name, module)
                }),
        };
        stacks.add(&Stack {
            frames: parts.map(frame).collect(),
            thread,
            weights: &weights,
            ..Stack::default()
        });
    }
    stacks
}

fn few(names: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(names)
}

/// Any stacks of a mode, of few names, so that many are alike.
pub fn any_stacks(mode: ProfileMode) -> impl Strategy<Value = Stacks> {
    let frame = (
        few(&[
            "main",
            "rocksdb_get",
            "ckb_script::run",
            "tokio::runtime::park::a",
            "[pruned]",
            "ext4 2",
            "ü;\n",
            "",
        ]),
        few(&["ckb", "libc.so.6", "", Frame::KERNEL]),
    );
    let weight = prop_oneof![0..100_u64, Just(WEIGHT_LIMIT / 3), 0..=WEIGHT_LIMIT];
    let types = mode.sample_types().len();
    let stack = (
        prop::collection::vec(frame, 0..6),
        few(&["", "verify_blocks", "rocksdb:low", "GlobalRt-1"]),
        few(&["", "default/a", "default/b"]),
        few(&["", "sleeping"]),
        few(&["", "futex"]),
        prop::collection::vec(weight, types),
    );
    prop::collection::vec(stack, 0..12).prop_map(move |rows| {
        let mut stacks = Stacks::of(mode);
        for (frames, thread, target, state, wait, weights) in &rows {
            stacks.add(&Stack {
                frames: frames
                    .iter()
                    .map(|(name, module)| Frame { name, module })
                    .collect(),
                thread,
                target,
                state,
                wait,
                weights,
            });
        }
        stacks
    })
}

pub fn any_mode() -> impl Strategy<Value = ProfileMode> {
    prop::sample::select(ProfileMode::ALL)
}

/// Any profile of a mode.
pub fn any_profile(mode: ProfileMode) -> impl Strategy<Value = Profile> {
    let number = prop_oneof![Just(0), 0..1_000_u64, 0..=WEIGHT_LIMIT / 2];
    (any_stacks(mode), number.clone(), number.clone(), number).prop_map(
        |(stacks, start_ns, duration_ns, period)| Profile {
            stacks,
            window: Window {
                start_ns,
                duration_ns,
            },
            period,
        },
    )
}
