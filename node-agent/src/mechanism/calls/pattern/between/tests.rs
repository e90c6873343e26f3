use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::*;
use crate::{
    kernel::{Binary, FamilyArgument, Payload},
    observe::{FirstInstruction, Location},
};

/// A program whose functions are where these are told to be.
struct Program {
    binary: Arc<Binary>,
    functions: &'static [(&'static str, u64)],
    go: bool,
}

impl Program {
    fn of(functions: &'static [(&'static str, u64)]) -> Self {
        Self {
            binary: Arc::new(Binary::open(Path::new("/proc/self/exe")).unwrap()),
            functions,
            go: false,
        }
    }

    /// Those whose names begin with the pattern.
    fn find(&self, matching: &Matching) -> Result<Matched, Refusal> {
        assert_eq!(matching.span, None);
        let glob = &matching.pattern.glob;
        let named = self
            .functions
            .iter()
            .filter(|(name, _)| name.starts_with(glob.as_str()));
        let sites = named.map(|(name, offset)| FoundSite {
            symbol: name.to_string(),
            payload: Payload::Unknown,
            family: FamilyArgument::None,
            location: Location {
                binary: Arc::clone(&self.binary),
                offset: *offset,
                first_instruction: FirstInstruction::Emulated,
            },
            semaphore: None,
            entry_only: false,
            hit: None,
        });
        let groups: Vec<_> = sites
            .map(|site| (counted(site.symbol.clone(), matching), vec![site]))
            .collect();
        match groups.is_empty() {
            true => Err(Refusal::new(
                Reason::SymbolNotFound,
                format!("nothing matches {glob}"),
            )),
            false => Ok(Matched {
                groups,
                left_out: BTreeSet::new(),
                shared: Default::default(),
                variants: Vec::new(),
                indirect: Vec::new(),
                go: self.go,
            }),
        }
    }
}

fn asked(from: &str, to: &[&str], key: Option<u8>) -> Matching {
    Matching {
        pattern: Pattern {
            glob: from.to_string(),
            library: None,
            limit: 50,
        },
        slow_threshold_ns: 7,
        include_single_stepped: false,
        arguments: Vec::new(),
        stacks: false,
        span: Some(Span::between(from, to, key, 7)),
    }
}

fn spanned(program: &Program, matching: &Matching) -> Result<Matched, String> {
    let span = matching.span.as_ref().unwrap();
    let matched = spanning(matching, span, |one| program.find(one));
    matched.map_err(|refusal| refusal.message)
}

const FUNCTIONS: &[(&str, u64)] = &[
    ("accept", 16),
    ("accept_late", 32),
    ("answer", 48),
    ("answer_again", 64),
    ("fail", 80),
];

#[test]
fn each_place_begins_or_ends_one_row_and_no_return_is_touched() {
    let program = Program::of(FUNCTIONS);
    let matching = asked("accept", &["answer", "answer_again", "fail"], Some(2));
    let matched = spanned(&program, &matching).unwrap();
    let [(counted, sites)] = &matched.groups[..] else {
        panic!("{} groups", matched.groups.len());
    };
    assert_eq!(counted.row, "accept to answer or answer_again or fail");
    assert_eq!(
        (counted.slow_threshold_ns, &counted.span),
        (7, &matching.span)
    );
    let places: Vec<_> = sites
        .iter()
        .map(|site| (site.location.offset, site.hit.unwrap().role))
        .collect();
    assert_eq!(
        places,
        [
            (16, Role::Begins),
            (32, Role::Begins),
            (48, Role::Ends),
            // Two patterns find it.
            (64, Role::Ends),
            (80, Role::Ends),
        ]
    );
    for site in sites {
        assert!(site.entry_only);
        // The second argument is in rsi.
        let key = site.hit.unwrap().key.unwrap();
        assert_eq!((key.base, key.bytes, key.is_in_memory), (6, 8, 0));
    }
}

fn returning(from: &str, to: &[&str], to_return: &[&str], key: Option<u8>) -> Matching {
    let mut matching = asked(from, to, key);
    let span = matching.span.as_mut().unwrap();
    span.to_return = to_return.iter().map(ToString::to_string).collect();
    matching
}

#[test]
fn what_ends_as_a_function_returns_has_its_return_touched_and_nothing_else_has() {
    let program = Program::of(FUNCTIONS);
    let matching = returning("accept", &["fail"], &["answer_again", "answer"], Some(2));
    let matched = spanned(&program, &matching).unwrap();
    let [(counted, sites)] = &matched.groups[..] else {
        panic!("{} groups", matched.groups.len());
    };
    assert_eq!(
        counted.row,
        "accept to fail or the return of answer_again or the return of answer"
    );
    let places: Vec<_> = sites
        .iter()
        .map(|site| {
            let hit = site.hit.unwrap();
            assert_eq!(hit.key.unwrap().base, 6, "the second argument is in rsi");
            (site.location.offset, hit.role, site.entry_only)
        })
        .collect();
    assert_eq!(
        places,
        [
            (16, Role::Begins, true),
            (32, Role::Begins, true),
            (80, Role::Ends, true),
            // Two patterns find it.
            (64, Role::EndsAtReturn, false),
            (48, Role::EndsAtReturn, false),
        ]
    );
}

#[test]
fn what_would_end_twice_or_as_go_returns_is_refused_with_a_sentence() {
    let program = Program::of(FUNCTIONS);
    let refused = |from, to: &[&str], to_return: &[&str]| {
        let matching = returning(from, to, to_return, None);
        spanned(&program, &matching).err().unwrap()
    };
    assert_eq!(
        refused("accept", &["answer"], &["answer_again"]),
        "answer_again would end what is measured as it begins, and again as it returns: name it in to, or in toReturn"
    );
    assert_eq!(
        refused("accept", &[], &["accept_late"]),
        "accept_late would both begin and end what is measured: name others in match, or in toReturn; how long its calls take is \
         measured without either"
    );
    let go = Program {
        go: true,
        ..Program::of(FUNCTIONS)
    };
    let matching = returning("accept", &[], &["answer"], None);
    let span = matching.span.as_ref().unwrap();
    let refusal = spanning(&matching, span, |one| go.find(one)).err().unwrap();
    assert_eq!(refusal.reason, Reason::EntryOnly);
    assert_eq!(
        refusal.message,
        "answer is a function of Go, which moves its stacks: a probe at a return would break the process. Name in to what is called \
         next, and leave it out of toReturn"
    );
}

#[test]
fn a_traceparent_is_an_argument_of_what_begins_and_of_nothing_else() {
    let program = Program::of(FUNCTIONS);
    let asking = |parent| {
        let mut matching = asked("accept", &["answer", "fail"], None);
        matching.span.as_mut().unwrap().parent = Some(parent);
        matching
    };
    let matched = spanned(&program, &asking(3)).unwrap();
    for site in matched.groups.iter().flat_map(|(_, sites)| sites) {
        let hit = site.hit.unwrap();
        // The third argument is in rdx.
        let parent = hit.parent.map(|parent| (parent.base, parent.kind));
        let expected = (hit.role == Role::Begins).then_some((2, ValueKind::Text as u8));
        assert_eq!((parent, hit.key), (expected, None));
    }
    let go = Program {
        go: true,
        ..Program::of(FUNCTIONS)
    };
    let refused = |program: &Program, parent| spanned(program, &asking(parent)).err().unwrap();
    assert_eq!(
        refused(&go, 3),
        "accept is a function of Go, which passes arguments in ways of its own: leave traceparentArgument out"
    );
    assert_eq!(
        refused(&program, 7),
        "argument 7 is not in a register: traceparentArgument is from 1 to 6"
    );
}

#[test]
fn what_cannot_be_told_apart_is_refused_with_a_sentence() {
    let program = Program::of(FUNCTIONS);
    let refused = |from, to: &[&str], key| spanned(&program, &asked(from, to, key)).err().unwrap();
    assert_eq!(
        refused("accept", &["accept_late"], None),
        "accept_late would both begin and end what is measured: name others in match, or in to"
    );
    assert_eq!(
        refused("accept", &["nobody"], None),
        "nothing matches nobody"
    );
    assert_eq!(
        refused("accept", &["answer"], Some(7)),
        "argument 7 is not in a register: keyArgument is from 1 to 6"
    );
    let go = Program {
        go: true,
        ..Program::of(FUNCTIONS)
    };
    let by_thread = spanned(&go, &asked("accept", &["answer"], None)).unwrap();
    assert!(
        !by_thread.go,
        "a return would break it, and none is touched"
    );
    let by_key = spanned(&go, &asked("accept", &["answer"], Some(1)))
        .err()
        .unwrap();
    assert!(by_key.starts_with("accept is a function of Go"), "{by_key}");
}
