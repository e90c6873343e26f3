//! The operations, the functions of RocksDB that serve each, and what CKB calls its column families. Written down a
//! second time, after the documentation: what the agent believes is what is tested.

use crate::fixture::{FunctionTruth, Truth};

/// An operation's name and its functions: of the C API by their symbols, C++ ones by their qualified names.
pub const ALL: [(&str, &[&str]); 17] = [
    (
        "Get",
        &[
            "rocksdb_get_pinned",
            "rocksdb_get_pinned_cf",
            "rocksdb_get",
            "rocksdb_get_cf",
        ],
    ),
    (
        "TxnGet",
        &[
            "rocksdb_transaction_get_pinned_cf",
            "rocksdb_transaction_get_for_update_cf",
        ],
    ),
    ("TxnPut", &["rocksdb_transaction_put_cf"]),
    ("TxnDelete", &["rocksdb_transaction_delete_cf"]),
    ("TxnCommit", &["rocksdb_transaction_commit"]),
    ("Write", &["rocksdb_write"]),
    ("Put", &["rocksdb_put", "rocksdb_put_cf"]),
    ("Delete", &["rocksdb_delete", "rocksdb_delete_cf"]),
    (
        "IteratorNew",
        &[
            "rocksdb_create_iterator",
            "rocksdb_create_iterator_cf",
            "rocksdb_transaction_create_iterator_cf",
        ],
    ),
    ("MultiGet", &["rocksdb_multi_get_cf"]),
    (
        "IteratorSeek",
        &[
            "rocksdb_iter_seek",
            "rocksdb_iter_seek_for_prev",
            "rocksdb_iter_seek_to_first",
            "rocksdb_iter_seek_to_last",
        ],
    ),
    ("IteratorNext", &["rocksdb_iter_next", "rocksdb_iter_prev"]),
    ("Compaction", &["rocksdb::CompactionJob::Run"]),
    ("Flush", &["rocksdb::FlushJob::Run"]),
    ("WalSync", &["rocksdb::DBImpl::SyncWAL"]),
    ("FileSync", &["rocksdb::WritableFileWriter::Sync"]),
    ("WriteStall", &["rocksdb::DBImpl::DelayWrite"]),
];

/// What RocksDB does on its own account: never slow, and not among the totals.
pub const BACKGROUND: [&str; 5] = ["Compaction", "Flush", "WalSync", "FileSync", "WriteStall"];

/// What is done on one column family: of the others none is told. All but those of transactions may be without.
pub const ON_A_FAMILY: [&str; 7] = [
    "Get",
    "TxnGet",
    "TxnPut",
    "TxnDelete",
    "Put",
    "Delete",
    "IteratorNew",
];

/// What the calls on none, or on one that is not known, are put down to.
pub const OTHER_FAMILY: &str = "other";

/// The page that says what CKB's schema calls its column families, which are named by number.
const PAGE: &str = include_str!("../../docs/slow-operations.md");

/// These names, by number, as the page has them in a table.
fn column_families() -> impl Iterator<Item = &'static str> {
    (0..).map_while(|number: usize| {
        let row = format!("| `{number}` | `");
        let mut lines = PAGE.lines();
        let name = lines.find_map(|line| line.strip_prefix(&row))?;
        name.split('`').next()
    })
}

/// What CKB's schema calls the column family of this name in RocksDB: `CELL` for `10`. None for any other.
pub fn column_family(name: &str) -> Option<&'static str> {
    let number: usize = name.parse().ok()?;
    column_families().nth(number)
}

/// Whether CKB's schema calls one of its column families so.
pub fn is_column_family(name: &str) -> bool {
    column_families().any(|one| one == name)
}

/// The names of all operations.
pub fn names() -> [&'static str; ALL.len()] {
    ALL.map(|(name, _)| name)
}

/// Every function.
pub fn functions() -> impl Iterator<Item = &'static str> {
    ALL.into_iter()
        .flat_map(|(_, functions)| functions)
        .copied()
}

/// The functions of some operations.
pub fn functions_of(operations: &[&str]) -> Vec<&'static str> {
    ALL.into_iter()
        .filter(|(name, _)| operations.contains(name))
        .flat_map(|(_, functions)| functions)
        .copied()
        .collect()
}

/// The operation that a function serves.
pub fn served_by(function: &str) -> Option<&'static str> {
    let serves = |(_, functions): &&(&str, &[&str])| functions.contains(&function);
    ALL.iter().find(serves).map(|(name, _)| *name)
}

/// Whether a symbol is that of a function: its name, or one that C++ makes of a qualified name and whatever parameters.
pub fn is_symbol_of(function: &str, symbol: &str) -> bool {
    if !function.contains("::") {
        return symbol == function;
    }
    let mangled: String = function
        .split("::")
        .map(|part| format!("{}{part}", part.len()))
        .collect();
    let parameters = symbol
        .strip_prefix("_ZN")
        .and_then(|rest| rest.strip_prefix(&mangled));
    // A dot is in the names of clones only, which are parts of the function and not the function.
    parameters.is_some_and(|rest| rest.starts_with('E') && !rest.contains('.'))
}

/// What a fixture did, by operation.
pub fn truth(truth: &Truth) -> Vec<(&'static str, FunctionTruth)> {
    let sum = |functions: &[&str]| {
        let mut sum = FunctionTruth::default();
        for one in functions
            .iter()
            .filter_map(|name| truth.functions.get(*name))
        {
            sum.calls += one.calls;
            sum.key_bytes += one.key_bytes;
            sum.value_bytes += one.value_bytes;
            sum.durations_ns.extend(&one.durations_ns);
            sum.outer_durations_ns.extend(&one.outer_durations_ns);
        }
        sum
    };
    ALL.map(|(name, functions)| (name, sum(functions))).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_qualified_name_has_the_symbols_of_its_overloads_and_no_other() {
        let run = "rocksdb::FlushJob::Run";
        let symbol = "_ZN7rocksdb8FlushJob3RunEPNS_19LogsWithPrepTrackerEPNS_12FileMetaDataEPb";
        assert!(is_symbol_of(run, symbol));
        for other in [
            "_ZN7rocksdb8FlushJob3RunEv.cold",
            "_ZZN7rocksdb8FlushJob3RunEvENKUlvE_clEv",
            "_ZN7rocksdb8FlushJob7RunFastEv",
            "_ZN7rocksdb8FlushJobC1Ev",
            "rocksdb::FlushJob::Run",
        ] {
            assert!(!is_symbol_of(run, other), "{other}");
        }
        assert!(is_symbol_of("rocksdb_write", "rocksdb_write"));
        assert!(!is_symbol_of("rocksdb_write", "rocksdb_writebatch_create"));
    }

    #[test]
    fn every_function_serves_one_operation() {
        let operations: Vec<_> = functions().filter_map(served_by).collect();
        let owners = ALL
            .iter()
            .flat_map(|(name, functions)| functions.iter().map(|_| *name));
        assert_eq!(operations, owners.collect::<Vec<_>>());
        assert_eq!(served_by("rocksdb_open"), None);
    }

    #[test]
    fn a_column_family_is_called_by_its_purpose() {
        assert_eq!(column_family("10"), Some("CELL"));
        assert_eq!(column_family("18"), Some("BLOCK_FILTER_HASH"));
        assert_eq!(
            (column_family("19"), column_family("default")),
            (None, None)
        );
        assert!(is_column_family("CELL") && !is_column_family("10"));
    }
}
