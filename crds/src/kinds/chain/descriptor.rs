//! What `chain` gives: blocks by what became of them, and what they consisted of.

use crate::{Value, descriptor::{Column, Descriptor, Measure, Merge, Phrase, Unit, calls, metrics}};
pub use crate::descriptor::calls::{DURATION, LONGEST};

/// Calls of RocksDB.
pub const CALLS: Measure = Measure::new("calls", Unit::Count, Merge::Sum);
/// Time in these calls.
pub const STORAGE: Measure = Measure::new("storage", Unit::Nanoseconds, Merge::Sum);
/// CPU time of the thread that verifies.
pub const CPU: Measure = Measure::new("cpu", Unit::Nanoseconds, Merge::Sum);
/// Time for which that thread had no CPU, whatever it waited for.
pub const OFF_CPU: Measure = Measure::new("offCpu", Unit::Nanoseconds, Merge::Sum);
/// Time of that for which it waited for a CPU, and for nothing else.
pub const QUEUED: Measure = Measure::new("queued", Unit::Nanoseconds, Merge::Sum);
/// Page faults that waited for a disk.
pub const FAULTS: Measure = Measure::new("majorFaults", Unit::Count, Merge::Sum);
/// Time in which files were written to the disk, or the write was held back: within calls of RocksDB.
pub const SYNC: Measure = Measure::new("sync", Unit::Nanoseconds, Merge::Sum);
/// Time of that in which the write-ahead log was written: within commits.
pub const WAL: Measure = Measure::new("walWrite", Unit::Nanoseconds, Merge::Sum);
/// Time in CKB's verification of a block within the chain, scripts included.
pub const VERIFY: Measure = Measure::new("verification", Unit::Nanoseconds, Merge::Sum);
/// Time of that for which the thread had no CPU: it waits for those that run scripts.
pub const VERIFY_OFF_CPU: Measure = Measure::new("verificationOffCpu", Unit::Nanoseconds, Merge::Sum);
/// Page faults that did not wait for a disk.
pub const MINOR_FAULTS: Measure = Measure::new("minorFaults", Unit::Count, Merge::Sum);
/// Transactions in blocks that became part of the main chain.
pub const TRANSACTIONS: Measure = Measure::new("transactions", Unit::Count, Merge::Sum);
/// Keys and values that were put into RocksDB.
pub const BYTES: Measure = Measure::new("written", Unit::Bytes, Merge::Sum);
/// Blocks that were taken off the main chain.
pub const DETACHED: Measure = Measure::new("detached", Unit::Count, Merge::Sum);
/// The height of the last block, of whatever target is highest.
pub const HEIGHT: Measure = Measure::new("height", Unit::Count, Merge::Maximum);
/// The height of the last block, of each target.
pub const TIP: Measure = Measure::new("tip", Unit::Count, Merge::Level);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "outcome",
    part: Some("operation"),
    measures: &[
        DURATION, LONGEST, HEIGHT, TIP, CALLS, STORAGE, CPU, OFF_CPU, QUEUED, FAULTS, MINOR_FAULTS, SYNC, WAL, VERIFY,
        VERIFY_OFF_CPU, TRANSACTIONS, BYTES, DETACHED,
    ],
    columns: &[
        calls::PER_SECOND.of_rows(), calls::P50.of_rows(), calls::P90.of_rows(), calls::P99.of_rows(), calls::MAX.of_rows(),
        Column::new("callsPerSecond", "CALLS/S", Value::Rate("calls")),
        Column::new("storage", "ROCKSDB", Value::Recent("storage")),
        Column::new("verification", "VERIFY", Value::Recent("verification")).of_rows(),
        Column::new("cpu", "CPU", Value::Recent("cpu")).of_rows(),
        Column::new("offCpu", "OFF CPU", Value::Recent("offCpu")).of_rows(),
        Column::new("walWrite", "WAL", Value::Recent("walWrite")).of_rows(),
        Column::new("sync", "SYNC", Value::Recent("sync")).of_rows(),
        Column::new("transactions", "TXS", Value::Recent("transactions")).of_rows(),
        Column::new("detached", "DETACHED", Value::Total("detached")).of_rows(),
        Column::new("height", "HEIGHT", Value::Maximum("height")).of_rows(),
        calls::COUNT.of_rows(),
    ],
    headline: &[
        Phrase::new("height ", Value::Maximum("height"), ""),
        Phrase::new("", Value::Rate("duration"), " blocks/s"),
        calls::SAY_P99,
        Phrase::new("", Value::Total("detached"), " detached").unless_zero(),
    ],
    metrics: metrics! {
        /// Duration of the verification of blocks, from the beginning of its transaction to the commit; scaled up where they were sampled.
        histogram("ckb_probe_block_duration_seconds", "duration"),
        /// Blocks, also those of which the end was not seen; scaled up where they were sampled.
        counter("ckb_probe_blocks_total", "duration"),
        /// Height of the last block that became part of the main chain.
        gauge("ckb_probe_block_height", "tip"),
        /// CPU time that the verifying thread used for blocks; scaled up where they were sampled.
        counter("ckb_probe_block_cpu_seconds_total", "cpu"),
        /// Time for which the verifying thread had no CPU within blocks; scaled up where they were sampled.
        counter("ckb_probe_block_off_cpu_seconds_total", "offCpu"),
        /// The part of that for which it waited for a CPU alone; scaled up where they were sampled.
        counter("ckb_probe_block_queued_seconds_total", "queued"),
        /// Time within blocks in which RocksDB wrote files to the disk or held the write back; scaled up where they were sampled.
        counter("ckb_probe_block_sync_seconds_total", "sync"),
        /// Time within blocks in which RocksDB wrote its write-ahead log, a part of commits; scaled up where they were sampled.
        counter("ckb_probe_block_wal_write_seconds_total", "walWrite"),
        /// Time in the contextual verification of blocks, scripts included; scaled up where they were sampled.
        counter("ckb_probe_block_verification_seconds_total", "verification"),
        /// The part of that for which the verifying thread had no CPU; scaled up where they were sampled.
        counter("ckb_probe_block_verification_off_cpu_seconds_total", "verificationOffCpu"),
        /// Page faults within blocks that did not wait for a disk; scaled up where they were sampled.
        counter("ckb_probe_block_minor_faults_total", "minorFaults"),
        /// Transactions in blocks that became part of the main chain; scaled up where they were sampled.
        counter("ckb_probe_block_transactions_total", "transactions"),
        /// Bytes of the keys and values that blocks put into RocksDB; scaled up where they were sampled.
        counter("ckb_probe_block_written_bytes_total", "written"),
        /// Page faults within blocks that waited for a disk; scaled up where they were sampled.
        counter("ckb_probe_block_major_faults_total", "majorFaults"),
        /// Blocks that reorganisations took off the main chain; scaled up where they were sampled.
        counter("ckb_probe_blocks_detached_total", "detached"),
        /// Calls of RocksDB within blocks, by operation; scaled up where they were sampled.
        counter("ckb_probe_block_operations_total", "calls").by_part(),
        /// Time in these calls, by operation; scaled up where they were sampled.
        counter("ckb_probe_block_operation_seconds_total", "storage").by_part(),
    },
    alarms: &[],
    apart: is_no_block,
    quiet: true,
    ..Descriptor::EMPTY
};

/// Calls of the thread between two blocks are no block's.
fn is_no_block(row: &str) -> bool {
    row == "between"
}
