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
        BYTES, CALLS, CPU, ChainProbe, DETACHED, DURATION, FAULTS, HEIGHT, LONGEST, MINOR_FAULTS,
        OFF_CPU, QUEUED, STORAGE, SYNC, TIP, TRANSACTIONS, VERIFY, VERIFY_OFF_CPU, WAL,
    },
};

use super::{Instrument, rocksdb::family_name};
use crate::{
    kernel::FamilyArgument::{self, Argument1, Argument2},
    mechanism::{
        CollectorConfig, Detail, OperationTime, RowId,
        spans::{
            Decode, Operation, PartFamily, SeenSpan, SpanCalls, SpanReading, SpansConfig, end,
            role::{BEGIN, COMMIT, DELETE, DROP, PHASE, PUT, TIMED},
        },
    },
    observe::SymbolName::{self, Demangled, Exact, Rust},
};

/// The thread that verifies, since CKB 0.118.
const THREAD: &str = "verify_blocks";

/// `INDEX`, as CKB names its column families.
const INDEX: &str = "0";

/// `TRANSACTION_INFO`, likewise: one entry for each transaction of a block that becomes part of the main chain.
const TRANSACTION_INFO: &str = "5";

/// What became of blocks, by the [`end`] of their spans.
const OUTCOMES: [&str; end::COUNT] = [
    "accepted",
    "reorganised",
    "side",
    "discarded",
    "partial",
    "between",
];

const OPERATIONS: [Operation; 13] = [
    edge("TxnBegin", BEGIN, &[Exact("rocksdb_optimistictransaction_begin")]),
    edge("TxnDestroy", DROP, &[Exact("rocksdb_transaction_destroy")]),
    call("TxnCommit", COMMIT, FamilyArgument::None, &[Exact("rocksdb_transaction_commit")]),
    call("TxnPut", PUT, Argument1, &[Exact("rocksdb_transaction_put_cf")]),
    call("TxnDelete", DELETE, Argument1, &[Exact("rocksdb_transaction_delete_cf")]),
    call(
        "TxnGet",
        TIMED,
        Argument2,
        &[
            Exact("rocksdb_transaction_get_pinned_cf"),
            Exact("rocksdb_transaction_get_for_update_cf"),
        ],
    ),
    call("Get", TIMED, Argument2, &[Exact("rocksdb_get_pinned_cf")]),
    call("Write", TIMED, FamilyArgument::None, &[Exact("rocksdb_write")]),
    edge(FILE_SYNC, TIMED, &[Demangled("rocksdb::WritableFileWriter::Sync")]),
    edge(WAL_SYNC, TIMED, &[Demangled("rocksdb::DBImpl::SyncWAL")]),
    edge(WRITE_STALL, TIMED, &[Demangled("rocksdb::DBImpl::DelayWrite")]),
    edge(WAL_WRITE, TIMED, &[Demangled("rocksdb::DBImpl::WriteToWAL")]),
    edge(
        VERIFICATION,
        PHASE,
        &[Rust("ckb_verification_contextual::contextual_block_verifier::ContextualBlockVerifier<CS,MS>::verify")],
    ),
];

const FILE_SYNC: &str = "FileSync";
const WAL_SYNC: &str = "WalSync";
const WRITE_STALL: &str = "WriteStall";
const WAL_WRITE: &str = "WalWrite";
const VERIFICATION: &str = "Verification";

/// Within these RocksDB waits for a disk, or has its caller wait.
const SYNCS: [&str; 3] = [FILE_SYNC, WAL_SYNC, WRITE_STALL];

const fn call(
    name: &'static str,
    role: u8,
    family: FamilyArgument,
    functions: &'static [SymbolName],
) -> Operation {
    Operation {
        name,
        role,
        functions,
        family,
        include_single_stepped: false,
    }
}

/// One that is so rare that it does not matter what it costs.
const fn edge(name: &'static str, role: u8, functions: &'static [SymbolName]) -> Operation {
    Operation {
        include_single_stepped: true,
        ..call(name, role, FamilyArgument::None, functions)
    }
}

impl Instrument for ChainProbe {
    fn config(&self) -> CollectorConfig {
        SpansConfig {
            thread_name: THREAD,
            operations: &OPERATIONS,
            names: INDEX,
            units: TRANSACTION_INFO,
            by_family: self.by_column_family,
            threshold_ns: self.threshold.as_nanos(),
            stacks: self.stacks,
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
        sum(TRANSACTIONS, read.units);
        sum(BYTES, read.bytes);
        let times = || OPERATIONS.iter().zip(&read.calls);
        let time = |of: &[&str]| {
            let own = times().filter(|(operation, _)| of.contains(&operation.name));
            own.map(|(_, calls)| calls.time_ns).sum()
        };
        sum(SYNC, time(&SYNCS));
        sum(WAL, time(&[WAL_WRITE]));
        // Of a node whose names do not tell where it verifies nothing is said of it.
        if times().any(|(operation, calls)| operation.name == VERIFICATION && calls.calls > 0) {
            let verified = time(&[VERIFICATION]);
            sum(VERIFY, verified);
            if let Some(phase) = read.phase {
                sum(VERIFY_OFF_CPU, verified.saturating_sub(phase.cpu_ns));
            }
        }
        if let Some(usage) = read.usage {
            sum(CPU, usage.cpu_ns);
            sum(OFF_CPU, read.sum_ns.saturating_sub(usage.cpu_ns));
            sum(QUEUED, usage.queued_ns);
            sum(FAULTS, usage.major_faults);
            sum(MINOR_FAULTS, usage.minor_faults);
        }
        figures
    }

    fn part_name(&self, operation: &Operation, family: Option<&PartFamily>) -> String {
        match family {
            Some(family) => {
                let family = family_name(family.id.into(), &family.name);
                format!("{} {family}", operation.name)
            }
            None => operation.name.to_string(),
        }
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
        // Of one that was thrown away it is that of the block before it.
        if let Some(hash) = span.value.filter(|_| span.end != end::ABANDONED) {
            details.push(("hash", Detail::Named(hexadecimal(&hash))));
        }
        details.push(("duration", Detail::Nanoseconds(span.duration_ns)));
        let own = span.parts.iter().filter(|part| !is_within(part.operation));
        let storage = own.map(|part| part.calls.time_ns).sum();
        details.push(("rocksdb", Detail::Portion(storage)));
        let time = |name: &str| {
            let own = span.parts.iter().filter(|part| part.operation.name == name);
            own.map(|part| part.calls.time_ns).reduce(|one, other| one + other)
        };
        if let Some(verified) = time(VERIFICATION) {
            details.push(("verification", Detail::Portion(verified)));
            if let Some(phase) = span.phase {
                let off_cpu = verified.saturating_sub(phase.cpu_ns);
                details.push(("verificationOffCpu", Detail::Portion(off_cpu)));
            }
        }
        if let Some(commit) = time("TxnCommit") {
            details.push(("commit", Detail::Portion(commit)));
        }
        if let Some(wal) = time(WAL_WRITE) {
            details.push(("walWrite", Detail::Portion(wal)));
        }
        let syncs: Vec<u64> = SYNCS.iter().filter_map(|name| time(name)).collect();
        if !syncs.is_empty() {
            details.push(("sync", Detail::Portion(syncs.iter().sum())));
        }
        if let Some(usage) = span.usage {
            let off_cpu = span.duration_ns.saturating_sub(usage.cpu_ns);
            details.push(("cpu", Detail::Portion(usage.cpu_ns)));
            details.push(("offCpu", Detail::Portion(off_cpu)));
            details.push(("queued", Detail::Portion(usage.queued_ns)));
            if usage.major_faults > 0 {
                details.push(("majorFaults", number(usage.major_faults)));
            }
            if usage.minor_faults > 0 {
                details.push(("minorFaults", number(usage.minor_faults)));
            }
        }
        if span.units > 0 {
            details.push(("transactions", number(span.units.into())));
        }
        details.push(("written", Detail::Bytes(span.bytes)));
        if span.taken_back > 0 {
            details.push(("detached", number(span.taken_back.into())));
            details.push(("attached", number(span.names.into())));
        }
        let mut parts = span.parts.clone();
        parts.sort_by_key(|part| std::cmp::Reverse(part.calls.time_ns));
        let operations = parts.iter().map(|part| OperationTime {
            name: self.part_name(part.operation, part.family),
            calls: part.calls.calls,
            nanoseconds: part.calls.time_ns,
            is_last: part.operation.role == COMMIT,
        });
        details.push(("operations", Detail::Operations(operations.collect())));
        if let Some(stack) = &span.stack {
            details.push(("stackOf", Detail::Named(stack.operation.name.to_string())));
            details.push(("stack", Detail::Callers(Arc::clone(&stack.callers))));
        }
        details
    }
}

/// Not called by CKB's verification, but within such a call, or no call of RocksDB at all: a second time in it.
fn is_within(operation: &Operation) -> bool {
    SYNCS.contains(&operation.name) || [WAL_WRITE, VERIFICATION].contains(&operation.name)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    format!("0x{}", digits.collect::<String>())
}

#[cfg(test)]
mod tests;
