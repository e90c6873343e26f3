//! `rocksdb`: the C API of RocksDB, as `rocksdb/c.h` declares it and CKB calls it, and the background work behind it.

mod arguments;
mod health;

use std::sync::Arc;

pub use arguments::Arguments;
use ckb_probe_crds::kinds::rocksdb::{
    BYTES, DURATION, FLUSHED, LONGEST, MISSED, Operation, READ_BYTES, READS, RocksDbProbe, SLOW,
    TABLES, WRITTEN,
};

use super::Instrument;
use crate::{
    kernel::{
        FamilyArgument::{self, Argument1, Argument2},
        Payload::{
            self, Argument3, Argument4, Arguments3And5, Arguments4And6, PointedToBy4, PointedToBy5,
            ReturnedSlice, Unknown,
        },
    },
    mechanism::{
        CollectorConfig,
        RowId,
        calls::{self, Beside, Cause, Counted, FileNames, Function, Measures, Read, Sought},
        health::HealthConfig,
    },
    observe::SymbolName,
};

/// What is measured of a call.
const MEASURES: Measures = Measures::Timed {
    duration: DURATION.key(),
    longest: LONGEST.key(),
    bytes: BYTES.key(),
    slow: SLOW.key(),
};

impl Instrument for RocksDbProbe {
    fn config(&self) -> CollectorConfig {
        calls::CallsConfig {
            measures: MEASURES,
            sought: Sought::Listed(counted(self)),
        }
        .into()
    }

    fn beside(&self) -> Option<CollectorConfig> {
        let health = HealthConfig {
            functions: health::FUNCTIONS,
            decode: Arc::new(health::RocksDbHealth),
        };
        self.health.then(|| health.into())
    }

    fn part(&self, raw: &RowId) -> String {
        family_name(raw.number, &raw.text)
    }
}

/// One load for each operation that there is, and for each function that tells of the database's health.
pub fn every_operation() -> Vec<Counted> {
    let mut all = counted(&RocksDbProbe {
        operations: Operation::ALL.to_vec(),
        ..RocksDbProbe::default()
    });
    all.extend(crate::mechanism::health::counted(health::FUNCTIONS));
    all
}

/// One load for each operation asked for.
pub fn counted(kind: &RocksDbProbe) -> Vec<Counted> {
    kind.operations
        .iter()
        .map(|operation| {
            let cause = cause(*operation);
            Counted {
                // Background work is meant to take long.
                slow_threshold_ns: match cause {
                    None => kind.slow_threshold.as_nanos(),
                    Some(_) => u64::MAX,
                },
                by_family: kind.by_column_family
                    && functions(*operation)
                        .iter()
                        .any(|function| function.family != FamilyArgument::None),
                // Background work is rare: what its probes cost does not matter.
                include_single_stepped: kind.include_single_stepped || cause.is_some(),
                cause,
                stacks: kind.stacks && cause.is_none(),
                files: files(*operation, kind.file_io),
                ..Counted::plain(
                    operation.as_str().to_string(),
                    functions(*operation).to_vec(),
                )
            }
        })
        .collect()
}

/// What is told of what an operation reads from files and writes to them. A read of many keys is of no use to tell what one takes; and what
/// is written within a transaction is written as that is committed. Calls of which there are many cost a tenth more with it, so of those it
/// is told where it is asked for.
fn files(operation: Operation, asked: bool) -> FileNames {
    const NOTHING: FileNames = FileNames {
        read: None,
        written: &[],
        beside: None,
    };
    const READING: FileNames = FileNames {
        read: Some(Read {
            reads: READS.name,
            bytes: READ_BYTES.name,
            readers: MISSED.name,
        }),
        ..NOTHING
    };
    const WRITING: FileNames = FileNames {
        written: &[WRITTEN.name],
        ..NOTHING
    };
    match operation {
        Operation::Get
        | Operation::TxnGet
        | Operation::IteratorNew
        | Operation::IteratorSeek
        | Operation::IteratorNext
            if asked =>
        {
            READING
        }
        Operation::TxnCommit | Operation::Write | Operation::Put | Operation::Delete if asked => {
            WRITING
        }
        Operation::Flush => WRITING,
        Operation::Compaction => FileNames {
            written: WRITING.written,
            beside: Some(Beside {
                row: "Flush",
                others: FLUSHED.name,
                both: TABLES.name,
            }),
            ..READING
        },
        Operation::Get
        | Operation::TxnGet
        | Operation::IteratorNew
        | Operation::IteratorSeek
        | Operation::IteratorNext
        | Operation::TxnCommit
        | Operation::Write
        | Operation::Put
        | Operation::Delete
        | Operation::MultiGet
        | Operation::TxnPut
        | Operation::TxnDelete
        | Operation::WalSync
        | Operation::FileSync
        | Operation::WriteStall => NOTHING,
    }
}

/// What an operation is to slow calls: its number among the causes, and its name.
fn cause(operation: Operation) -> Option<Cause> {
    let position = Operation::CAUSES
        .iter()
        .position(|cause| *cause == operation)?;
    Some(Cause {
        number: u8::try_from(position + 1).ok()?,
        name: operation.as_str(),
    })
}

/// CKB names its column families by number. What each is for, by `COLUMN_*` of the crate ckb-db-schema 1.1.
const CKB_COLUMNS: [&str; 19] = [
    "INDEX",
    "BLOCK_HEADER",
    "BLOCK_BODY",
    "BLOCK_UNCLE",
    "META",
    "TRANSACTION_INFO",
    "BLOCK_EXT",
    "BLOCK_PROPOSAL_IDS",
    "BLOCK_EPOCH",
    "EPOCH",
    "CELL",
    "UNCLES",
    "CELL_DATA",
    "NUMBER_HASH",
    "CELL_DATA_HASH",
    "BLOCK_EXTENSION",
    "CHAIN_ROOT_MMR",
    "BLOCK_FILTER",
    "BLOCK_FILTER_HASH",
];

/// What a column family is for, where CKB's schema says so; else its name in the database, else its number.
pub fn family_name(id: u64, name: &str) -> String {
    let column = name.parse().ok().and_then(|n: usize| CKB_COLUMNS.get(n));
    match column {
        Some(column) => (*column).to_string(),
        None if name.is_empty() => format!("id-{id}"),
        None => name.to_string(),
    }
}

const fn function(symbol: &'static str, payload: Payload, family: FamilyArgument) -> Function {
    Function {
        symbol: SymbolName::Exact(symbol),
        payload,
        family,
    }
}

const fn internal(symbol: &'static str) -> Function {
    Function {
        symbol: SymbolName::Demangled(symbol),
        payload: Unknown,
        family: FamilyArgument::None,
    }
}

/// The functions that serve an operation. Bytes are those of key and value where both are arguments, those of
/// the value for a read; unknown where finding them would cost a walk through RocksDB's own structures.
fn functions(operation: Operation) -> &'static [Function] {
    match operation {
        // (db, options, key, key_length, error) -> slice
        // (db, options, column_family, key, key_length, error) -> slice
        // (db, options, key, key_length, *value_length, error) -> value
        // (db, options, column_family, key, key_length, *value_length, error) -> value
        Operation::Get => {
            const {
                &[
                    function("rocksdb_get_pinned", ReturnedSlice, FamilyArgument::None),
                    function("rocksdb_get_pinned_cf", ReturnedSlice, Argument2),
                    function("rocksdb_get", PointedToBy4, FamilyArgument::None),
                    function("rocksdb_get_cf", PointedToBy5, Argument2),
                ]
            }
        }
        // (transaction, options, column_family, key, key_length, error) -> slice
        // (transaction, options, column_family, key, key_length, *value_length, exclusive, error) -> value
        Operation::TxnGet => {
            const {
                &[
                    function(
                        "rocksdb_transaction_get_pinned_cf",
                        ReturnedSlice,
                        Argument2,
                    ),
                    function(
                        "rocksdb_transaction_get_for_update_cf",
                        PointedToBy5,
                        Argument2,
                    ),
                ]
            }
        }
        // (transaction, column_family, key, key_length, value, value_length, error)
        Operation::TxnPut => {
            const {
                &[function(
                    "rocksdb_transaction_put_cf",
                    Arguments3And5,
                    Argument1,
                )]
            }
        }
        // (transaction, column_family, key, key_length, error)
        Operation::TxnDelete => {
            const {
                &[function(
                    "rocksdb_transaction_delete_cf",
                    Argument3,
                    Argument1,
                )]
            }
        }
        Operation::TxnCommit => {
            const {
                &[function(
                    "rocksdb_transaction_commit",
                    Unknown,
                    FamilyArgument::None,
                )]
            }
        }
        Operation::Write => const { &[function("rocksdb_write", Unknown, FamilyArgument::None)] },
        // (db, options, key, key_length, value, value_length, error)
        // (db, options, column_family, key, key_length, value, value_length, error)
        Operation::Put => {
            const {
                &[
                    function("rocksdb_put", Arguments3And5, FamilyArgument::None),
                    function("rocksdb_put_cf", Arguments4And6, Argument2),
                ]
            }
        }
        // (db, options, key, key_length, error)
        // (db, options, column_family, key, key_length, error)
        Operation::Delete => {
            const {
                &[
                    function("rocksdb_delete", Argument3, FamilyArgument::None),
                    function("rocksdb_delete_cf", Argument4, Argument2),
                ]
            }
        }
        Operation::IteratorNew => {
            const {
                &[
                    function("rocksdb_create_iterator", Unknown, FamilyArgument::None),
                    function("rocksdb_create_iterator_cf", Unknown, Argument2),
                    function("rocksdb_transaction_create_iterator_cf", Unknown, Argument2),
                ]
            }
        }
        Operation::MultiGet => {
            const {
                &[function(
                    "rocksdb_multi_get_cf",
                    Unknown,
                    FamilyArgument::None,
                )]
            }
        }
        Operation::IteratorSeek => {
            const {
                &[
                    function("rocksdb_iter_seek", Unknown, FamilyArgument::None),
                    function("rocksdb_iter_seek_for_prev", Unknown, FamilyArgument::None),
                    function("rocksdb_iter_seek_to_first", Unknown, FamilyArgument::None),
                    function("rocksdb_iter_seek_to_last", Unknown, FamilyArgument::None),
                ]
            }
        }
        Operation::IteratorNext => {
            const {
                &[
                    function("rocksdb_iter_next", Unknown, FamilyArgument::None),
                    function("rocksdb_iter_prev", Unknown, FamilyArgument::None),
                ]
            }
        }
        Operation::Compaction => const { &[internal("rocksdb::CompactionJob::Run")] },
        Operation::Flush => const { &[internal("rocksdb::FlushJob::Run")] },
        Operation::WalSync => const { &[internal("rocksdb::DBImpl::SyncWAL")] },
        Operation::FileSync => const { &[internal("rocksdb::WritableFileWriter::Sync")] },
        Operation::WriteStall => const { &[internal("rocksdb::DBImpl::DelayWrite")] },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_function_serves_two_operations() {
        let mut seen = BTreeSet::new();
        for &operation in Operation::ALL {
            assert!(!functions(operation).is_empty(), "{operation:?}");
            for function in functions(operation) {
                assert!(seen.insert(function.symbol), "{} twice", function.symbol);
            }
        }
        assert_eq!(seen.len(), 29);
    }

    #[test]
    fn a_column_family_has_the_name_of_its_purpose() {
        assert_eq!(family_name(11, "10"), "CELL");
        assert_eq!(family_name(17, "16"), "CHAIN_ROOT_MMR");
        assert_eq!(family_name(0, "default"), "default");
        assert_eq!(family_name(23, "19"), "19");
        assert_eq!(family_name(23, ""), "id-23");
    }

    #[test]
    fn every_cause_has_a_number_that_a_cookie_holds_and_is_never_slow() {
        let kind = RocksDbProbe {
            operations: Operation::ALL.to_vec(),
            ..RocksDbProbe::default()
        };
        let counted = counted(&kind);
        let causes: Vec<_> = counted.iter().filter_map(|one| one.cause).collect();
        let names: Vec<_> = causes.iter().map(|cause| cause.name).collect();
        assert_eq!(names, Operation::CAUSES.map(Operation::as_str));
        let numbers: Vec<_> = causes.iter().map(|cause| cause.number).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
        assert!(numbers.iter().all(|number| *number <= crate::kernel::MAX_CAUSE));
        let never_slow = |one: &&Counted| one.slow_threshold_ns == u64::MAX;
        assert_eq!(counted.iter().filter(never_slow).count(), causes.len());
    }

    #[test]
    fn bytes_are_promised_only_where_every_function_tells_them() {
        let kind = RocksDbProbe {
            operations: Operation::ALL.to_vec(),
            slow_threshold: std::time::Duration::from_millis(1).into(),
            ..RocksDbProbe::default()
        };
        let counted = counted(&kind);
        let with_bytes: Vec<_> = counted
            .iter()
            .filter(|one| one.has_bytes())
            .map(|one| one.row.as_str())
            .collect();
        assert_eq!(
            with_bytes,
            ["Get", "TxnGet", "TxnPut", "TxnDelete", "Put", "Delete"]
        );
    }
}
