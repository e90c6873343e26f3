use std::{cell::Cell, iter};

use proptest::prelude::*;

use super::{super::tests::image::*, *};

fn search(image: &Image, glob: &str) -> Result<Functions, SearchError> {
    listed(image, glob, 100)
}

fn listed(image: &Image, glob: &str, listed: usize) -> Result<Functions, SearchError> {
    let glob = Glob::new(glob).unwrap();
    search_functions(
        &image.bytes[..],
        &glob,
        listed,
        &mut Budget::default(),
        || true,
    )
}

/// What was found: names and offsets.
fn found(image: &Image, glob: &str) -> Vec<(String, u64)> {
    let functions = search(image, glob).unwrap();
    assert_eq!(functions.total, functions.found.len());
    functions
        .found
        .into_iter()
        .map(|found| (found.name, found.place.offset))
        .collect()
}

fn pairs<const N: usize>(pairs: [(&str, u64); N]) -> Vec<(String, u64)> {
    pairs
        .map(|(name, offset)| (name.to_string(), offset))
        .into()
}

const SYNC: &str = "_ZN7rocksdb6DBImpl7SyncWALEv";
const RUST: &str = "_ZN9ckb_chain6verify3run17h0123456789abcdefE";

#[test]
fn functions_match_by_name_or_symbol_and_are_listed_in_order_of_name() {
    let image = Image::of(&[
        ("rocksdb_write", PUSHES),
        (SYNC, MOVES),
        (RUST, MOVES + 1),
        ("rocksdb_put@@VERSION_2", PUSHES + 1),
    ]);
    let all = pairs([
        ("ckb_chain::verify::run", MOVES + 1),
        ("rocksdb::DBImpl::SyncWAL", MOVES),
        ("rocksdb_put", PUSHES + 1),
        ("rocksdb_write", PUSHES),
    ]);
    assert_eq!(found(&image, "*"), all);
    assert_eq!(found(&image, "rocksdb*"), all[1..]);
    assert_eq!(found(&image, "rocksdb::DBImpl::*"), all[1..2]);
    assert_eq!(found(&image, SYNC), all[1..2]);
    assert_eq!(found(&image, "ckb_chain::verify::*"), all[..1]);
    assert_eq!(found(&image, "rocksdb_put"), all[2..3]);
    assert_eq!(found(&image, "rocksdb_[pw]?[it]*"), all[2..]);
    assert_eq!(found(&image, "rocksdb_get"), []);
    let function = &search(&image, "rocksdb::*").unwrap().found[0];
    assert_eq!(function.symbol, SYNC);
    let first_instruction = crate::FirstInstruction::SingleStepped;
    assert_eq!(
        function.place,
        Place {
            offset: MOVES,
            first_instruction
        }
    );
}

#[test]
fn a_function_of_several_names_is_one_by_the_first_that_matches() {
    let image = Image::of(&[
        ("beta", PUSHES),
        ("gamma", PUSHES),
        ("alpha", PUSHES),
        ("beta", MOVES),
    ]);
    assert_eq!(
        found(&image, "*"),
        pairs([("alpha", PUSHES), ("beta", MOVES)])
    );
    assert_eq!(
        found(&image, "[bg]*"),
        pairs([("beta", PUSHES), ("beta", MOVES)])
    );
    let twice = image
        .set(DYNSYM + OFFSET, SYMBOLS as u64)
        .set(DYNSYM + BYTES, 96u64);
    assert_eq!(
        found(&twice, "*"),
        pairs([("alpha", PUSHES), ("beta", MOVES)])
    );
}

#[test]
fn only_what_is_called_and_returns_is_found() {
    let names = [
        "whole",
        "whole.cold",
        "whole.part.0",
        "setjmp",
        "_start",
        "vfork@@GLIBC_2.2.5",
    ];
    let functions: Vec<(&str, u64)> = names.into_iter().zip(PUSHES..).collect();
    let image = Image::of(&functions);
    assert_eq!(found(&image, "*"), pairs([("whole", PUSHES)]));
    assert_eq!(
        found(&image, "whole.*"),
        pairs([("whole.part.0", PUSHES + 2)])
    );
    for name in ["setjmp", "_start", "vfork", "whole.cold"] {
        assert_eq!(found(&image, name), [], "{name}");
    }
    // Undefined, a variable, and one that is chosen at run time.
    let kinds = [(0, 2), (1, 1), (1, 10)];
    let symbols = kinds.map(|(section, kind)| Symbol {
        section,
        kind,
        ..function(1, PUSHES)
    });
    assert_eq!(found(&Image::with(&symbols, b"\0memcpy\0", false), "*"), []);
}

#[test]
fn what_is_more_than_was_to_be_listed_is_counted() {
    let names: Vec<String> = (0..30)
        .map(|number| format!("_Z1f{}", "i".repeat(30 - number)))
        .collect();
    let names: Vec<String> = names
        .into_iter()
        .chain((0..30).map(|number| format!("g{number:02}")))
        .collect();
    let functions: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(PUSHES..).collect();
    let image = Image::of(&functions);
    let all = listed(&image, "*", 60).unwrap();
    assert_eq!((all.found.len(), all.total), (60, 60));
    let more = listed(&image, "*", 59).unwrap();
    assert_eq!((more.found.len(), more.total), (0, 60));
    let sample = [
        "f", "g00", "g01", "g02", "g03", "g04", "g05", "g06", "g07", "g08",
    ];
    assert_eq!(more.sample, sample);
    assert_eq!(all.sample, sample);
    assert_eq!(listed(&image, "g*", 0).unwrap().total, 30);
}

#[test]
fn what_else_is_called_so_and_what_else_it_is_called_is_told() {
    let image = Image::of(&[
        ("alpha", PUSHES),
        ("beta@@VERSION_2", PUSHES),
        (RUST, PUSHES),
        ("alpha.cold", PUSHES),
        (SYNC, MOVES),
        ("_ZN7rocksdb6DBImpl7SyncWALEv.constprop.0.isra.1", MOVES + 1),
        ("alpha.part.0", MOVES + 2),
        ("gamma.part.0", MOVES + 3),
    ]);
    let others = |glob| {
        let found = search(&image, glob).unwrap().found;
        let others = found.into_iter().map(|one| (one.name, one.others));
        others.collect::<Vec<_>>()
    };
    let with = |name: &str, others: &[&str]| {
        let others = others.iter().map(ToString::to_string).collect();
        (name.to_string(), others)
    };
    // Whether they match or not.
    assert_eq!(
        others("alpha"),
        [with("alpha", &["beta", "ckb_chain::verify::run"])]
    );
    assert_eq!(
        others("[ab]*"),
        [with("alpha", &["beta", "ckb_chain::verify::run"])]
    );
    assert_eq!(others("rocksdb*"), [with("rocksdb::DBImpl::SyncWAL", &[])]);
    let variants = |glob| search(&image, glob).unwrap().variants;
    assert_eq!(
        variants("rocksdb::*"),
        ["rocksdb::DBImpl::SyncWAL.constprop.0.isra.1"]
    );
    assert_eq!(variants("a*"), ["alpha.part.0"]);
    // Who has them found needs no telling.
    assert_eq!(variants("a*.*"), <[&str; 0]>::default());
    assert_eq!(variants("beta"), <[&str; 0]>::default());
}

#[test]
fn near_names_have_most_of_the_pattern_and_are_told_when_nothing_matches() {
    let names = [
        SYNC,
        "_ZN7rocksdb6DBImpl3GetEv",
        "_ZN7rocksdb2DB3GetEv",
        "_ZN7rocksdb6DBImplE.cold",
        "get",
        "rocksdb_b",
        "rocksdb_a",
    ];
    let functions: Vec<(&str, u64)> = names.into_iter().zip(PUSHES..).collect();
    let image = Image::of(&functions);
    let near = |glob| search(&image, glob).unwrap().near;
    assert_eq!(
        near("rocksdb::DBImpl::SyncTheWAL"),
        [
            "rocksdb::DBImpl::Get",
            "rocksdb::DBImpl::SyncWAL",
            "rocksdb::DB::Get"
        ]
    );
    assert_eq!(
        near("rocksdb?"),
        [
            "rocksdb::DB::Get",
            "rocksdb::DBImpl::Get",
            "rocksdb::DBImpl::SyncWAL"
        ]
    );
    assert_eq!(near("leveldb_*"), <[&str; 0]>::default());
    assert_eq!(near("rocksdb_*"), <[&str; 0]>::default());
}

#[test]
fn a_name_is_a_string_or_the_end_of_one_of_so_many_bytes() {
    let names = |strings: &[u8], at: u32| {
        let found = found(&Image::with(&[function(at, PUSHES)], strings, false), "*");
        found.first().map(|(name, _)| name.clone())
    };
    assert_eq!(
        names(b"my_rocksdb_write\0", 3).as_deref(),
        Some("rocksdb_write")
    );
    assert_eq!(names(b"rocksdb_write", 0), None);
    assert_eq!(names(b"\xff\xfe\0", 0), None);
    assert_eq!(names(b"rocksdb_write\0", 14), None);
    assert_eq!(names(b"rocksdb_write\0", u32::MAX), None);
    let long = |length: usize| [vec![b'x'; length], vec![0]].concat();
    assert_eq!(
        names(&long(SYMBOL_LIMIT), 0),
        Some("x".repeat(SYMBOL_LIMIT))
    );
    assert_eq!(names(&long(SYMBOL_LIMIT + 1), 0), None);
    assert_eq!(
        names(&long(SYMBOL_LIMIT + 1), 1),
        Some("x".repeat(SYMBOL_LIMIT))
    );
}

#[test]
fn go_and_an_interpreter_are_told_by_the_headers() {
    let section_names = 62;
    let linked = |image: Image| linkage(&image.bytes[..], &mut Budget::default()).unwrap();
    let go = |name: &[u8]| {
        let image = Image::with(&[], &[b"\0", name, b"\0"].concat(), false);
        let image = image.set(section_names, 2u16).set(SYMTAB, 1u32);
        linked(image).is_go
    };
    assert!(go(b".gopclntab"));
    assert!(go(b".go.buildinfo"));
    assert!(!go(b".gopclntab2"));
    assert!(!go(b".text"));
    let image = || Image::with(&[], b"\0.gopclntab\0", false).set(SYMTAB, 1u32);
    assert!(!linked(image()).is_go);
    assert!(!linked(image().set(section_names, 0xffffu16)).is_go);
    assert!(!linked(image().set(section_names, 2u16).set(SYMTAB, u32::MAX)).is_go);
    assert!(!linked(image()).has_interpreter);
    assert!(linked(image().set(64, 3u32)).has_interpreter);
}

#[test]
fn a_search_ends_when_there_is_no_time_left() {
    let names: Vec<String> = (0..100).map(|number| format!("f{number}")).collect();
    let functions: Vec<(&str, u64)> = names
        .iter()
        .map(String::as_str)
        .zip(iter::repeat(PUSHES))
        .collect();
    let image = Image::of(&functions);
    let glob = Glob::new("*").unwrap();
    let left = Cell::new(0);
    let search = |looks: usize| {
        left.set(looks);
        let has_time = || left.replace(left.get().saturating_sub(1)) > 0;
        search_functions(&image.bytes[..], &glob, 9, &mut Budget::default(), has_time)
    };
    assert_eq!(search(6).unwrap().total, 1);
    assert!(matches!(search(5), Err(SearchError::TooSlow)));
}

#[test]
fn half_a_million_functions_are_searched_and_no_more() {
    let image = |count: usize| Image::with(&vec![function(0, PUSHES); count], b"f\0", false);
    assert_eq!(found(&image(1 << 19), "f"), pairs([("f", PUSHES)]));
    // The same in two tables.
    let both = image((1 << 18) + 1);
    let both = both.set(DYNSYM + OFFSET, SYMBOLS as u64);
    let both = both.set(DYNSYM + BYTES, ((1u64 << 18) + 1) * 24);
    assert!(matches!(
        search(&both, "f"),
        Err(SearchError::TooMany { .. })
    ));
    let error = search(&image((1 << 19) + 1), "f").unwrap_err();
    assert_eq!(error.to_string(), "it has more than 524288 functions");
}

#[test]
fn no_more_is_read_than_the_budget_allows() {
    let image = Image::of(&[("rocksdb_write", PUSHES), (SYNC, MOVES)]);
    let glob = Glob::new("*").unwrap();
    let search =
        |budget: &mut Budget| search_functions(&image.bytes[..], &glob, 9, budget, || true);
    let mut budget = Budget::default();
    search(&mut budget).unwrap();
    let taken = Budget::default().0 - budget.0;
    assert_eq!(search(&mut Budget(taken)).unwrap().total, 2);
    let error = search(&mut Budget(taken - 1)).unwrap_err();
    assert!(matches!(error, SearchError::TooLarge { .. }), "{error:?}");
}

/// Strings for a string table: names, what is too long for one, and what is long enough to make pieces of the table.
fn string() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(SYNC.to_string()),
        Just(RUST.to_string()),
        (1000usize..1050).prop_map(|count| "y".repeat(count)),
        (0usize..60_000).prop_map(|count| "z".repeat(count)),
        "[a-z_.]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Wherever pieces of the table begin and end, the names found are those that a look at each symbol's string finds.
    #[test]
    fn pieces_find_what_a_look_at_each_string_finds(
        (table, symbols) in tables(string(), 1040),
    ) {
        let mut expected = Vec::new();
        for symbol in &symbols {
            if symbol.name as usize >= table.len() {
                continue;
            }
            let string = string_at(&table, symbol);
            if string.len() <= SYMBOL_LIMIT && form(string) == Form::Whole {
                let name = demangle(string).unwrap_or_else(|| plain(string).to_string());
                expected.push((name, symbol.offset));
            }
        }
        expected.sort();
        let mut found = found(&Image::with(&symbols, &table, false), "*");
        found.sort();
        prop_assert_eq!(found, expected);
    }

    /// Numbers that matter, anywhere in a file.
    #[test]
    fn a_file_with_any_numbers_in_it_is_searched_or_refused(
        patches in patches(),
    ) {
        let image = Image::of(&[("rocksdb_write", PUSHES), (SYNC, MOVES)]).patched(patches);
        if let Ok(functions) = search(&image, "*") {
            for found in functions.found {
                prop_assert!(found.place.offset < image.bytes.len() as u64);
            }
        }
        let _ = linkage(&image.bytes[..], &mut Budget::default());
    }
}
