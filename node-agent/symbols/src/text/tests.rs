use std::{fs, path::PathBuf};

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_byte_of_a_target_commands_a_terminal(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        prop_assert!(!of(&bytes).chars().any(commands));
        prop_assert!(!of_padded(&bytes).chars().any(commands));
        prop_assert!(!quoted(&bytes).chars().any(commands));
    }

    #[test]
    fn nor_does_any_character(text in "[\\x00-\\x1f\\x7f-\\u{9f}\\u{61c}\\u{2000}-\\u{2070}a-zé]{0,32}") {
        prop_assert!(!quoted(text.as_bytes()).chars().any(commands));
        let shown = shown(&text);
        prop_assert!(!shown.chars().any(commands));
        prop_assert_eq!(super::shown(&shown), shown, "what is shown stays as it is");
    }

    #[test]
    fn what_is_only_read_is_as_it_was(text in "[a-zA-Z0-9_:<>/. é漢-]{0,32}") {
        prop_assert_eq!(of(text.as_bytes()), text);
    }
}

#[test]
fn names_that_differ_in_what_is_not_shown_still_differ() {
    assert_eq!(of(b"\x1b[2Jckb"), "\\u{1b}[2Jckb");
    assert_eq!(of(b"a\nb"), "a\\u{a}b");
    assert_eq!(of("\u{202e}gpj.exe".as_bytes()), "\\u{202e}gpj.exe");
    assert_ne!(of(b"a\x01"), of(b"a\x02"));
    assert_eq!(of_padded(b"rayon\0\x1b\0\0"), "rayon");
    assert_eq!(of_path(Path::new("/lib/\u{9b}31m")), "/lib/\\u{9b}31m");
}

/// Files that turn bytes into text by other means, since those are not a target's.
const OTHERS: [(&str, &str); 2] = [
    ("symbols/src/text.rs", "this is where"),
    ("bpf/src/sys.rs", "the verifier's log"),
];

#[test]
fn bytes_become_text_in_no_other_place() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let sources = ["src", "symbols/src", "bpf/src", "core/src"];
    let mut folders: Vec<PathBuf> = sources.map(|folder| root.join(folder)).into();
    let mut strays = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(&root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_string();
            if path.is_dir() {
                folders.push(path);
            } else if !name.contains("tests") && !OTHERS.iter().any(|(other, _)| *other == name) {
                let source = fs::read_to_string(&path).unwrap();
                let source = source.split("#[cfg(test)]").next().unwrap_or_default();
                for means in ["from_utf8_lossy", "to_string_lossy", ".display()"] {
                    if source.contains(means) {
                        strays.push(format!("{name}: {means}"));
                    }
                }
            }
        }
    }
    assert!(
        strays.is_empty(),
        "text::of and its kind are for this: {strays:#?}"
    );
}
