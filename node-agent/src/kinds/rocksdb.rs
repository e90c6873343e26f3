//! `rocksdb`: the C API of RocksDB, as `rocksdb/c.h` declares it and CKB calls it.

use ckb_probe_crds::kinds::rocksdb::{Operation, RocksDbProbe};

use super::{Function, Slot};
use crate::probe::Payload::{
    self, Argument3, Argument4, Arguments3And5, Arguments4And6, PointedToBy5, ReturnedSlice,
    Unknown,
};

/// One slot for each operation asked for.
pub fn slots(name: &str, kind: &RocksDbProbe) -> Vec<Slot> {
    kind.operations
        .iter()
        .map(|operation| Slot {
            probe: name.to_string(),
            operation: operation.as_str(),
            functions: functions(*operation),
            slow_threshold_ns: kind.slow_threshold.as_nanos(),
        })
        .collect()
}

const fn function(symbol: &'static str, payload: Payload) -> Function {
    Function { symbol, payload }
}

/// The functions that serve an operation. Bytes are those of key and value where both are arguments, those of
/// the value for a read; unknown where finding them would cost a walk through RocksDB's own structures.
fn functions(operation: Operation) -> &'static [Function] {
    match operation {
        // (db, options, column_family, key, key_length, error) -> slice
        Operation::Get => const { &[function("rocksdb_get_pinned_cf", ReturnedSlice)] },
        // (transaction, options, column_family, key, key_length, error) -> slice
        // (transaction, options, column_family, key, key_length, *value_length, exclusive, error) -> value
        Operation::TxnGet => {
            const {
                &[
                    function("rocksdb_transaction_get_pinned_cf", ReturnedSlice),
                    function("rocksdb_transaction_get_for_update_cf", PointedToBy5),
                ]
            }
        }
        // (transaction, column_family, key, key_length, value, value_length, error)
        Operation::TxnPut => const { &[function("rocksdb_transaction_put_cf", Arguments3And5)] },
        // (transaction, column_family, key, key_length, error)
        Operation::TxnDelete => const { &[function("rocksdb_transaction_delete_cf", Argument3)] },
        Operation::TxnCommit => const { &[function("rocksdb_transaction_commit", Unknown)] },
        Operation::Write => const { &[function("rocksdb_write", Unknown)] },
        // (db, options, key, key_length, value, value_length, error)
        // (db, options, column_family, key, key_length, value, value_length, error)
        Operation::Put => {
            const {
                &[
                    function("rocksdb_put", Arguments3And5),
                    function("rocksdb_put_cf", Arguments4And6),
                ]
            }
        }
        // (db, options, key, key_length, error)
        // (db, options, column_family, key, key_length, error)
        Operation::Delete => {
            const {
                &[
                    function("rocksdb_delete", Argument3),
                    function("rocksdb_delete_cf", Argument4),
                ]
            }
        }
        Operation::IteratorNew => {
            const {
                &[
                    function("rocksdb_create_iterator_cf", Unknown),
                    function("rocksdb_transaction_create_iterator_cf", Unknown),
                ]
            }
        }
        Operation::MultiGet => const { &[function("rocksdb_multi_get_cf", Unknown)] },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_function_serves_two_operations() {
        let mut seen = BTreeSet::new();
        for operation in Operation::ALL {
            assert!(!functions(operation).is_empty(), "{operation:?}");
            for function in functions(operation) {
                assert!(seen.insert(function.symbol), "{} twice", function.symbol);
            }
        }
        assert_eq!(seen.len(), 14);
    }

    #[test]
    fn bytes_are_promised_only_where_every_function_tells_them() {
        let kind = RocksDbProbe {
            operations: Operation::ALL.to_vec(),
            slow_threshold: std::time::Duration::from_millis(1).into(),
        };
        let with_bytes: Vec<_> = slots("storage", &kind)
            .iter()
            .filter(|slot| slot.has_bytes())
            .map(|slot| slot.operation)
            .collect();
        assert_eq!(
            with_bytes,
            ["Get", "TxnGet", "TxnPut", "TxnDelete", "Put", "Delete"]
        );
    }
}
