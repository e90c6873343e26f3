//! `rocksdb`: the latency of the RocksDB C API, as CKB calls it.

mod descriptor;
pub mod row;

pub use descriptor::{
    BYTES, DESCRIPTOR, DURATION, FLUSHED, LASTING, LEVEL0_FILES, LONGEST, MEMTABLES, MISSED, PENDING,
    PROBLEMS, READ_BYTES, READS, SLOW, STALLED, STALLS, TABLES, WRITTEN,
};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::Duration;

/// Latency of the RocksDB C API: count, rate, quantiles, bytes and slow calls of each operation.
#[derive(Clone, Debug, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RocksDbProbe {
    /// The operations to measure: any of Get, TxnGet, TxnPut, TxnDelete, TxnCommit, Write, Put, Delete, IteratorNew,
    /// IteratorSeek, IteratorNext and MultiGet, and of RocksDB's background work: Compaction, Flush, WalSync, FileSync and
    /// WriteStall. If the binary lacks the functions of an operation, the status says so, and the others are attached.
    #[serde(default = "default_operations")]
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    pub operations: Vec<Operation>,

    /// A call that takes at least this long is counted as slow, and the agent lists it with the background work that ran
    /// meanwhile. Background work itself is expected to take long and is never counted as slow.
    #[serde(default = "default_slow_threshold")]
    #[x_kube(validation = crate::rules::duration("slowThreshold", "1us", "1h", "500us or 1ms"))]
    pub slow_threshold: Duration,

    /// Also reports the figures of each column family, for the operations that act on one.
    #[serde(default)]
    pub by_column_family: bool,

    /// Lists slow calls with their callers: function names, innermost first. The stack is copied when the call returns, then
    /// unwound and wiped immediately. This makes a slow call about 3 us longer, and no more stacks are copied than the budget
    /// allows. For every ten minutes with a slow call there is also a CkbProfile of the mode SlowCalls, which shows the time of
    /// slow calls by caller; the last five are kept.
    #[serde(default)]
    pub stacks: bool,

    /// Also attaches to functions whose first instruction the kernel must single-step. A probed call of such a function costs
    /// many times as much (measured: 19 us instead of 1). The overhead budget still applies.
    #[serde(default)]
    pub include_single_stepped: bool,

    /// Also tells what reads and writes of the database read from files and write to them: how many calls the block cache did not serve, and read amplification.
    /// It makes each call a tenth dearer. Of flushes and compactions that is told anyway.
    #[serde(default)]
    pub file_io: bool,

    /// Also tells of RocksDB's own health: flushes and compactions that fail, with what RocksDB says of it, compactions that there is
    /// no room for, and column families whose writes are held back, by what. This is attached all of the time, and costs next
    /// to nothing, since it is some calls for each flush and compaction. A database without such trouble has no rows of it.
    #[serde(default = "yes")]
    pub health: bool,
}

const fn yes() -> bool {
    true
}

impl Default for RocksDbProbe {
    fn default() -> Self {
        Self {
            operations: default_operations(),
            slow_threshold: default_slow_threshold(),
            by_column_family: false,
            stacks: false,
            include_single_stepped: false,
            file_io: false,
            health: yes(),
        }
    }
}

/// A RocksDB operation. Several C functions may serve one.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, JsonSchema, Ord, PartialEq, PartialOrd, Serialize)]
#[derive(IntoStaticStr, VariantArray)]
pub enum Operation {
    /// A read outside any transaction: `rocksdb_get`, `rocksdb_get_cf`, `rocksdb_get_pinned`, `rocksdb_get_pinned_cf`.
    Get,
    /// A read inside a transaction: `rocksdb_transaction_get_pinned_cf`, `rocksdb_transaction_get_for_update_cf`.
    TxnGet,
    /// `rocksdb_transaction_put_cf`.
    TxnPut,
    /// `rocksdb_transaction_delete_cf`.
    TxnDelete,
    /// `rocksdb_transaction_commit`.
    TxnCommit,
    /// A write batch: `rocksdb_write`.
    Write,
    /// `rocksdb_put`, `rocksdb_put_cf`.
    Put,
    /// `rocksdb_delete`, `rocksdb_delete_cf`.
    Delete,
    /// The creation of an iterator: `rocksdb_create_iterator`, `rocksdb_create_iterator_cf`, `rocksdb_transaction_create_iterator_cf`.
    IteratorNew,
    /// `rocksdb_multi_get_cf`.
    MultiGet,
    /// `rocksdb_iter_seek`, `rocksdb_iter_seek_for_prev`, `rocksdb_iter_seek_to_first`, `rocksdb_iter_seek_to_last`.
    IteratorSeek,
    /// `rocksdb_iter_next`, `rocksdb_iter_prev`.
    IteratorNext,
    /// A compaction in the background: `rocksdb::CompactionJob::Run`.
    Compaction,
    /// Writing a memtable to a file, in the background: `rocksdb::FlushJob::Run`.
    Flush,
    /// An explicit sync of the write-ahead log: `rocksdb::DBImpl::SyncWAL`.
    WalSync,
    /// A sync of any file, among them the write-ahead log when a write asks for it: `rocksdb::WritableFileWriter::Sync`.
    FileSync,
    /// A write held back, delayed or stopped, because flush or compaction cannot keep up: `rocksdb::DBImpl::DelayWrite`.
    WriteStall,
}

impl Operation {
    /// Every operation, in the order in which tables show them.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The work that RocksDB does on its own account, and the waits it imposes: what a slow call may be due to.
    pub const CAUSES: [Self; 5] = [
        Self::Compaction,
        Self::Flush,
        Self::WalSync,
        Self::FileSync,
        Self::WriteStall,
    ];

    /// The word used in the spec, the status and the metrics.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl std::str::FromStr for Operation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.iter().copied();
        all.find(|operation| operation.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL
                    .iter()
                    .map(|operation| operation.as_str())
                    .collect();
                format!("no operation {text:?}; there are {}", known.join(", "))
            })
    }
}

/// What a CKB node spends its time on: reads, transactional reads and writes, commits, batches, iterators; and what holds
/// them up.
pub fn default_operations() -> Vec<Operation> {
    use Operation::{
        Compaction, FileSync, Flush, Get, IteratorNew, TxnCommit, TxnGet, TxnPut, WalSync, Write,
        WriteStall,
    };
    vec![
        Get,
        TxnGet,
        TxnPut,
        TxnCommit,
        Write,
        IteratorNew,
        Compaction,
        Flush,
        WalSync,
        FileSync,
        WriteStall,
    ]
}

/// One millisecond: a hundred times what a cached read takes.
pub fn default_slow_threshold() -> Duration {
    std::time::Duration::from_millis(1).into()
}
