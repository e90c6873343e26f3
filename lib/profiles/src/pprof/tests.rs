use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use prost::Message;

use super::{messages, *};
use crate::{
    Frame, Profile, ProfileMode, SampleType, Stack,
    testing::{any_mode, any_profile, cases, stacks},
};

proptest! {
    #[test]
    fn what_is_written_is_read(profile in any_mode().prop_flat_map(any_profile)) {
        let bytes = profile.to_pprof();
        prop_assert_eq!(Profile::from_pprof(&bytes, &Limits::PART).unwrap(), profile.clone());
        // In whatever order it came.
        let mut other = Profile { stacks: profile.stacks.map(|_| {}), ..profile };
        other.stacks.merge(&crate::Stacks::new(other.stacks.types().to_vec(), 0)).unwrap();
        prop_assert_eq!(other.to_pprof(), bytes);
    }

    #[test]
    fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Profile::from_pprof(&bytes, &Limits::PART);
        let _ = Profile::from_pprof(&zipped(&bytes), &Limits::PART);
    }

    #[test]
    fn no_change_of_a_profile_breaks_it(
        profile in any_profile(ProfileMode::Cpu),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = unzipped(&profile.to_pprof());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(end.index(bytes.len() + 1));
        let _ = Profile::from_pprof(&bytes, &Limits::PART);
    }
}

fn zipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn unzipped(bytes: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut out)
        .unwrap();
    out
}

fn refused(bytes: &[u8]) -> String {
    Profile::from_pprof(bytes, &Limits::PART)
        .unwrap_err()
        .to_string()
}

/// A profile as another program would write it.
fn foreign() -> messages::Profile {
    let texts = [
        "",
        "alloc_space",
        "bytes",
        "inuse_space",
        "main.main",
        "inlined",
        "/app/server",
        "comm",
        "worker",
        "other",
        "1",
        "[kernel.vmlinux]",
        "do_syscall_64",
    ];
    let line = |function_id| messages::Line { function_id };
    let location = |id, mapping_id, address, lines: &[u64]| messages::Location {
        id,
        mapping_id,
        address,
        line: lines.iter().copied().map(line).collect(),
    };
    let function = |id, name, system_name| messages::Function {
        id,
        name,
        system_name,
    };
    messages::Profile {
        sample_type: vec![
            messages::ValueType { name: 1, unit: 2 },
            messages::ValueType { name: 3, unit: 2 },
        ],
        sample: vec![messages::Sample {
            location_id: vec![30, 20, 10],
            value: vec![7, 5],
            label: vec![
                messages::Label { key: 7, text: 8 },
                messages::Label { key: 9, text: 10 },
            ],
        }],
        mapping: vec![
            messages::Mapping {
                id: 1,
                memory_start: 0x40_0000,
                file_offset: 0x1000,
                filename: 6,
                has_functions: false,
            },
            messages::Mapping {
                id: 2,
                filename: 11,
                ..Default::default()
            },
        ],
        location: vec![
            // The innermost first.
            location(10, 1, 0, &[2, 1]),
            location(20, 1, 0x40_0234, &[]),
            location(30, 2, 0, &[3]),
        ],
        function: vec![function(1, 4, 4), function(2, 5, 0), function(3, 0, 12)],
        string_table: texts.map(str::to_owned).to_vec(),
        time_nanos: -5,
        default_sample_type: 1,
        ..Default::default()
    }
}

#[test]
fn another_program_s_profile_is_read() {
    let profile = Profile::from_pprof(&foreign().encode_to_vec(), &Limits::FILE).unwrap();
    let types = [
        SampleType::new("alloc_space", "bytes"),
        SampleType::new("inuse_space", "bytes"),
    ];
    assert_eq!(profile.stacks.types(), types);
    assert_eq!((profile.stacks.shown(), profile.window.start_ns), (0, 0));
    let expected = Stack {
        frames: vec![
            Frame::user("main.main", "/app/server"),
            Frame::user("inlined", "/app/server"),
            Frame::user("[server+0x1234]", "/app/server"),
            Frame::kernel("do_syscall_64"),
        ],
        thread: "worker",
        weights: &[7, 5],
        ..Stack::default()
    };
    assert_eq!(profile.stacks.sorted(), [expected]);
    // Where none is named, the last type is the one to be shown.
    let unnamed = messages::Profile {
        default_sample_type: 0,
        ..foreign()
    };
    let profile = Profile::from_pprof(&unnamed.encode_to_vec(), &Limits::FILE).unwrap();
    assert_eq!(profile.stacks.shown(), 1);
}

#[test]
fn what_is_no_profile_is_called_what_it_is() {
    for (bytes, message) in cases! {
        &b""[..] => "it is empty";
        b"PERFILE2\x68\0" => "it is perf's own file, not a pprof";
        b"\x7fELF\x02\x01" => "it is a program, not a pprof";
        b"<?xml version" => "it is a drawing or a page, not a pprof";
        b"main;run 5\nmain;wait 6\n" => "it is text, not a pprof";
        b"\x1f\x8b\x08\0" => "its gzip stream is damaged or cut off: unexpected end of file";
        b"\x0a\x04\x08\x01" => "it is no pprof, or a damaged one: byte 0 of what was unzipped begins no field";
        b"\x0a\x02\x08\x80" => "it is no pprof, or a damaged one: sample type 1 cannot be read";
        b"\x32\x00" => "it does not say what its samples are: it has no sample type";
        b"\x0a\x04\x08\x01\x10\x02" => "it refers to text 1, which is not in it";
    } {
        assert_eq!(refused(bytes), message, "{bytes:?}");
    }
    let whole = stacks(ProfileMode::Cpu, &["a;main 1 10"]);
    let whole = Profile {
        stacks: whole,
        ..Profile::of(ProfileMode::Cpu)
    }
    .to_pprof();
    assert!(
        refused(&whole[..whole.len() - 9]).starts_with("its gzip stream is damaged or cut off")
    );
}

#[test]
fn a_profile_that_does_not_fit_together_is_refused() {
    let change = |change: &dyn Fn(&mut messages::Profile)| {
        let mut profile = foreign();
        change(&mut profile);
        refused(&profile.encode_to_vec())
    };
    assert_eq!(
        change(&|profile| profile.sample[0].value = vec![1]),
        "sample 1 has 1 values, but there are 2 sample types"
    );
    assert_eq!(
        change(&|profile| profile.sample[0].value[1] = -1),
        "sample 1 is negative: this is the difference of two profiles; give both of them to `ckb-probe diff` instead"
    );
    assert_eq!(
        change(&|profile| profile.sample[0].location_id[0] = 9),
        "it refers to location 9, which is not in it"
    );
    assert_eq!(
        change(&|profile| profile.location[0].mapping_id = 9),
        "it refers to mapping 9, which is not in it"
    );
    assert_eq!(
        change(&|profile| profile.location[0].line[0].function_id = 9),
        "it refers to function 9, which is not in it"
    );
    assert_eq!(
        change(&|profile| profile.sample[0].label[0].key = 99),
        "it refers to text 99, which is not in it"
    );
}

#[test]
fn a_profile_that_is_made_to_be_large_is_refused() {
    // A megabyte of zeros for each kilobyte.
    let zeros = zipped(&vec![0; Limits::PART.unzipped + 1]);
    assert!(zeros.len() < 200_000);
    assert_eq!(
        refused(&zeros),
        "unzipped it is more than 32 MiB, which is the limit"
    );

    let mut many = foreign().encode_to_vec();
    many.extend(b"\x12\x00".repeat(Limits::PART.elements));
    let message = format!(
        "it has more than {} of this kind, which is the limit: sample",
        Limits::PART.elements
    );
    assert_eq!(refused(&many), message);

    let mut long = foreign();
    long.sample[0].label = vec![messages::Label { key: 0, text: 0 }; 40_000];
    assert_eq!(
        refused(&long.encode_to_vec()),
        "a sample takes more than 64 KiB, which is the limit"
    );

    let mut deep = foreign();
    deep.sample[0].location_id = vec![30; 20_000];
    assert_eq!(
        refused(&deep.encode_to_vec()),
        "it has more than 16384 of this kind, which is the limit: frame of one stack"
    );

    // Ten thousand functions at one place, on a thousand stacks.
    let mut inlined = foreign();
    inlined.location[0].line = vec![messages::Line { function_id: 1 }; 10_000];
    let sample = messages::Sample {
        location_id: vec![10],
        ..inlined.sample[0].clone()
    };
    inlined.sample = vec![sample; 1000];
    assert_eq!(
        refused(&inlined.encode_to_vec()),
        "it has more than 4000000 of this kind, which is the limit: frame"
    );

    let mut types = foreign();
    types.sample_type = vec![types.sample_type[0]; 33];
    assert_eq!(
        refused(&types.encode_to_vec()),
        "it has more than 32 of this kind, which is the limit: sample type"
    );
}

#[test]
fn texts_that_are_none_are_read_as_far_as_they_go() {
    let mut bytes = foreign().encode_to_vec();
    let at = bytes
        .windows(9)
        .position(|window| window == b"main.main")
        .unwrap();
    bytes[at] = 0xff;
    let profile = Profile::from_pprof(&bytes, &Limits::FILE).unwrap();
    assert_eq!(
        profile.stacks.sorted()[0].frames[0].name,
        "\u{fffd}ain.main"
    );
}
