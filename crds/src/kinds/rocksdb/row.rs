//! What rows are called that no operation has: RocksDB's health.

/// A compaction that failed, or could not begin, and is tried again: `rocksdb::DBImpl::BackgroundCompaction`.
pub const FAILED_COMPACTION: &str = "FailedCompaction";
/// A flush that failed: `rocksdb::DBImpl::BackgroundFlush`.
pub const FAILED_FLUSH: &str = "FailedFlush";
/// An error of background work that RocksDB takes down: `rocksdb::EventHelpers::NotifyOnBackgroundError`.
pub const BACKGROUND_ERROR: &str = "BackgroundError";
/// A compaction that there is no room for: `rocksdb::SstFileManagerImpl::EnoughRoomForCompaction`.
pub const NO_ROOM: &str = "NoRoomForCompaction";
/// Writes to a column family are delayed: by memtables, by files of level 0, by bytes that compactions have yet to rewrite, or by what is not
/// known.
pub const DELAYED: [&str; 4] = [
    "DelayedByMemtables",
    "DelayedByLevel0Files",
    "DelayedByPendingBytes",
    "DelayedByUnknown",
];
/// They are stopped, likewise.
pub const STOPPED: [&str; 4] = [
    "StoppedByMemtables",
    "StoppedByLevel0Files",
    "StoppedByPendingBytes",
    "StoppedByUnknown",
];
/// Writes wait for the memory of all memtables: `rocksdb::DBImpl::WriteBufferManagerStallWrites`.
pub const STOPPED_BY_WRITE_BUFFERS: &str = "StoppedByWriteBuffers";
/// Its part: it is of no column family in particular.
pub const ALL_FAMILIES: &str = "all";
/// What column families have before them.
pub const BACKLOG: &str = "Backlog";
