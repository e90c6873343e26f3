use std::collections::BTreeMap;

use prost::Message as _;

use super::{messages, *};
use crate::{ProfileMode, Window};

/// Two stacks of one thread, and one of another that weighs nothing of the second type.
fn profile() -> Profile {
    let mut profile = Profile::of(ProfileMode::Memory);
    profile.window = Window {
        start_ns: 7_000_000_000,
        duration_ns: 30_000_000_000,
    };
    let main = Frame::user("main", "ckb");
    let get = Frame::user("rocksdb_get", "ckb");
    let fault = Frame::kernel("asm_exc_page_fault");
    for (frames, thread, weights) in [
        (vec![main, get, fault], "GlobalRt-0", [3, 12_288]),
        (vec![main, get], "GlobalRt-0", [1, 4_096]),
        (vec![Frame::user("poll", "")], "", [2, 0]),
    ] {
        profile.stacks.add(&Stack {
            frames,
            thread,
            target: "default/ckb-0/ckb",
            weights: &weights,
            ..Stack::default()
        });
    }
    profile
}

/// A stack with its modules, its thread, and what it weighs of each type.
type Read = BTreeMap<(Vec<(String, String)>, String), BTreeMap<String, i64>>;

/// What a receiver makes of a request, by nothing but its numbers.
fn read(request: &messages::Request) -> Read {
    let tables = request.dictionary.clone().unwrap();
    let text = |place: i32| tables.string_table[place as usize].clone();
    let mut read = Read::new();
    for profile in &request.resource_profiles[0].scope_profiles[0].profiles {
        let kind = text(profile.sample_type.unwrap().name);
        for sample in &profile.samples {
            let places = &tables.stack_table[sample.stack_index as usize].location_indices;
            let frames = places.iter().map(|place| {
                let location = &tables.location_table[*place as usize];
                let function = tables.function_table[location.lines[0].function_index as usize];
                let mapping = tables.mapping_table[location.mapping_index as usize];
                (text(function.name), text(mapping.filename))
            });
            let attributes = sample.attribute_indices.iter();
            let attributes = attributes.map(|place| &tables.attribute_table[*place as usize]);
            let mut threads = attributes.filter(|one| text(one.key) == "thread.name");
            let thread = threads.next().and_then(|one| one.value.clone()?.text);
            let key = (frames.collect(), thread.unwrap_or_default());
            let before = read
                .entry(key)
                .or_default()
                .insert(kind.clone(), sample.values[0]);
            assert_eq!((before, sample.values.len()), (None, 1));
        }
    }
    read
}

fn named(names: &[(&str, &str)]) -> Vec<(String, String)> {
    let names = names.iter();
    names
        .map(|(name, module)| ((*name).to_owned(), (*module).to_owned()))
        .collect()
}

#[test]
fn each_stack_is_told_with_each_of_its_weights() {
    let request = profile().to_otlp(&[("service.name", "ckb-probe")]);
    let request = messages::Request::decode(&request[..]).unwrap();
    let (main, get) = (("main", "ckb"), ("rocksdb_get", "ckb"));
    let fault = ("asm_exc_page_fault", Frame::KERNEL);
    let weights = |faults, space| {
        let all = [("faults".to_owned(), faults), ("space".to_owned(), space)];
        all.into_iter().filter(|(_, weight)| *weight > 0).collect()
    };
    let expected: Read = [
        (
            (named(&[fault, get, main]), "GlobalRt-0".to_owned()),
            weights(3, 12_288),
        ),
        (
            (named(&[get, main]), "GlobalRt-0".to_owned()),
            weights(1, 4_096),
        ),
        ((named(&[("poll", "")]), String::new()), weights(2, 0)),
    ]
    .into();
    assert_eq!(read(&request), expected);
    let resource = request.resource_profiles[0].resource.clone().unwrap();
    assert_eq!(resource.attributes[0].key, "service.name");
    let profiles = &request.resource_profiles[0].scope_profiles[0].profiles;
    let windows = profiles
        .iter()
        .map(|one| (one.time_unix_nano, one.duration_nano));
    assert_eq!(
        windows.collect::<Vec<_>>(),
        [(7_000_000_000, 30_000_000_000); 2]
    );
}

#[test]
fn each_table_begins_with_nothing_and_has_nothing_twice() {
    let request = messages::Request::decode(&profile().to_otlp(&[])[..]).unwrap();
    let tables = request.dictionary.unwrap();
    assert_eq!(tables.mapping_table[0], messages::Mapping::default());
    assert_eq!(tables.location_table[0], messages::Location::default());
    assert_eq!(tables.function_table[0], messages::Function::default());
    assert_eq!(tables.link_table, [messages::Link {}]);
    assert_eq!(tables.string_table[0], "");
    assert_eq!(
        tables.attribute_table[0],
        messages::KeyValueAndUnit::default()
    );
    assert_eq!(tables.stack_table[0], messages::Stack::default());
    let lengths = [
        tables.mapping_table.len(),
        tables.location_table.len(),
        tables.function_table.len(),
        tables.stack_table.len(),
    ];
    assert_eq!(lengths, [3, 5, 5, 4]);
    let mut texts = tables.string_table.clone();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), tables.string_table.len());
}

#[test]
fn what_a_receiver_did_not_take_is_read_out_of_its_answer() {
    let answer = |rejected, message: &str| {
        let partial_success = Some(messages::PartialSuccess {
            rejected,
            message: message.to_owned(),
        });
        messages::Response { partial_success }.encode_to_vec()
    };
    assert_eq!(refused(&[]), None);
    assert_eq!(refused(&answer(0, "slow down")), None);
    assert_eq!(refused(&answer(1, "no room")), Some("no room".to_owned()));
    let other = refused(b"<html>");
    assert!(other.is_some_and(|text| text.starts_with("an answer that is none of OTLP's: ")));
}
