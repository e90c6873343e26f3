//! `chain`: what each block cost a CKB node, by the transaction of RocksDB in which it is verified.
//!
//! CKB verifies blocks in one thread, each in one transaction, and writes the number of a block that becomes part of the main chain
//! into the column family `INDEX` as a key of eight bytes: docs/chain.md has how that was found, and in which versions.

mod arguments;

use std::sync::Arc;

pub use arguments::Arguments;
use ckb_probe_crds::{
    Distribution, Figures, descriptor::Measure,
    kinds::chain::{
        CALLS, CPU, ChainProbe, DETACHED, DURATION, FAULTS, HEIGHT, LONGEST, OFF_CPU, QUEUED,
        STORAGE, SYNC, TIP,
    },
};

use super::Instrument;
use crate::{
    mechanism::{
        CollectorConfig, Detail, OperationTime, RowId,
        spans::{
            Decode, Operation, SeenSpan, SpanCalls, SpanReading, SpansConfig, end,
            role::{BEGIN, COMMIT, DELETE, DROP, PUT, TIMED},
        },
    },
    observe::SymbolName::{self, Demangled, Exact},
};

/// The thread that verifies, since CKB 0.118.
const THREAD: &str = "verify_blocks";

/// `INDEX`, as CKB names its column families.
const INDEX: &str = "0";

/// What became of blocks, by the [`end`] of their spans.
const OUTCOMES: [&str; end::COUNT] = [
    "accepted",
    "reorganised",
    "side",
    "discarded",
    "partial",
    "between",
];

const OPERATIONS: [Operation; 11] = [
    edge("TxnBegin", BEGIN, &[Exact("rocksdb_optimistictransaction_begin")]),
    edge("TxnDestroy", DROP, &[Exact("rocksdb_transaction_destroy")]),
    call("TxnCommit", COMMIT, &[Exact("rocksdb_transaction_commit")]),
    call("TxnPut", PUT, &[Exact("rocksdb_transaction_put_cf")]),
    call("TxnDelete", DELETE, &[Exact("rocksdb_transaction_delete_cf")]),
    call(
        "TxnGet",
        TIMED,
        &[
            Exact("rocksdb_transaction_get_pinned_cf"),
            Exact("rocksdb_transaction_get_for_update_cf"),
        ],
    ),
    call("Get", TIMED, &[Exact("rocksdb_get_pinned_cf")]),
    call("Write", TIMED, &[Exact("rocksdb_write")]),
    edge(FILE_SYNC, TIMED, &[Demangled("rocksdb::WritableFileWriter::Sync")]),
    edge(WAL_SYNC, TIMED, &[Demangled("rocksdb::DBImpl::SyncWAL")]),
    edge(WRITE_STALL, TIMED, &[Demangled("rocksdb::DBImpl::DelayWrite")]),
];

const FILE_SYNC: &str = "FileSync";
const WAL_SYNC: &str = "WalSync";
const WRITE_STALL: &str = "WriteStall";

/// Called by RocksDB itself, within its calls: a second time in them.
const WITHIN: [&str; 3] = [FILE_SYNC, WAL_SYNC, WRITE_STALL];

const fn call(name: &'static str, role: u8, functions: &'static [SymbolName]) -> Operation {
    Operation {
        name,
        role,
        functions,
        include_single_stepped: false,
    }
}

/// One that is so rare that it does not matter what it costs.
const fn edge(name: &'static str, role: u8, functions: &'static [SymbolName]) -> Operation {
    Operation {
        include_single_stepped: true,
        ..call(name, role, functions)
    }
}

impl Instrument for ChainProbe {
    fn config(&self) -> CollectorConfig {
        SpansConfig {
            thread_name: THREAD,
            operations: &OPERATIONS,
            family: INDEX,
            threshold_ns: self.threshold.as_nanos(),
            decode: Arc::new(self.clone()),
        }
        .into()
    }

    fn row(&self, raw: &RowId) -> String {
        let known = OUTCOMES.get(raw.number as usize);
        known.copied().unwrap_or_default().to_string()
    }
}

impl Decode for ChainProbe {
    fn figures(&self, end: usize, read: &SpanReading) -> Figures {
        let mut figures = Figures::default();
        if end == end::BETWEEN {
            return figures;
        }
        let unmeasured = read.count.saturating_sub(read.histogram.count());
        figures.distributions.insert(
            DURATION.key(),
            Distribution {
                histogram: read.histogram.clone(),
                sum: read.sum_ns,
                unmeasured,
            },
        );
        if end == end::UNSEEN {
            return figures;
        }
        figures.maxima.insert(LONGEST.key(), read.max_ns);
        let height = read.name.filter(|_| end != end::ABANDONED);
        if let Some(height) = height {
            figures.maxima.insert(HEIGHT.key(), height);
            figures.levels.insert(TIP.key(), height);
        }
        let mut sum = |measure: Measure, value| figures.sums.insert(measure.key(), value);
        sum(DETACHED, read.taken_back);
        let within = |(operation, _): &(&Operation, SpanCalls)| is_within(operation);
        let within = OPERATIONS.iter().zip(read.operations).filter(within);
        sum(SYNC, within.map(|(_, calls)| calls.time_ns).sum());
        if let Some(usage) = read.usage {
            sum(CPU, usage.cpu_ns);
            sum(OFF_CPU, read.sum_ns.saturating_sub(usage.cpu_ns));
            sum(QUEUED, usage.queued_ns);
            sum(FAULTS, usage.major_faults);
        }
        figures
    }

    fn operation(&self, operation: &Operation, calls: SpanCalls) -> Option<Figures> {
        if is_within(operation) {
            return None;
        }
        let sums = [(CALLS.key(), calls.calls), (STORAGE.key(), calls.time_ns)];
        Some(Figures {
            sums: sums.into(),
            ..Figures::default()
        })
    }

    fn event(&self, span: &SeenSpan<'_>) -> Vec<(&'static str, Detail)> {
        let number = |number: u64| Detail::Number(i64::try_from(number).unwrap_or(i64::MAX));
        let mut details = Vec::new();
        // What was put before a block turned out wrong are those that it stands on.
        let height = match span.end {
            end::ABANDONED => span.name.map(|height| height.saturating_add(1)),
            _ => span.name,
        };
        if let Some(height) = height {
            details.push(("height", number(height)));
        }
        details.push(("duration", Detail::Nanoseconds(span.duration_ns)));
        let own = span.operations.iter().filter(|(one, _)| !is_within(one));
        let storage = own.map(|(_, calls)| calls.time_ns).sum();
        details.push(("rocksdb", Detail::Portion(storage)));
        if let Some(usage) = span.usage {
            let off_cpu = span.duration_ns.saturating_sub(usage.cpu_ns);
            details.push(("cpu", Detail::Portion(usage.cpu_ns)));
            details.push(("offCpu", Detail::Portion(off_cpu)));
            details.push(("queued", Detail::Portion(usage.queued_ns)));
            if usage.major_faults > 0 {
                details.push(("majorFaults", number(usage.major_faults)));
            }
        }
        if span.taken_back > 0 {
            details.push(("detached", number(span.taken_back.into())));
            details.push(("attached", number(span.names.into())));
        }
        let mut operations = span.operations.clone();
        operations.sort_by_key(|(_, calls)| std::cmp::Reverse(calls.time_ns));
        let operations = operations
            .iter()
            .map(|(operation, calls)| OperationTime {
                name: operation.name.to_string(),
                calls: calls.calls,
                nanoseconds: calls.time_ns,
                is_last: operation.role == COMMIT,
            });
        details.push(("operations", Detail::Operations(operations.collect())));
        details
    }
}

fn is_within(operation: &Operation) -> bool {
    WITHIN.contains(&operation.name)
}

#[cfg(test)]
mod tests;
