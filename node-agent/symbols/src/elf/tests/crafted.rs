//! Crafted files: what a search of each says.

use std::path::PathBuf;

use super::*;

fn seeds() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/seeds/elf"))
}

/// Checks what a search of an image says, and that the fuzzer begins with it too. After a change of the images:
/// `WRITE_SEEDS=1 cargo test -p ckb-probe-symbols elf`.
#[track_caller]
fn check(name: &str, image: Image, says: &str) {
    assert_eq!(outcome(&image.bytes), says, "{name}");
    let seed = seeds().join(name);
    if std::env::var_os("WRITE_SEEDS").is_some() {
        std::fs::create_dir_all(seeds()).unwrap();
        std::fs::write(&seed, &image.bytes).unwrap();
    }
    let committed = std::fs::read(&seed).unwrap_or_default();
    assert!(
        committed == image.bytes,
        "{} is not this image",
        seed.display()
    );
}

/// Checks several.
macro_rules! check {
    ($($name:literal: $image:expr => $says:expr;)*) => {
        $(check($name, $image, $says);)*
    };
}

#[test]
fn a_function_is_found_whatever_the_byte_order() {
    check("both", both(), BOTH);
    let big_endian = Image::with(&[function(0, PUSHES)], b"rocksdb_write\0", true);
    check(
        "big-endian",
        big_endian,
        "rocksdb_write at 440, SingleStepped",
    );
}

#[test]
fn what_does_not_begin_like_a_64_bit_elf_file_is_none() {
    check! {
        "empty": both().cut(0) => CUT_HEADER;
        "cut-in-header": both().cut(63) => CUT_HEADER;
        "32-bit": both().set(CLASS, 1u8) => NO_ELF;
        "no-byte-order": both().set(CLASS + 1, 3u8) => NO_ELF;
        "no-magic": both().set(0, 0u32) => NO_ELF;
    }
}

#[test]
fn what_reaches_beyond_the_files_end_is_an_error() {
    let length = both().bytes.len();
    check! {
        "cut-in-segments": both().cut(100) => CUT_SEGMENTS;
        "cut-in-sections": both().cut(200) => CUT_SECTIONS;
        "cut-in-strings": both().cut(length - 1) => CUT_TABLES;
        "huge-symbols": both().set(SYMTAB + BYTES, 1u64 << 40) => CUT_TABLES;
        "huge-strings": both().set(STRTAB + BYTES, u64::MAX) => CUT_TABLES;
        "far-strings": both().set(STRTAB + OFFSET, u64::MAX - 3) => CUT_TABLES;
        "far-sections": both().set(SECTION_HEADERS, u64::MAX - 63) => CUT_SECTIONS;
        "far-segments": both().set(PROGRAM_HEADERS, u64::MAX) => CUT_SEGMENTS;
    }
}

#[test]
fn counts_may_stand_in_the_first_section_and_may_be_anything() {
    let sections = both().set(SECTION_COUNT, 0u16);
    let count = |count: u64| sections.clone().set(NULL + BYTES, count);
    check! {
        "section-count-in-section": count(5) => BOTH;
        "section-count-beyond": count(65536) => CUT_SECTIONS;
        "huge-section-count": count(u64::MAX) => "it has more than 65536 sections";
    }
    let segments = both().set(PROGRAM_HEADER_COUNT, 0xffffu16);
    let count = |count: u32| segments.clone().set(NULL + INFO, count);
    check! {
        "segment-count-in-section": count(1) => BOTH;
        "huge-segment-count": count(u32::MAX) => "it has more than 64 program headers";
        "no-sections": both().set(SECTION_HEADERS, 0u64) => "stripped";
        "no-segments": both().set(PROGRAM_HEADER_COUNT, 0u16) => NOTHING;
    }
}

#[test]
fn tables_that_overlap_or_belong_to_each_other_are_searched_for_what_they_have() {
    check! {
        "symbols-link-to-themselves": both().set(SYMTAB + LINK, 1u32) => NOTHING;
        "tables-link-in-a-circle": both().set(STRTAB + LINK, 1u32) => BOTH;
        "link-beyond": both().set(SYMTAB + LINK, u32::MAX) => NOTHING;
        "strings-without-contents": both().set(STRTAB + KIND, 8u32) => NOTHING;
        "strings-of-another-kind": both().set(STRTAB + KIND, 1u32) => NOTHING;
        "everything-is-strings": whole(both(), STRTAB) => NOTHING;
        "everything-is-symbols": whole(both(), SYMTAB) => BOTH;
        "everything-is-both": whole(whole(both(), SYMTAB), STRTAB) => NOTHING;
    }
    let twice = both()
        .set(DYNSYM + OFFSET, SYMBOLS as u64)
        .set(DYNSYM + BYTES, 48u64);
    check("both-tables-have-it", twice, BOTH);
}

#[test]
fn only_functions_in_what_is_mapped_executable_are_found() {
    let elsewhere = Symbol {
        section: 0,
        ..function(1, PUSHES)
    };
    let variable = Symbol {
        kind: 1,
        ..function(1, PUSHES)
    };
    check(
        "undefined-or-no-function",
        symbols(&[elsewhere, variable]),
        NOTHING,
    );
    check("aliases", symbols(&[function(1, PUSHES); 2]), WRITE_FOUND);
    let beyond = [
        function(1, 1 << 40),
        function(1, u64::MAX),
        function(1, BASE.wrapping_neg()),
    ];
    check! {
        "address-beyond": symbols(&beyond) => NOTHING;
        "not-executable": both().set(SEGMENT_FLAGS, 6u32) => NOTHING;
        "segment-beyond": both().set(SEGMENT_OFFSET, u64::MAX - 500) => NOTHING;
        "segment-is-endless": both().set(SEGMENT_LENGTH, u64::MAX) => BOTH;
    }
    let last = both().bytes.len() as u64 - 1;
    let at_end = format!("rocksdb_write at {last}, SingleStepped; {SYNC_FOUND}");
    let image = both()
        .set(SYMBOLS + 8, BASE + last)
        .set(last as usize, 0xe8u8);
    // The last byte ends the last string, which is not any more.
    check(
        "function-at-last-byte",
        image,
        at_end.split_once(';').unwrap().0,
    );
}

#[test]
fn a_name_is_a_string_or_the_end_of_one() {
    check! {
        "name-in-a-string": strings(3, b"my_rocksdb_write\0") => WRITE_FOUND;
        "name-of-another": strings(0, b"my_rocksdb_write\0") => NOTHING;
        "last-string-has-no-end": strings(0, b"rocksdb_write") => NOTHING;
        "no-utf-8": strings(0, b"\xff\xferocksdb_write\0") => NOTHING;
        "name-beyond": symbols(&[function(u32::MAX, PUSHES), function(15, PUSHES)]) => NOTHING;
        "unfinished-name": Image::of(&[("_ZN7rocksdb6DBImpl7SyncWAL", MOVES)]) => NOTHING;
    }
    let huge = "_ZN99999999999999999999rocksdb";
    check("huge-length-in-name", Image::of(&[(huge, MOVES)]), NOTHING);
    let tagged = Image::of(&[("_ZNK7rocksdb6DBImplL7SyncWALB5cxx11Ev", MOVES)]);
    check("tagged-name", tagged, SYNC_FOUND);
    let huge = Image::of(&[("_ZN7rocksdb6DBImpl7SyncWALB18446744073709551615Ev", MOVES)]);
    check("huge-tag-in-name", huge, NOTHING);
    check("deep-parameters", mangled(&"PFvI".repeat(500)), SYNC_FOUND);
    // A demangler needs a second for the first 40, and twice that for each one more.
    check! {
        "parameters-that-multiply": mangled(&"S_atatS_IS_".repeat(80)) => SYNC_FOUND;
        "long-name": mangled(&"i".repeat(4096 - 27)) => SYNC_FOUND;
        "too-long-name": mangled(&"i".repeat(4096 - 26)) => NOTHING;
    }
}

#[test]
fn a_name_stands_for_so_many_functions_and_no_more() {
    let three = format!(
        "{name} at 440, Emulated; {name} at 441, SingleStepped; {name} at 442, SingleStepped",
        name = "rocksdb::DBImpl::SyncWAL"
    );
    check("overloads", overloads(3), &three);
    let most = search(&overloads(64).bytes[..]).unwrap().found;
    assert_eq!(most.values().map(Vec::len).collect::<Vec<_>>(), [64]);
    let many = "it has more than 64 functions of one name";
    check("too-many-overloads", overloads(65), many);
}

#[test]
fn seeds_that_once_broke_something_break_nothing() {
    let seeds = std::fs::read_dir(seeds()).unwrap();
    for seed in seeds {
        outcome(&std::fs::read(seed.unwrap().path()).unwrap());
    }
}
