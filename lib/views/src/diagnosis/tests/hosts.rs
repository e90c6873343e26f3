//! The same places on a host, without a cluster.

use ckb_probe_crds::{Check, Reason};

use super::super::{
    Mark, Place,
    host::{Counted, Functions, HostSnapshot},
};

fn healthy() -> HostSnapshot {
    HostSnapshot {
        checks: vec![Check {
            name: "Kernel".to_owned(),
            passed: true,
            detail: "6.18, x86_64".to_owned(),
        }],
        means: Some(Ok("attaches by session".to_owned())),
        process: Some(Ok("process 12 (ckb)".to_owned())),
        symbols: Some(Ok(Functions {
            found: 40,
            wanted: true,
            ..Functions::default()
        })),
        attached: Some(Ok(String::new())),
        figures: Some(Counted {
            seconds: 3.0,
            any: true,
            headline: "733/s p99 96.3us".to_owned(),
            quiet: false,
        }),
        refused: Vec::new(),
    }
}

/// What fails, of a host that is changed like this.
fn failure(change: impl FnOnce(&mut HostSnapshot)) -> (Place, Option<Reason>, String) {
    let mut found = healthy();
    change(&mut found);
    let found = found.diagnose();
    assert!(!found.ok);
    let first = found.first_failure().unwrap();
    assert_eq!(
        found.findings.last(),
        Some(first),
        "nothing is said of what comes after it"
    );
    assert!(first.see.is_some());
    (first.place, first.reason, first.text.clone())
}

#[test]
fn all_is_well() {
    let found = healthy().diagnose();
    assert!(found.ok && found.findings.iter().all(|one| one.mark == Mark::Passed));
    let texts: Vec<&str> = found.findings.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "attaches by session",
            "process 12 (ckb)",
            "all 40 functions that are measured by name are there",
            "all that is asked is attached",
            "within 3 s: 733/s p99 96.3us",
        ]
    );
}

#[test]
fn each_place_fails_by_itself() {
    let failed = failure(|one| one.means = Some(Err("no way to attach works".to_owned())));
    assert_eq!(
        failed,
        (
            Place::Node,
            Some(Reason::PreflightFailed),
            "no way to attach works".to_owned()
        )
    );
    let failed = failure(|one| one.process = Some(Err("no process ckb".to_owned())));
    assert_eq!(
        (failed.0, failed.1),
        (Place::Process, Some(Reason::ExecutableNotFound))
    );
    let stripped = Functions {
        stripped: true,
        wanted: true,
        ..Functions::default()
    };
    let failed = failure(|one| one.symbols = Some(Ok(stripped)));
    assert_eq!(
        failed,
        (
            Place::Symbols,
            Some(Reason::SymbolNotFound),
            "its executable is stripped: it has no symbol table".to_owned()
        )
    );
    let failed = failure(|one| one.symbols = Some(Err("cannot search /ckb".to_owned())));
    assert_eq!((failed.0, failed.1), (Place::Symbols, None));
    let refused = (Reason::AttachFailed, "Operation not permitted".to_owned());
    let failed = failure(|one| one.attached = Some(Err(refused)));
    assert_eq!(
        (failed.0, failed.1),
        (Place::Kernel, Some(Reason::AttachFailed))
    );
    let failed = failure(|one| one.figures.as_mut().unwrap().any = false);
    assert_eq!((failed.0, failed.1), (Place::Figures, Some(Reason::Silent)));
}

#[test]
fn what_is_missing_and_keeps_nothing_from_being_measured_is_a_warning() {
    let mut found = healthy();
    found.checks[0].passed = false;
    found.attached = Some(Ok(", without MultiGet".to_owned()));
    found.figures = Some(Counted {
        quiet: true,
        seconds: 3.0,
        ..Counted::default()
    });
    let found = found.diagnose();
    assert!(found.ok);
    let warned = found
        .findings
        .iter()
        .filter(|one| one.mark == Mark::Warning);
    let warned: Vec<&str> = warned.map(|one| one.text.as_str()).collect();
    assert_eq!(
        warned,
        ["Kernel: 6.18, x86_64", "attached, without MultiGet"]
    );
}

#[test]
fn what_one_question_lacks_is_broken_and_keeps_no_other_from_being_told() {
    let mut found = healthy();
    found.symbols = Some(Ok(Functions {
        wanted: true,
        not_by_all: true,
        ..Functions::default()
    }));
    found.refused = vec![(
        "blocks".to_owned(),
        Reason::SymbolNotFound,
        "ckb has none of the functions".to_owned(),
    )];
    let found = found.diagnose();
    assert!(!found.ok);
    let told: Vec<(Mark, &str)> = found
        .findings
        .iter()
        .skip(2)
        .map(|one| (one.mark, one.text.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (
                Mark::Failed,
                "blocks is not measured: ckb has none of the functions"
            ),
            (Mark::Passed, "all else that is asked is attached"),
            (Mark::Passed, "within 3 s: 733/s p99 96.3us"),
        ]
    );
    let first = found.first_failure().unwrap();
    assert_eq!(first.reason, Some(Reason::SymbolNotFound));
    assert!(first.see.is_some() && !first.next.is_empty());
}

#[test]
fn what_was_seen_too_seldom_for_a_rate_is_not_called_nothing() {
    let mut found = healthy();
    let counted = found.figures.as_mut().unwrap();
    counted.headline.clear();
    let found = found.diagnose();
    assert!(found.ok);
    let last = found.findings.last().unwrap();
    assert_eq!(
        (last.place, last.mark, last.text.as_str()),
        (
            Place::Figures,
            Mark::Warning,
            "within 3 s something was seen, and too little was watched to tell how often"
        )
    );
    assert_eq!(last.next, ["ckb-probe check --seconds 30 --pid PID"]);
}
