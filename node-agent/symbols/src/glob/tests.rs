use std::time::Instant;

use proptest::prelude::*;

use super::*;

fn matches(glob: &str, name: &str) -> bool {
    Glob::new(glob).unwrap().matches(name)
}

#[test]
fn a_pattern_matches_a_whole_name_and_its_case() {
    for (glob, name) in [
        ("rocksdb_write", "rocksdb_write"),
        ("rocksdb::DBImpl::*", "rocksdb::DBImpl::SyncWAL"),
        ("rocksdb::DBImpl::*", "rocksdb::DBImpl::"),
        ("*", ""),
        ("*", "anything"),
        ("*::verify::*", "ckb_chain::verify::ConsumeUnverified::run"),
        ("a**b", "ab"),
        ("a?c", "abc"),
        ("[gs]et_[0-9]", "set_7"),
        ("[!gs]et", "bet"),
        ("operator[[]]", "operator[]"),
        ("[]x]", "]"),
        ("[a-]", "-"),
        ("g*l", "gödel"),
        ("*ab", "aab"),
    ] {
        assert!(matches(glob, name), "{glob} {name}");
    }
    for (glob, name) in [
        ("rocksdb_write", "rocksdb_write_wal"),
        ("rocksdb_write", "my_rocksdb_write"),
        ("rocksdb_Write", "rocksdb_write"),
        ("a?c", "ac"),
        ("[gs]et", "bet"),
        ("[!gs]et", "get"),
        ("[!gs]et", "et"),
        ("*ab*ab", "ab"),
        ("x", ""),
    ] {
        assert!(!matches(glob, name), "{glob} {name}");
    }
}

#[test]
fn what_is_no_pattern_is_refused() {
    let refused = |glob: &str| Glob::new(glob).unwrap_err();
    assert_eq!(refused(""), GlobError::Empty);
    assert_eq!(refused(&"a".repeat(257)), GlobError::TooLong);
    assert_eq!(refused("gödel"), GlobError::NotAscii);
    assert_eq!(refused("a\nb"), GlobError::NotAscii);
    for glob in ["[", "a[bc", "operator[]", "[!]"] {
        assert_eq!(refused(glob), GlobError::Unclosed, "{glob}");
    }
}

#[test]
fn the_longest_pattern_is_matched_to_its_last_byte() {
    let name = "a".repeat(256);
    assert!(matches(&name, &name));
    assert!(!matches(&name, &name[1..]));
    assert!(matches(&"?".repeat(256), &name));
    assert!(matches(&"a*".repeat(128), &name));
    assert!(!matches(&"a*".repeat(128), &name[..127]));
}

#[test]
fn no_pattern_takes_a_name_apart_in_every_way_there_is() {
    let name = "a".repeat(1 << 20);
    let start = Instant::now();
    assert!(!matches(&"*a".repeat(127), &format!("{name}b")));
    assert!(start.elapsed().as_secs() < 5);
}

#[test]
fn pieces_are_what_is_an_identifier() {
    let pieces = |glob| Glob::new(glob).unwrap().pieces().to_vec();
    assert_eq!(
        pieces("rocksdb::DB*Impl?x_1[abc]y::*"),
        ["rocksdb", "DB", "Impl", "x_1", "y"]
    );
    assert_eq!(pieces("*"), <[String; 0]>::default());
}

/// What a pattern matches, by its definition and in no hurry.
fn naive(glob: &[u8], name: &[u8]) -> bool {
    match (glob, name) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => (0..=name.len()).any(|at| naive(rest, &name[at..])),
        ([b'?', glob @ ..], [_, name @ ..]) => naive(glob, name),
        ([b'[', b'!', a, b, b']', glob @ ..], [byte, name @ ..]) => {
            byte != a && byte != b && naive(glob, name)
        }
        ([b'[', a, b'-', b, b']', glob @ ..], [byte, name @ ..]) => {
            (a..=b).contains(&byte) && naive(glob, name)
        }
        ([literal, glob @ ..], [byte, name @ ..]) => literal == byte && naive(glob, name),
        _ => false,
    }
}

proptest! {
    #[test]
    fn it_matches_what_a_naive_matcher_does(
        glob in r"([abc:]|\*|\?|\[!ab\]|\[a-b\]){1,8}",
        name in "[abc:]{0,10}",
    ) {
        prop_assert_eq!(matches(&glob, &name), naive(glob.as_bytes(), name.as_bytes()));
    }
}
