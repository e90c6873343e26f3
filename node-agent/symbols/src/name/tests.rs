use super::*;
use SymbolName::{Demangled, Exact, Rust};

const RUN: SymbolName = Demangled("rocksdb::CompactionJob::Run");
const SYNC_WAL: SymbolName = Demangled("rocksdb::DBImpl::SyncWAL");
const WRITE: SymbolName = Exact("rocksdb_write");

/// What is found in a string of a string table: offsets and names.
fn found(string: &str) -> Vec<(usize, SymbolName)> {
    let names = Names::new(&BTreeSet::from([RUN, SYNC_WAL, WRITE]));
    let mut found = Vec::new();
    names.ends(string.as_bytes(), |at, name| found.push((at, name)));
    found
}

#[test]
fn every_overload_and_qualification_of_a_cpp_function_is_it() {
    for symbol in [
        "_ZN7rocksdb13CompactionJob3RunEv",
        "_ZNK7rocksdb13CompactionJob3RunEi",
        "_ZNVKO7rocksdb13CompactionJob3RunEPNS_6StatusE",
        "_ZN7rocksdb13CompactionJob3RunERKSt8functionIFvvEE",
        // Local to its source; returning a string; both, with two tags.
        "_ZN7rocksdb13CompactionJobL3RunEv",
        "_ZN7rocksdb13CompactionJob3RunB5cxx11Ev",
        "_ZN7rocksdb13CompactionJobL3RunB5cxx11B3oneEv",
    ] {
        assert_eq!(found(symbol), [(0, RUN)], "{symbol}");
    }
}

#[test]
fn what_is_inside_beside_or_cut_off_a_cpp_function_is_not_it() {
    for symbol in [
        // Clones: CompactionJob::Run() [clone .cold], …
        "_ZN7rocksdb13CompactionJob3RunEv.cold",
        "_ZN7rocksdb13CompactionJob3RunEv.part.0",
        "_ZN7rocksdb13CompactionJob3RunEv.isra.0.cold",
        // Another class, namespace and function.
        "_ZN7rocksdb14DBImplReadOnly7SyncWALEv",
        "_ZN2my7rocksdb6DBImpl7SyncWALEv",
        "_ZN7rocksdb6DBImpl7SyncWALUlvE_clEv",
        "_ZN7rocksdb6DBImpl7SyncWAL5InnerEv",
        "_ZN7rocksdb6DBImpl8SyncWAL2Ev",
        // Tags without a length, and beyond the end.
        "_ZN7rocksdb6DBImpl7SyncWALBEv",
        "_ZN7rocksdb6DBImpl7SyncWALB9Ev",
        "_ZN7rocksdb6DBImpl7SyncWALB99999999999999999999Ev",
        // A template instance of the function, and one of another with the function as argument.
        "_ZN7rocksdb6DBImpl7SyncWALIiEEvv",
        "_ZN3FooIXadL_ZN7rocksdb6DBImpl7SyncWALEvEEE3barEv",
        // A lambda in it, a thunk to it, its guard, a member variable of that name.
        "_ZZN7rocksdb13CompactionJob3RunEvENKUlRNS_6StatusEE_clES2_",
        "_ZThn8_N7rocksdb13CompactionJob3RunEv",
        "_ZGVZN7rocksdb13CompactionJob3RunEvE1x",
        "_ZN7rocksdb13CompactionJob3RunE",
        // No C++ symbols.
        "rocksdb::CompactionJob::Run()",
        "N7rocksdb13CompactionJob3RunEv",
        "",
    ] {
        // Inside the string there may be a name, as far as it itself tells: only a symbol that begins there has it.
        let whole: Vec<_> = found(symbol)
            .into_iter()
            .filter(|(at, _)| *at == 0)
            .collect();
        assert_eq!(whole, [], "{symbol}");
    }
}

#[test]
fn a_name_that_ends_another_string_is_found_where_it_begins() {
    assert_eq!(found("rocksdb_write"), [(0, WRITE)]);
    assert_eq!(found("my_rocksdb_write"), [(3, WRITE)]);
    assert_eq!(found("rocksdb_write_wal"), []);
    assert_eq!(
        found("_GLOBAL__sub_I.00__ZN7rocksdb6DBImpl7SyncWALEv"),
        [(18, SYNC_WAL)]
    );
}

#[test]
fn a_symbol_longer_than_any_is_not_it() {
    let parameters = |count| format!("_ZN7rocksdb6DBImpl7SyncWALE{}", "i".repeat(count));
    let fits = NAME_LIMIT - parameters(0).len();
    assert_eq!(found(&parameters(fits)), [(0, SYNC_WAL)]);
    assert_eq!(found(&parameters(fits + 1)), []);
}

#[test]
fn a_name_is_printed_as_it_is_asked_for() {
    assert_eq!(WRITE.to_string(), "rocksdb_write");
    assert_eq!(format!("{RUN:<30}|"), "rocksdb::CompactionJob::Run   |");
}

#[test]
fn a_function_of_rust_is_found_by_its_path_whatever_its_hash() {
    const VERIFY: SymbolName = Rust("contextual::Verifier<CS,MS>::verify");
    let names = Names::new(&BTreeSet::from([VERIFY]));
    let is_found = |string: &str| {
        let mut found = Vec::new();
        names.ends(string.as_bytes(), |at, name| found.push((at, name)));
        found == [(0, VERIFY)]
    };
    let path = "_ZN10contextual23Verifier$LT$CS$C$MS$GT$6verify";
    assert!(is_found(&format!("{path}17h23131bab977d87caE")));
    assert!(is_found(&format!("{path}17h0000000000000000E")));
    for other in [
        "E",
        "17h23131bab977d87cE",
        "17h23131bab977d87cgE",
        "17h23131bab977d87caE.cold",
        // A closure in it, and what is longer.
        "28_$u7b$$u7b$closure$u7d$$u7d$17h23131bab977d87caE",
        "17h23131bab977d87ca0E",
    ] {
        assert!(!is_found(&format!("{path}{other}")), "{other}");
    }
    assert!(!is_found(
        "_ZN10contextual8Verifier6verify17h23131bab977d87caE"
    ));
}
