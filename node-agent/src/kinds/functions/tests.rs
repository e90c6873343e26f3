use ckb_probe_crds::{KindSpec, kinds::functions::default_limit};
use clap::{Parser, error::ErrorKind};

use super::*;
use crate::kinds::Asking as _;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    arguments: Arguments,
}

fn asked(line: &str) -> Result<KindSpec, ErrorKind> {
    let words = ["functions"].into_iter().chain(line.split_whitespace());
    let line = Line::try_parse_from(words).map_err(|error| error.kind())?;
    Ok(line.arguments.kind_spec())
}

fn probe(to: &[&str], to_return: &[&str]) -> FunctionsProbe {
    let owned = |globs: &[&str]| globs.iter().map(ToString::to_string).collect();
    FunctionsProbe {
        r#match: "enqueue".to_string(),
        library: None,
        limit: default_limit(),
        threshold: None,
        arguments: Vec::new(),
        stacks: false,
        include_single_stepped: false,
        to: owned(to),
        to_return: owned(to_return),
        key_argument: Some(2),
        key_name: None,
        traceparent_argument: None,
    }
}

#[test]
fn on_a_line_as_in_a_spec_either_sort_of_end_or_both_can_be_named() {
    for (line, expected) in [
        ("--to drop,refuse", probe(&["drop", "refuse"], &[])),
        ("--to-return handle", probe(&[], &["handle"])),
        (
            "--to drop --to-return handle,serve",
            probe(&["drop"], &["handle", "serve"]),
        ),
    ] {
        let kind = asked(&format!("--match enqueue {line} --key-argument 2"));
        assert_eq!(kind, Ok(expected.into()), "{line}");
    }
    let refused = |line: &str| asked(&format!("--match enqueue {line}")).unwrap_err();
    assert_eq!(
        refused("--key-argument 1"),
        ErrorKind::MissingRequiredArgument
    );
    assert_eq!(
        refused("--to-return handle --traceparent-argument 1"),
        ErrorKind::MissingRequiredArgument
    );
    assert_eq!(
        refused("--to-return handle --arguments integer"),
        ErrorKind::ArgumentConflict
    );
    let traced = "--match enqueue --to-return handle --threshold 1ms --traceparent-argument 1";
    assert!(asked(traced).is_ok());
}
