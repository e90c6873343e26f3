//! What `rocksdb` gives: each operation's calls, by duration.

use super::{Operation, row};
use crate::{Reason, Value, descriptor::{Alarm, Borne, Column, Descriptor, Measure, Merge, Phrase, Unit, calls, metrics}};
pub use crate::descriptor::calls::{DURATION, LONGEST, SLOW};

/// Payload bytes; of operations of which they are known.
pub const BYTES: Measure = Measure::new("bytes", Unit::Bytes, Merge::Sum);

/// How often an operation reads from files, since the block cache lacks what it wants.
pub const READS: Measure = Measure::new("reads", Unit::Count, Merge::Sum);
/// What it reads there.
pub const READ_BYTES: Measure = Measure::new("readBytes", Unit::Bytes, Merge::Sum);
/// Calls that read there at all.
pub const MISSED: Measure = Measure::new("missed", Unit::Count, Merge::Sum);
/// What is written to files.
pub const WRITTEN: Measure = Measure::new("writtenBytes", Unit::Bytes, Merge::Sum);

/// What flushes write, as compactions have it to be compared with.
pub const FLUSHED: Measure = Measure::new("flushedBytes", Unit::Bytes, Merge::Sum);
/// What flushes and compactions write together.
pub const TABLES: Measure = Measure::new("tableBytes", Unit::Bytes, Merge::Sum);

/// Background work that failed, errors that RocksDB took down, and compactions that there was no room for.
pub const PROBLEMS: Measure = Measure::new("problems", Unit::Count, Merge::Sum);
/// Errors that RocksDB took down and that are not over.
pub const LASTING: Measure = Measure::new("lasting", Unit::Count, Merge::Level);
/// How often RocksDB found that writes are to be held back.
pub const STALLS: Measure = Measure::new("stalls", Unit::Count, Merge::Sum);
/// For how long they were.
pub const STALLED: Measure = Measure::new("stalled", Unit::Nanoseconds, Merge::Sum);
/// Memtables that wait to be written to files.
pub const MEMTABLES: Measure = Measure::new("memtables", Unit::Count, Merge::Level);
/// Files of level 0.
pub const LEVEL0_FILES: Measure = Measure::new("level0Files", Unit::Count, Merge::Level);
/// Bytes that compactions have yet to rewrite, by RocksDB's own estimate.
pub const PENDING: Measure = Measure::new("pendingBytes", Unit::Bytes, Merge::Level);

/// The kind.
pub const DESCRIPTOR: Descriptor = Descriptor {
    row: "operation",
    part: Some("column_family"),
    measures: &[
        DURATION, LONGEST, BYTES, SLOW, READS, READ_BYTES, MISSED, WRITTEN, FLUSHED, TABLES, PROBLEMS, LASTING, STALLS, STALLED, MEMTABLES,
        LEVEL0_FILES, PENDING,
    ],
    columns: &[
        calls::PER_SECOND, calls::P50, calls::P90.of_rows(), calls::P99, calls::MAX, calls::SLOW_ONES,
        Column::new("bytesPerSecond", "BYTES/S", Value::Rate("bytes")).of_rows(),
        Column::new("missed", "MISSED %", Value::Percent("missed", "duration")),
        Column::new("reads", "READS/CALL", Value::Each("reads", "duration")),
        Column::new("readAmplification", "READ AMP", Value::Each("readBytes", "bytes")),
        Column::new("writtenPerSecond", "WRITTEN/S", Value::Rate("writtenBytes")),
        Column::new("writeAmplification", "WRITE AMP", Value::EachInAll("tableBytes", "flushedBytes")).of_rows(),
        calls::COUNT,
        Column::new("problems", "PROBLEMS", Value::Total("problems")),
        Column::new("lasting", "LASTING", Value::Level("lasting")),
        Column::new("stalls", "STALLS", Value::Total("stalls")),
        Column::new("stalled", "HELD BACK", Value::Recent("stalled")),
        Column::new("memtables", "MEMTABLES", Value::Level("memtables")),
        Column::new("level0Files", "L0 FILES", Value::Level("level0Files")),
        Column::new("pendingBytes", "PENDING", Value::Level("pendingBytes")),
    ],
    headline: &[
        calls::HEADLINE[0],
        calls::HEADLINE[1],
        calls::HEADLINE[2],
        Phrase::new("", Value::Total("problems"), " problems").unless_zero(),
        Phrase::new("writes held back ", Value::Recent("stalled"), "").unless_zero(),
    ],
    metrics: metrics! {
        /// Duration of the operation's calls since the agent first attached to the target; scaled up where they were sampled.
        histogram("ckb_probe_operation_duration_seconds", "duration"),
        /// The same by column family, where byColumnFamily asks for it and the operation is on one.
        histogram("ckb_probe_column_family_operation_duration_seconds", "duration").by_part(),
        /// Payload bytes of the operation's calls, where they are known; scaled up where they were sampled.
        counter("ckb_probe_operation_bytes_total", "bytes"),
        /// The operation's calls, also those that are counted and not timed; scaled up where they were sampled.
        counter("ckb_probe_operation_calls_total", "duration"),
        /// Calls at or above the probe's slowThreshold; scaled up where they were sampled.
        counter("ckb_probe_slow_operations_total", "slow"),
        /// How often the operation's calls read from files, since the block cache lacked what they wanted; scaled up where they were
        /// sampled.
        counter("ckb_probe_rocksdb_reads_total", "reads"),
        /// The same by column family, where byColumnFamily asks for it.
        counter("ckb_probe_rocksdb_column_family_reads_total", "reads").by_part(),
        /// The operation's calls that read from files; scaled up where they were sampled.
        counter("ckb_probe_rocksdb_missed_operations_total", "missed"),
        /// The same by column family, where byColumnFamily asks for it.
        counter("ckb_probe_rocksdb_column_family_missed_operations_total", "missed").by_part(),
        /// What the operation's calls read from files; scaled up where they were sampled.
        counter("ckb_probe_rocksdb_read_bytes_total", "readBytes"),
        /// What the operation's calls wrote to files: the log of writes, or tables; scaled up where they were sampled.
        counter("ckb_probe_rocksdb_written_bytes_total", "writtenBytes"),
        /// Flushes and compactions that failed, errors that RocksDB took down, and compactions without room, by what it says of them.
        counter("ckb_probe_rocksdb_problems_total", "problems").by_part().named("reason"),
        /// Whether it is the gravest error that RocksDB took down and is not over.
        gauge("ckb_probe_rocksdb_lasting_errors", "lasting").by_part().named("reason"),
        /// How often RocksDB found that writes are to be held back, by cause and column family.
        counter("ckb_probe_rocksdb_write_stalls_total", "stalls").by_part(),
        /// For how long writes were held back, by cause and column family.
        counter("ckb_probe_rocksdb_write_stall_seconds_total", "stalled").by_part(),
        /// Memtables that wait to be written to files, of column families that have a backlog.
        gauge("ckb_probe_rocksdb_waiting_memtables", "memtables").by_part(),
        /// Files of level 0, of column families that have a backlog.
        gauge("ckb_probe_rocksdb_level_zero_files", "level0Files").by_part(),
        /// Bytes that compactions have yet to rewrite by RocksDB's own estimate, of column families that have a backlog.
        gauge("ckb_probe_rocksdb_pending_compaction_bytes", "pendingBytes").by_part(),
    },
    alarms: &[
        Alarm {
            reason: Reason::BackgroundErrors,
            rows: |_| true,
            value: Value::Level("lasting"),
            borne: Borne::PerSecond(0.0),
            rests_on: None,
            says: "an error of RocksDB's background work that is not over",
        },
        Alarm {
            reason: Reason::BackgroundErrors,
            rows: |_| true,
            value: Value::Recent("problems"),
            borne: Borne::PerSecond(0.0),
            rests_on: None,
            says: "background work of RocksDB fails",
        },
        Alarm {
            reason: Reason::WritesHeldBack,
            rows: |_| true,
            value: Value::Recent("stalled"),
            // A node that syncs is held back for a moment now and then.
            borne: Borne::PerSecond(0.05e9),
            rests_on: None,
            says: "RocksDB holds writes back",
        },
        Alarm {
            reason: Reason::ReadAmplification,
            rows: |row| !is_apart(row),
            value: Value::Each("reads", "duration"),
            // One of each level, with its index and its filter, where nothing is in the cache.
            borne: Borne::Always(25.0),
            rests_on: Some((Value::Recent("duration"), 100.0)),
            says: "a call of RocksDB reads more than 25 blocks from files",
        },
        Alarm {
            reason: Reason::WriteAmplification,
            rows: |_| true,
            value: Value::EachInAll("tableBytes", "flushedBytes"),
            // RocksDB's levels come to 10 to 30.
            borne: Borne::Always(50.0),
            // What was there before is rewritten, too.
            rests_on: Some((Value::Total("flushedBytes"), 256.0 * 1024.0 * 1024.0)),
            says: "RocksDB writes more than 50 bytes for each that it flushes",
        },
    ],
    apart: is_apart,
    background: is_cause,
    ..Descriptor::EMPTY
};

/// No call of the node's.
fn is_apart(name: &str) -> bool {
    [row::BACKLOG, row::NO_ROOM].contains(&name) || is_cause(name)
}

/// RocksDB's background work is no call of the node's, or is a part of one.
fn is_cause(name: &str) -> bool {
    Operation::CAUSES.iter().any(|cause| cause.as_str() == name)
}
