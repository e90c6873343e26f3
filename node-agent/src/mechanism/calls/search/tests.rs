use std::path::Path;

use ckb_probe_crds::kinds::rocksdb::{Operation, RocksDbProbe};

use super::*;
use crate::{
    kinds::{self, Instrument},
    observe::Binary,
};

const CALIBRATION: Calibration = Calibration {
    cost_per_call_ns: 1_200,
    single_step_cost_ns: 19_000,
    trap_ns: 0,
    calls: 0,
    counted: 0,
};

fn ask(operations: &[Operation], change: impl FnOnce(&mut RocksDbProbe)) -> Ask {
    let mut kind = RocksDbProbe {
        operations: operations.to_vec(),
        ..RocksDbProbe::default()
    };
    change(&mut kind);
    let kinds::Ask::Calls(ask) = kind.ask() else {
        unreachable!("it is a kind of calls");
    };
    ask
}

/// A binary that has these functions, in this order; those marked are single-stepped.
fn symbols(functions: &[(&'static str, bool)]) -> Symbols {
    let binary = Arc::new(Binary::open(Path::new("/proc/self/exe")).unwrap());
    let located = (1..).zip(functions).map(|(place, (name, stepped))| {
        let location = Location {
            binary: Arc::clone(&binary),
            offset: place * 16,
            first_instruction: if *stepped {
                FirstInstruction::SingleStepped
            } else {
                FirstInstruction::Emulated
            },
        };
        (SymbolName::Exact(name), vec![location])
    });
    Symbols {
        found: located.collect(),
        ..Symbols::default()
    }
}

fn searched(entry_only: bool) -> Searched {
    Searched {
        answers: Vec::new(),
        slots: Vec::new(),
        sites: Vec::new(),
        entry_only,
    }
}

fn answer(searched: &mut Searched, ask: &Ask, symbols: &Symbols) -> Result<Opened, Refusal> {
    let Sought::Listed(counted) = &ask.sought else {
        unreachable!("its functions have names");
    };
    let found = listed(counted, symbols, searched.entry_only)?;
    searched.answer(found, &ask.measures, CALIBRATION, LoadId(3))
}

fn loads(opened: &Opened) -> Vec<(&str, u16)> {
    let strands = opened.strands.iter();
    let named = strands.map(|strand| (strand.row.as_deref().unwrap(), strand.load.0));
    named.collect()
}

const GET: &str = "rocksdb_get_pinned_cf";
const COMMIT: &str = "rocksdb_transaction_commit";
const SEEK: &str = "rocksdb_iter_seek";
const SEEK_TO_FIRST: &str = "rocksdb_iter_seek_to_first";

#[test]
fn a_missing_operation_has_no_load_and_its_function_is_named() {
    let ask = ask(&[Operation::Get, Operation::TxnCommit], |_| ());
    let there = Symbols {
        stripped: true,
        ..symbols(&[(GET, false)])
    };
    let mut all = searched(false);
    let opened = answer(&mut all, &ask, &there).unwrap();
    assert_eq!(loads(&opened), [("Get", 3)]);
    let lack = Lack {
        reason: Reason::SymbolNotFound,
        items: vec!["TxnCommit".to_string()],
    };
    assert_eq!(opened.coverage.lacks, [lack]);
    assert!(opened.coverage.may_grow);
    assert_eq!(
        opened.coverage.sentence,
        "; not measured: TxnCommit, since rocksdb_transaction_commit was not found: the binary is stripped (it has no symbol \
         table): use a build that is not"
    );
}

#[test]
fn an_operation_that_one_of_its_functions_serves_lacks_nothing() {
    let ask = ask(&[Operation::IteratorSeek], |_| ());
    let mut all = searched(false);
    let opened = answer(&mut all, &ask, &symbols(&[(SEEK, false)])).unwrap();
    assert_eq!(loads(&opened), [("IteratorSeek", 3)]);
    assert!(opened.coverage.lacks.is_empty());
    assert!(opened.coverage.may_grow, "a library may have the others");
}

#[test]
fn where_nothing_is_there_the_answer_says_what_was_looked_for() {
    let ask = ask(&[Operation::Get], |_| ());
    let refusal = answer(&mut searched(false), &ask, &symbols(&[])).unwrap_err();
    assert_eq!(refusal.reason, Reason::SymbolNotFound);
    assert_eq!(
        refusal.message,
        "none of the functions asked for is in the executable; not measured: Get, since rocksdb_get_pinned_cf was not \
         found: the binary has a symbol table, but was built without them"
    );
    assert_eq!(refusal.lacks[0].items, ["Get"]);
}

#[test]
fn what_must_be_single_stepped_is_left_out_unless_asked_for() {
    let there = symbols(&[(SEEK, true), (SEEK_TO_FIRST, true)]);
    let cheap = ask(&[Operation::IteratorSeek], |_| ());
    let mut all = searched(false);
    let refusal = answer(&mut all, &cheap, &there).unwrap_err();
    assert_eq!(refusal.reason, Reason::SingleStepped);
    assert!(
        refusal.message.contains(
            "rocksdb_iter_seek, rocksdb_iter_seek_to_first were left out (hence not measured: IteratorSeek)"
        ),
        "{refusal}"
    );
    let lack = Lack {
        reason: Reason::SingleStepped,
        items: vec![SEEK.to_string(), SEEK_TO_FIRST.to_string()],
    };
    assert_eq!(refusal.lacks, [lack]);
    // Another view asks for it all the same, of the same process.
    let dear = ask(&[Operation::IteratorSeek], |kind| {
        kind.include_single_stepped = true;
    });
    let opened = answer(&mut all, &dear, &there).unwrap();
    assert_eq!(loads(&opened), [("IteratorSeek", 3)]);
    let costs: Vec<_> = all.sites.iter().map(|(_, cost)| *cost).collect();
    assert_eq!(costs, [Duration::from_nanos(19_000); 2]);
    assert!(answer(&mut all, &cheap, &there).is_err());
}

#[test]
fn what_two_ask_alike_is_counted_once() {
    let there = symbols(&[(GET, false), (COMMIT, false)]);
    let mut all = searched(false);
    let one = ask(&[Operation::Get, Operation::TxnCommit], |_| ());
    let other = ask(&[Operation::TxnCommit], |_| ());
    let slower = ask(&[Operation::Get], |kind| {
        kind.slow_threshold = Duration::from_millis(2).into();
    });
    let opened = answer(&mut all, &one, &there).unwrap();
    assert_eq!(loads(&opened), [("Get", 3), ("TxnCommit", 4)]);
    assert_eq!(
        loads(&answer(&mut all, &other, &there).unwrap()),
        [("TxnCommit", 4)]
    );
    assert_eq!(
        loads(&answer(&mut all, &slower, &there).unwrap()),
        [("Get", 5)]
    );
    let sites: Vec<_> = all
        .sites
        .iter()
        .map(|(site, _)| (site.symbol.as_str(), site.slot, site.slow_threshold_ns))
        .collect();
    assert_eq!(
        sites,
        [
            (GET, 0, 1_000_000),
            (COMMIT, 1, 1_000_000),
            (GET, 2, 2_000_000)
        ]
    );
}

#[test]
fn a_place_that_has_two_names_counts_once() {
    let mut there = symbols(&[(SEEK, false), (SEEK_TO_FIRST, false)]);
    let folded = there.found[&SymbolName::Exact(SEEK)].clone();
    there.found.insert(SymbolName::Exact(SEEK_TO_FIRST), folded);
    let mut all = searched(false);
    answer(&mut all, &ask(&[Operation::IteratorSeek], |_| ()), &there).unwrap();
    assert_eq!(all.sites.len(), 1);
}

#[test]
fn more_than_a_byte_can_number_is_refused_and_leaves_the_rest() {
    let there = symbols(&[(GET, false)]);
    let mut all = searched(false);
    let mut asking = |microseconds| {
        let ask = ask(&[Operation::Get], |kind| {
            kind.slow_threshold = Duration::from_micros(microseconds).into();
        });
        answer(&mut all, &ask, &there)
    };
    for microseconds in 1..=256 {
        assert!(asking(microseconds).is_ok());
    }
    let refusal = asking(257).unwrap_err();
    assert_eq!(refusal.reason, Reason::AttachFailed);
    assert!(refusal.message.contains("256 operations"), "{refusal}");
    assert!(asking(256).is_ok());
}

#[test]
fn of_a_confined_process_it_is_said_that_calls_are_not_timed() {
    let ask = ask(&[Operation::Get], |_| ());
    let opened = answer(&mut searched(true), &ask, &symbols(&[(GET, false)])).unwrap();
    let lack = Lack {
        reason: Reason::EntryOnly,
        items: Vec::new(),
    };
    assert_eq!(opened.coverage.lacks, [lack]);
    assert!(!opened.coverage.may_grow);
    assert!(
        opened
            .coverage
            .sentence
            .starts_with("; calls are counted and not timed")
    );
}
