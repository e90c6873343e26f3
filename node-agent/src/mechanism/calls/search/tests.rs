use std::path::Path;

use ckb_probe_crds::{
    Lack,
    kinds::rocksdb::{Operation, RocksDbProbe},
};

use super::*;
use crate::{
    kernel::{Binary, LookedAt},
    kinds::Instrument,
    mechanism::calls::{Told, UsdtPattern},
};

const CALIBRATION: Calibration = Calibration {
    cost_per_call_ns: 1_200,
    counted_cost_ns: 800,
    further_cost_ns: 500,
    single_step_cost_ns: 19_000,
    trap_ns: 0,
    inner_ns: 0,
    calls: 0,
    counted: 0,
};

fn ask(operations: &[Operation], change: impl FnOnce(&mut RocksDbProbe)) -> CallsConfig {
    let mut kind = RocksDbProbe {
        operations: operations.to_vec(),
        ..RocksDbProbe::default()
    };
    change(&mut kind);
    kind.config().of().unwrap()
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

fn searched() -> Searched {
    let bounds = Bounds {
        cpus: 8,
        bytes: u64::MAX,
    };
    Searched::nothing(true, 160, bounds)
}

fn answer(
    searched: &mut Searched,
    ask: &CallsConfig,
    symbols: &Symbols,
) -> Result<Accepted, Refusal> {
    let found = listed(ask.sought.listed(), symbols)?;
    searched.answer(found, &ask.measures, CALIBRATION, GroupId(3))
}

fn loads(opened: &Accepted) -> Vec<(&str, u16)> {
    let subscriptions = opened.subscriptions.iter();
    let named = subscriptions
        .map(|subscription| (subscription.row.as_deref().unwrap(), subscription.group.0));
    named.collect()
}

#[test]
fn what_one_has_told_apart_by_family_is_counted_once_for_all() {
    let apart = ask(&[Operation::Get], |kind| kind.by_column_family = true);
    let whole = ask(&[Operation::Get, Operation::TxnCommit], |_| ());
    let slower = ask(&[Operation::Get], |kind| {
        kind.slow_threshold = Duration::from_millis(7).into();
    });
    let asks = [whole, apart, slower];
    let there = symbols(&[(GET, false), (COMMIT, false)]);
    let mut all = searched();
    let opened = asks.each_ref().map(|ask| {
        let found = listed(&together(ask.sought.listed(), &asks), &there).unwrap();
        let opened = all.answer(found, &ask.measures, CALIBRATION, GroupId(3));
        as_asked(opened.unwrap(), &ask.sought)
    });
    assert_eq!(loads(&opened[0]), [("Get", 3), ("TxnCommit", 4)]);
    assert_eq!(loads(&opened[1]), [("Get", 3)]);
    // Whose threshold is another has a program of its own.
    assert_eq!(loads(&opened[2]), [("Get", 5)]);
    let parts = |opened: &Accepted| opened.subscriptions[0].parts;
    assert_eq!(
        opened.each_ref().map(parts),
        [Breakdown::None, Breakdown::All, Breakdown::None]
    );
    // The kernel traps once for both.
    let further = Duration::from_nanos(CALIBRATION.further_cost_ns);
    assert_eq!(all.beside, BTreeMap::from([(2, (0, further))]));
    let families: Vec<_> = all.sites.iter().map(|(site, _)| site.family).collect();
    assert_ne!(families[0], FamilyArgument::None);
    assert_eq!(families[1..], [FamilyArgument::None; 2]);
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
    let mut all = searched();
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
    let mut all = searched();
    let opened = answer(&mut all, &ask, &symbols(&[(SEEK, false)])).unwrap();
    assert_eq!(loads(&opened), [("IteratorSeek", 3)]);
    assert!(opened.coverage.lacks.is_empty());
    assert!(opened.coverage.may_grow, "a library may have the others");
}

#[test]
fn where_nothing_is_there_the_answer_says_what_was_looked_for() {
    let ask = ask(&[Operation::Get], |_| ());
    let refusal = answer(&mut searched(), &ask, &symbols(&[])).unwrap_err();
    assert_eq!(refusal.reason, Reason::SymbolNotFound);
    assert_eq!(
        refusal.message,
        "none of the functions asked for is in the executable; not measured: Get, since rocksdb_get, \
         rocksdb_get_cf, rocksdb_get_pinned, rocksdb_get_pinned_cf were not found: the binary has a symbol table, but was built without them"
    );
    assert_eq!(refusal.lacks[0].items, ["Get"]);
}

#[test]
fn what_must_be_single_stepped_is_left_out_unless_asked_for() {
    let there = symbols(&[(SEEK, true), (SEEK_TO_FIRST, true)]);
    let cheap = ask(&[Operation::IteratorSeek], |_| ());
    let mut all = searched();
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
    let mut all = searched();
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
    let mut all = searched();
    answer(&mut all, &ask(&[Operation::IteratorSeek], |_| ()), &there).unwrap();
    assert_eq!(all.sites.len(), 1);
}

#[test]
fn more_than_a_byte_can_number_is_refused_and_leaves_the_rest() {
    let there = symbols(&[(GET, false)]);
    let mut all = searched();
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

fn take(searched: &mut Searched, ask: &CallsConfig, symbols: &Symbols, go: bool) {
    let found = listed(ask.sought.listed(), symbols).map(|found| Found { go, ..found });
    searched.take(found, ask, CALIBRATION, GroupId(3));
}

fn is_said_to_be_entry_only(answer: &Result<Accepted, Refusal>) -> bool {
    let (lacks, text) = match answer {
        Ok(opened) => (&opened.coverage.lacks, &opened.coverage.sentence),
        Err(refusal) => (&refusal.lacks, &refusal.message),
    };
    let told = lacks.iter().any(|lack| lack.reason == Reason::EntryOnly);
    assert_eq!(told, text.contains("; calls are counted and not timed"));
    told
}

#[test]
fn of_what_is_measured_of_a_confined_process_it_is_said_that_calls_are_not_timed() {
    // With all that serve a read: a library may have what is not there.
    let functions = ["rocksdb_get", "rocksdb_get_cf", "rocksdb_get_pinned", GET];
    let there = symbols(&functions.map(|name| (name, false)));
    let mut all = searched();
    let read = ask(&[Operation::Get], |kind| kind.file_io = true);
    take(&mut all, &read, &there, false);
    take(
        &mut all,
        &ask(&[Operation::TxnCommit], |_| ()),
        &there,
        false,
    );
    let told = |all: &Searched| {
        let opened = all.answers[0].as_ref().unwrap();
        let names = opened.subscriptions[0].blank.sums.keys();
        names.map(ToString::to_string).collect::<Vec<_>>()
    };
    let timed = ["bytes", "missed", "readBytes", "reads", "slow"];
    assert_eq!(told(&all), timed);
    all.tell_entry_only(true);
    // Nothing is known of what a call does until it ends.
    assert_eq!(told(&all), ["bytes", "slow"]);
    assert!(!all.slots[0].0.files.asked().any());
    assert!(all.sites.iter().all(|(site, _)| site.entry_only));
    let [Ok(opened), refused] = &all.answers[..] else {
        unreachable!("one of them is there");
    };
    let lack = Lack {
        reason: Reason::EntryOnly,
        items: Vec::new(),
    };
    assert_eq!(opened.coverage.lacks, [lack]);
    assert!(!opened.coverage.may_grow);
    assert!(opened.coverage.sentence.ends_with(CONFINED));
    assert!(!is_said_to_be_entry_only(refused));
}

#[test]
fn a_kernel_that_does_not_tell_what_threads_read_is_not_asked() {
    let there = symbols(&[(GET, false)]);
    let told = |tells_files| {
        let mut all = Searched {
            tells_files,
            ..searched()
        };
        let asked = ask(&[Operation::Get], |kind| kind.file_io = true);
        take(&mut all, &asked, &there, false);
        let blank = &all.answers[0].as_ref().unwrap().subscriptions[0].blank;
        (
            all.sites[0].0.files.read(),
            blank.sums.contains_key("reads"),
        )
    };
    assert_eq!(told(true), (true, true));
    assert_eq!(told(false), (false, false));
}

#[test]
fn what_is_not_timed_for_the_sake_of_another_question_says_so_unless_that_was_refused() {
    let there = symbols(&[(GET, false), (COMMIT, false)]);
    let told = |bounds: Bounds, first: Operation| {
        let mut all = Searched {
            bounds,
            ..searched()
        };
        take(&mut all, &ask(&[first], |_| ()), &there, false);
        take(
            &mut all,
            &ask(&[Operation::TxnCommit], |_| ()),
            &there,
            true,
        );
        all.tell_entry_only(false);
        let told = all.answers.iter().map(is_said_to_be_entry_only);
        (
            all.sites.iter().all(|(site, _)| site.entry_only),
            told.collect::<Vec<_>>(),
        )
    };
    let roomy = searched().bounds;
    assert_eq!(told(roomy, Operation::Get), (true, vec![true, true]));
    assert_eq!(
        told(roomy, Operation::IteratorSeek),
        (true, vec![false, true])
    );
    // With room for one of the two.
    let (cpus, mut bytes) = (128, 0);
    loop {
        let mut all = Searched {
            bounds: Bounds { cpus, bytes },
            ..searched()
        };
        if answer(&mut all, &ask(&[Operation::Get], |_| ()), &there).is_ok() {
            break;
        }
        bytes += 4096;
    }
    let narrow = Bounds { cpus, bytes };
    assert_eq!(told(narrow, Operation::Get), (false, vec![false, false]));
}

#[test]
fn what_does_not_fit_into_memory_is_refused_and_leaves_the_rest() {
    let there = symbols(&[(GET, false)]);
    let mut all = Searched {
        bounds: Bounds {
            cpus: 128,
            bytes: 40 << 20,
        },
        ..searched()
    };
    let mut asking = |microseconds| {
        let ask = ask(&[Operation::Get], |kind| {
            kind.slow_threshold = Duration::from_micros(microseconds).into();
        });
        answer(&mut all, &ask, &there)
    };
    // Each slot is 5 kB on each of 128 CPUs.
    let fits = (1..=256).take_while(|slot| asking(*slot).is_ok()).count();
    assert!((55..65).contains(&fits), "{fits}");
    let refusal = asking(200).unwrap_err();
    assert_eq!(refusal.reason, Reason::MemoryLimit);
    assert!(refusal.is_lasting());
    for words in [
        "room for 128 CPUs",
        "40.0 MiB are left",
        "agent.resources.limits.memory",
    ] {
        assert!(refusal.message.contains(words), "{refusal}");
    }
    assert!(asking(1).is_ok());
    assert_eq!((all.slots.len(), all.sites.len()), (fits, fits));
}

#[test]
fn names_times_places_times_slots_are_capped_in_all() {
    let mut there = symbols(&[(GET, false), (COMMIT, false), (SEEK, false)]);
    let place = there.found[&SymbolName::Exact(GET)][0].clone();
    let places = (0..300).map(|number| Location {
        offset: number * 16,
        ..place.clone()
    });
    there.found.insert(SymbolName::Exact(GET), places.collect());
    let apart = Location {
        offset: 1 << 20,
        ..place.clone()
    };
    there.found.insert(SymbolName::Exact(SEEK), vec![apart]);
    let mut all = searched();
    let mut asking = |microseconds| {
        let ask = ask(&[Operation::TxnCommit, Operation::Get], |kind| {
            kind.slow_threshold = Duration::from_micros(microseconds).into();
        });
        answer(&mut all, &ask, &there)
    };
    for slot in 1..=3 {
        assert!(asking(slot).is_ok());
    }
    let refusal = asking(4).unwrap_err();
    assert_eq!(refusal.reason, Reason::TooManyMatches);
    assert!(
        refusal.message.contains("300 of Get") && refusal.message.contains("1024"),
        "{refusal}"
    );
    assert!(asking(3).is_ok(), "who was there before is left alone");
    assert_eq!(
        (all.sites.len(), all.slots.len()),
        (903, 6),
        "nothing is left of what was refused"
    );
    // Also not for whoever has its number next, at whose place nothing else traps.
    answer(&mut all, &ask(&[Operation::IteratorSeek], |_| ()), &there).unwrap();
    assert_eq!(all.slots.len(), 7);
    assert_eq!(all.beside.keys().copied().collect::<Vec<_>>(), [2, 3, 4, 5]);
}

#[test]
fn what_is_counted_as_it_is_met_costs_less_and_is_never_said_to_lack_a_time() {
    let there = symbols(&[(GET, false), (COMMIT, false)]);
    let met = CallsConfig {
        measures: Measures::Counted("hits".into()),
        sought: Sought::Usdt(UsdtPattern {
            provider: "db".to_string(),
            names: vec!["*".to_string()],
            limit: 50,
            by: None,
            span: None,
            payload: None,
        }),
    };
    let timed = |operation| ask(&[operation], |_| ());
    let mut found = listed(timed(Operation::Get).sought.listed(), &there).unwrap();
    for site in found.groups.iter_mut().flat_map(|(_, sites)| sites) {
        site.entry_only = true;
        site.semaphore = Some(512);
    }
    let mut all = searched();
    all.take(Ok(found), &met, CALIBRATION, GroupId(3));
    take(&mut all, &timed(Operation::TxnCommit), &there, false);
    let sites: Vec<_> = all
        .sites
        .iter()
        .map(|(site, cost)| (site.entry_only, site.semaphore, cost.as_nanos()))
        .collect();
    assert_eq!(sites, [(true, Some(512), 800), (false, None, 1_200)]);
    all.tell_entry_only(true);
    let told: Vec<_> = all.answers.iter().map(is_said_to_be_entry_only).collect();
    assert_eq!(told, [false, true]);
    let seen = crate::kernel::SlotReading {
        untimed: 7,
        ..Default::default()
    };
    let figures = met.measures.figures(seen, Told::default());
    assert_eq!(figures.sums, BTreeMap::from([("hits".into(), 7)]));
    assert!(figures.distributions.is_empty() && figures.maxima.is_empty());
}

/// What ends as a function returns, of one that is there.
fn to_a_return(there: &Symbols) -> (CallsConfig, Found) {
    let from = ask(&[Operation::Get], |_| ());
    let mut found = listed(from.sought.listed(), there).unwrap();
    for site in found.groups.iter_mut().flat_map(|(_, sites)| sites) {
        site.hit = Some(LookedAt {
            role: Role::EndsAtReturn,
            ..LookedAt::default()
        });
    }
    (from, found)
}

#[test]
fn what_ends_as_a_function_returns_is_refused_where_returns_must_not_be_touched() {
    let there = symbols(&[(GET, false), (COMMIT, false)]);
    let timed = ask(&[Operation::TxnCommit], |_| ());
    let told = |confined, go| {
        let (returns, found) = to_a_return(&there);
        let other = listed(timed.sought.listed(), &there).map(|found| Found { go, ..found });
        let mut all = searched();
        let found = vec![(&returns, Ok(found)), (&timed, other)];
        all.take_all(found, confined, CALIBRATION, GroupId(3));
        assert!(all.answers[1].is_ok(), "the other question is answered");
        let touched = all
            .sites
            .iter()
            .filter(|(site, _)| !site.entry_only)
            .count();
        let refusal = all.answers.remove(0).err();
        (
            refusal.map(|refusal| (refusal.reason, refusal.message)),
            touched,
        )
    };
    assert_eq!(told(false, false), (None, 2));
    let refused = |why: &str| {
        let sentence = format!(
            "what is asked ends at the return of a function, and {why}: name in to what is called next, and leave toReturn out"
        );
        (Some((Reason::EntryOnly, sentence)), 0)
    };
    let confined =
        "on this kernel a probe there kills a process that is confined by seccomp, as this one is";
    assert_eq!(told(true, false), refused(confined));
    let go =
        "the process has code in Go, which moves its stacks and which a probe there would break";
    assert_eq!(told(false, true), refused(go));
}

#[test]
fn a_return_is_beside_no_trap_of_an_entry() {
    let there = symbols(&[(GET, false)]);
    let beside = |first_only, second_only| {
        let mut all = searched();
        let asked = ask(&[Operation::Get], |_| ());
        for (place, entry_only) in [first_only, second_only].into_iter().enumerate() {
            let mut found = listed(asked.sought.listed(), &there).unwrap();
            for (counted, sites) in &mut found.groups {
                counted.slow_threshold_ns = 7 + place as u64;
                sites
                    .iter_mut()
                    .for_each(|site| site.entry_only = entry_only);
            }
            all.take(Ok(found), &asked, CALIBRATION, GroupId(3));
        }
        all.beside.contains_key(&1)
    };
    assert!(beside(false, false) && beside(true, true) && beside(false, true));
    assert!(!beside(true, false), "its return is trapped for it alone");
}

#[test]
fn what_is_met_where_the_kernel_must_single_step_costs_that_beside_the_hit() {
    let there = symbols(&[(GET, true)]);
    let asked = ask(&[Operation::Get], |kind| kind.include_single_stepped = true);
    let mut found = listed(asked.sought.listed(), &there).unwrap();
    for site in found.groups.iter_mut().flat_map(|(_, sites)| sites) {
        site.entry_only = true;
    }
    let mut all = searched();
    all.take(Ok(found), &asked, CALIBRATION, GroupId(3));
    let costs: Vec<_> = all.sites.iter().map(|(_, cost)| cost.as_nanos()).collect();
    assert_eq!(costs, [800 + 19_000 - 1_200]);
}

#[test]
fn what_tells_a_text_costs_more_than_what_is_only_counted_also_where_the_kernel_traps_anyway() {
    let there = symbols(&[(GET, false)]);
    let asked = ask(&[Operation::Get], |_| ());
    let mut all = searched();
    for payload in [None, Some(2)] {
        let mut found = listed(asked.sought.listed(), &there).unwrap();
        for (counted, sites) in &mut found.groups {
            counted.payload = payload;
            sites.iter_mut().for_each(|site| site.entry_only = true);
        }
        all.take(Ok(found), &asked, CALIBRATION, GroupId(3));
    }
    let costs: Vec<_> = all.sites.iter().map(|(_, cost)| cost.as_nanos()).collect();
    assert_eq!(costs, [800, 800 + 880]);
    let beside = Duration::from_nanos(CALIBRATION.further_cost_ns + 880);
    assert_eq!(all.beside, BTreeMap::from([(1, (0, beside))]));
}
