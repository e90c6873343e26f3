use std::path::Path;

use ckb_probe_symbols::elf::{Nops, RefusedSite, UsdtProbes, UsdtSite};

use super::*;
use crate::kernel::Binary;

fn site(provider: &str, name: &str, offset: u64, semaphore: Option<u64>) -> UsdtSite {
    UsdtSite {
        provider: provider.to_string(),
        name: name.to_string(),
        offset,
        nops: Nops::One,
        semaphore,
        arguments: Vec::new(),
    }
}

fn file(sites: Vec<UsdtSite>, refused: Vec<RefusedSite>) -> UsdtFile {
    UsdtFile {
        binary: Arc::new(Binary::open(Path::new("/proc/self/exe")).unwrap()),
        probes: Arc::new(UsdtProbes {
            sites,
            refused,
            malformed: 0,
        }),
    }
}

fn database() -> UsdtFile {
    file(
        vec![
            site("db", "query__start", 16, Some(512)),
            site("db", "query__done", 32, None),
            site("db", "query__start", 48, Some(512)),
            // Two notes of one place.
            site("db", "query__start", 48, Some(512)),
            site("db", "sort__start", 64, None),
            site("language", "query__start", 80, None),
        ],
        Vec::new(),
    )
}

fn ask(provider: &str, names: &[&str], limit: usize) -> UsdtPattern {
    UsdtPattern {
        provider: provider.to_string(),
        names: names.iter().map(ToString::to_string).collect(),
        limit,
        by: None,
        span: None,
        payload: None,
    }
}

fn refusal(files: &[UsdtFile], pattern: &UsdtPattern) -> (Reason, String) {
    let refusal = matching(files, pattern).err().unwrap();
    (refusal.reason, refusal.message)
}

#[test]
fn each_name_is_a_row_of_all_its_places_which_are_counted_as_they_are_met() {
    let found = matching(&[database()], &ask("db", &["query__*", "query__done"], 2)).unwrap();
    let told: Vec<_> = found
        .groups
        .iter()
        .map(|(counted, sites)| {
            let sites = sites.iter();
            let sites = sites.map(|site| (site.location.offset, site.semaphore));
            (counted.row.as_str(), sites.collect::<Vec<_>>())
        })
        .collect();
    assert_eq!(
        told,
        [
            ("query__done", vec![(32, None)]),
            ("query__start", vec![(16, Some(512)), (48, Some(512))]),
        ]
    );
    let mut sites = found.groups.iter().flat_map(|(_, sites)| sites);
    assert!(sites.all(|site| site.entry_only && !site.symbol.is_empty()));
    assert_eq!(found.coverage, Coverage::default());
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    let files = [database()];
    assert_eq!(
        refusal(&files, &ask("db", &["transaction__*"], 50)),
        (
            Reason::SymbolNotFound,
            "no USDT probe of db matches transaction__*; there is query__done, query__start, sort__start".to_string()
        )
    );
    assert_eq!(
        refusal(&files, &ask("postgresql", &["*"], 50)),
        (
            Reason::SymbolNotFound,
            "no file of the process has USDT probes of postgresql; there are those of db, language"
                .to_string()
        )
    );
    let (reason, message) = refusal(&[], &ask("db", &["*"], 50));
    assert_eq!(reason, Reason::SymbolNotFound);
    assert!(
        message.starts_with("the process has no USDT probes, of db or of anybody"),
        "{message}"
    );
    assert_eq!(
        refusal(&files, &ask("db", &["[", "*"], 50)),
        (
            Reason::AttachFailed,
            "[ is no pattern: a [ in it has no ] (a [ itself is written [[])".to_string()
        )
    );
}

#[test]
fn more_than_the_limit_are_refused_with_examples() {
    assert_eq!(
        refusal(&[database()], &ask("db", &["*"], 2)),
        (
            Reason::TooManyMatches,
            "* matches 3 USDT probes of db, more than the limit of 2: for example query__done, query__start, sort__start; \
             name fewer, or raise limit"
                .to_string()
        )
    );
}

#[test]
fn a_place_that_could_not_be_attached_to_is_told() {
    let refused = |name: &str, why| RefusedSite {
        provider: "db".to_string(),
        name: name.to_string(),
        why,
    };
    let broken = || {
        vec![
            refused("query__done", SiteError::NoNop),
            refused("other", SiteError::NoCode),
        ]
    };
    let sites = vec![site("db", "query__start", 16, None)];
    let found = matching(&[file(sites, broken())], &ask("db", &["query__*"], 50)).unwrap();
    assert_eq!(
        found.coverage.sentence,
        "; of query__done a place was left out: there is no nop at its address"
    );
    assert_eq!(
        found.coverage.lacks,
        [lack(
            Reason::SymbolNotFound,
            vec!["query__done".to_string()]
        )]
    );
    let (_, message) = refusal(&[file(Vec::new(), broken())], &ask("db", &["other"], 50));
    assert!(
        message.ends_with(
            "; of other a place was left out: its address is not in the code of the file"
        ),
        "{message}"
    );
}

fn between(from: &str, to: &[&str], key: Option<u8>) -> UsdtPattern {
    UsdtPattern {
        span: Some(Span::between(from, to, key, 1000)),
        ..ask("db", &["*"], 1)
    }
}

fn spans(pattern: &UsdtPattern) -> Result<Found, Refusal> {
    spanning(&[database()], pattern, pattern.span.as_ref().unwrap())
}

#[test]
fn what_begins_and_what_ends_is_one_row_of_all_places_of_both() {
    let pattern = between("query__start", &["query__done", "sort__start"], None);
    let found = spans(&pattern).unwrap();
    let [(counted, sites)] = &found.groups[..] else {
        panic!("one row");
    };
    assert_eq!(counted.row, "query__start to query__done or sort__start");
    assert_eq!(counted.slow_threshold_ns, 1000);
    let sites = sites
        .iter()
        .map(|site| (site.location.offset, site.hit.unwrap().role));
    assert_eq!(
        sites.collect::<Vec<_>>(),
        [
            (16, Role::Begins),
            (48, Role::Begins),
            (32, Role::Ends),
            (64, Role::Ends),
        ]
    );
}

#[test]
fn a_beginning_or_an_end_that_is_not_there_is_refused() {
    let refused = |pattern: &UsdtPattern| spans(pattern).err().unwrap().message;
    assert_eq!(
        refused(&between("query__start", &["query__dome"], None)),
        "no USDT probe of db matches query__dome; there is query__done, query__start, sort__start"
    );
    // Whole names, not patterns.
    assert_eq!(
        refused(&between("query__s*", &["query__done"], None)),
        "no USDT probe of db is called query__s*"
    );
    assert_eq!(
        refused(&between("query__start", &["query__done"], Some(1))),
        "db:query__start has no argument 1: it has no arguments"
    );
}
