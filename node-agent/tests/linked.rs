//! What the agent is linked with, which is memory on each node as long as it runs.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::fs;

use object::{Object as _, ObjectSymbol as _};

/// Of what a reader of kubeconfigs takes, YAML above all, and a filter by fields of spans: as their functions are called.
const LARGE: [&str; 3] = ["granit_parser6parser", "jsonpath_rust", "regex_automata"];

/// What of it a program has.
fn linked(program: &str) -> Vec<&'static str> {
    let bytes = fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let has = |library: &&str| {
        let mut all = file.symbols().filter(|symbol| symbol.is_definition());
        all.any(|symbol| symbol.name().is_ok_and(|name| name.contains(library)))
    };
    LARGE.into_iter().filter(has).collect()
}

#[test]
fn an_agent_has_no_reader_of_kubeconfigs_and_no_regular_expressions() {
    // Who has them shows that they would be found.
    assert_eq!(linked(env!("CARGO_BIN_EXE_ckb-probe")), LARGE);
    assert_eq!(linked(env!("CARGO_BIN_EXE_node-agent")), [""; 0]);
}

/// Not `pow`, which the scheduler of several threads takes: where tests are built beside, which want one, it is in the agent too. `make release`
/// looks at what it builds.
const MATHEMATICS: [&str; 4] = ["exp", "exp2", "log", "log2"];

#[test]
fn an_agent_has_no_library_of_mathematics_beside_its_own() {
    // The command line draws, too, which takes more.
    let wanted = |program: &str| {
        let bytes = fs::read(program).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let all = file
            .dynamic_symbols()
            .filter(|symbol| symbol.is_undefined());
        let names = all.filter_map(|symbol| Some(symbol.name().ok()?.to_owned()));
        let mathematics = names.filter(|name| MATHEMATICS.contains(&name.as_str()));
        mathematics.count()
    };
    assert_ne!(wanted(env!("CARGO_BIN_EXE_ckb-probe")), 0);
    assert_eq!(wanted(env!("CARGO_BIN_EXE_node-agent")), 0);
}
