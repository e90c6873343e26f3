//! The operations, and the functions of RocksDB's C API that serve each. Written down a second time, after the
//! documentation: what the agent believes is what is tested.

use crate::fixture::{FunctionTruth, Truth};

/// An operation's name and its functions.
pub const ALL: [(&str, &[&str]); 10] = [
    ("Get", &["rocksdb_get_pinned_cf"]),
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
            "rocksdb_create_iterator_cf",
            "rocksdb_transaction_create_iterator_cf",
        ],
    ),
    ("MultiGet", &["rocksdb_multi_get_cf"]),
];

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
        }
        sum
    };
    ALL.map(|(name, functions)| (name, sum(functions))).to_vec()
}
