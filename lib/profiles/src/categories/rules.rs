//! The table by which stacks get their headings. docs/flame-graphs.md shows it to users.

use super::Category::{
    self, Compaction, Idle, Miner, Network, RocksDbRead, RocksDbWrite, Rpc, Scripts, TokioIdle,
    Verification,
};

/// Where on a stack a rule looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// At every function, before all rules that look elsewhere: what works on its own account, whatever it calls.
    Anywhere,
    /// At one function after the other, from the one that ran on: the nearest that a rule knows tells.
    Nearest,
    /// As [`Where::Nearest`], but only where everything nearer is how one waits: what also runs others' work.
    Waiting,
    /// At the thread's name, when no function told.
    Thread,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// What the stack is put under.
    pub category: Category,
    /// What of the stack is looked at.
    pub at: Where,
    /// Names. One that ends in `*` or `::` stands for all that begin so.
    pub names: &'static [&'static str],
}

const fn rule(category: Category, at: Where, names: &'static [&'static str]) -> Rule {
    Rule {
        category,
        at,
        names,
    }
}

/// The table. Where two rules know the same function, the upper one counts.
pub const RULES: &[Rule] = &[
    rule(
        Compaction,
        Where::Anywhere,
        &[
            "rocksdb::CompactionJob::",
            "rocksdb::CompactionServiceCompactionJob::",
            "rocksdb::DBImpl::BackgroundCompaction*",
            "rocksdb::DBImpl::BackgroundCallCompaction*",
            "rocksdb::DBImpl::BGWorkCompaction*",
            "rocksdb::DBImpl::BGWorkBottomCompaction*",
            "rocksdb::DBImpl::CompactFiles*",
            "rocksdb::DBImpl::CompactRange*",
            "rocksdb::DBImpl::RunManualCompaction*",
            "rocksdb::BlockBasedTableBuilder::BGWork*",
        ],
    ),
    rule(
        RocksDbWrite,
        Where::Anywhere,
        &[
            "rocksdb::FlushJob::",
            "rocksdb::DBImpl::BackgroundFlush*",
            "rocksdb::DBImpl::BackgroundCallFlush*",
            "rocksdb::DBImpl::BGWorkFlush*",
            "rocksdb_transaction_commit",
            "rocksdb_write",
            "rocksdb_put*",
            "rocksdb_delete*",
            "rocksdb_merge*",
            "rocksdb_flush*",
            "rocksdb::DBImpl::WriteImpl*",
            "rocksdb::DBImpl::PipelinedWriteImpl*",
        ],
    ),
    rule(
        RocksDbWrite,
        Where::Nearest,
        &[
            "rocksdb_transaction_put*",
            "rocksdb_transaction_delete*",
            "rocksdb_transaction_merge*",
            "rocksdb_writebatch_*",
            "rocksdb::DBImpl::Write*",
            "rocksdb::DBImpl::Put*",
            "rocksdb::DBImpl::Delete*",
            "rocksdb::DBImpl::Flush*",
            "rocksdb::DBImpl::SyncWAL*",
            "rocksdb::DBImpl::SwitchMemtable*",
            "rocksdb::WriteThread::",
            "rocksdb::WriteBatch::",
            "rocksdb::WriteBatchInternal::",
            "rocksdb::MemTableInserter::",
            "rocksdb::(anonymous namespace)::MemTableInserter::",
            "rocksdb::MemTable::Add*",
            "rocksdb::log::Writer::",
            "rocksdb::WritableFileWriter::",
            "rocksdb::PosixWritableFile::",
            "rocksdb::BlockBasedTableBuilder::",
        ],
    ),
    rule(
        RocksDbRead,
        Where::Nearest,
        &[
            "rocksdb_get*",
            "rocksdb_multi_get*",
            "rocksdb_batched_multi_get*",
            "rocksdb_iter_*",
            "rocksdb_create_iterator*",
            "rocksdb_transaction_get*",
            "rocksdb_transaction_create_iterator*",
            "rocksdb::DBImpl::Get*",
            "rocksdb::DBImpl::MultiGet*",
            "rocksdb::DBImpl::NewIterator*",
            "rocksdb::DBIter::",
            "rocksdb::ArenaWrappedDBIter::",
            "rocksdb::MergingIterator::",
            "rocksdb::Version::Get*",
            "rocksdb::Version::MultiGet*",
            "rocksdb::MemTable::Get*",
            "rocksdb::MemTable::MultiGet*",
            "rocksdb::TableCache::",
            "rocksdb::BlockBasedTable::",
            "rocksdb::BlockBasedTableIterator::",
            "rocksdb::BlockFetcher::",
            "rocksdb::RandomAccessFileReader::",
            "rocksdb::PosixRandomAccessFile::",
            "rocksdb::WriteBatchWithIndex::Get*",
            "ckb_rocksdb::db_pinnable_slice::",
        ],
    ),
    rule(
        Scripts,
        Where::Nearest,
        &[
            "ckb_script::",
            "ckb_vm::",
            "ckb_vm_definitions::",
            "ckb_vm_*",
        ],
    ),
    rule(
        Miner,
        Where::Nearest,
        &[
            "ckb_miner::",
            "ckb_pow::",
            "eaglesong::",
            "ckb_tx_pool::block_assembler::",
        ],
    ),
    rule(
        Verification,
        Where::Nearest,
        &[
            "ckb_verification::",
            "ckb_verification_contextual::",
            "ckb_verification_traits::",
            "ckb_chain::",
            "ckb_dao::",
            "ckb_dao_utils::",
            "ckb_reward_calculator::",
            "ckb_proposal_table::",
            "ckb_tx_pool::",
        ],
    ),
    rule(
        Rpc,
        Where::Nearest,
        &[
            "ckb_rpc::",
            "ckb_jsonrpc_types::",
            "jsonrpc_core::",
            "jsonrpc_utils::",
            "axum::",
        ],
    ),
    rule(
        Network,
        Where::Nearest,
        &[
            "ckb_network::",
            "ckb_network_alert::",
            "ckb_sync::",
            "ckb_light_client_protocol_server::",
            "ckb_block_filter::",
            "tentacle::",
            "tentacle_multiaddr::",
            "tentacle_secio::",
            "tokio_yamux::",
        ],
    ),
    rule(
        TokioIdle,
        Where::Nearest,
        &[
            "tokio::runtime::park::",
            "tokio::runtime::scheduler::multi_thread::park::",
            "tokio::runtime::scheduler::multi_thread::worker::Context::park*",
            "tokio::runtime::scheduler::current_thread::Context::park*",
            // What stands for stacks that were folded. Brackets are left out before it is looked.
            "idle tokio*",
        ],
    ),
    rule(
        TokioIdle,
        Where::Waiting,
        &[
            "tokio::runtime::blocking::pool::Inner::run*",
            "tokio::runtime::io::driver::Driver::turn",
            "tokio::runtime::time::Driver::park*",
            "tokio::runtime::driver::Driver::park*",
        ],
    ),
    rule(
        Idle,
        Where::Nearest,
        // Likewise.
        &["idle rayon*", "idle rocksdb*", "idle sled*", "idle ckb*"],
    ),
    rule(
        Compaction,
        Where::Thread,
        &["rocksdb:low*", "rocksdb:bottom*"],
    ),
    rule(RocksDbWrite, Where::Thread, &["rocksdb:high*"]),
    rule(
        Verification,
        Where::Thread,
        &[
            // The kernel keeps fifteen letters of a thread's name.
            "verify_blocks",
            "ChainService",
            "preload_unverif*",
            "consume_orphan*",
            "consume_unverif*",
        ],
    ),
];

/// How one waits, in a library or the language's own.
const WAITING: &[&str] = &[
    "std::sync::",
    "std::sys::",
    "std::thread::park*",
    "parking_lot::",
    "parking_lot_core::",
    "lock_api::",
    "mio::",
    "pthread_cond_*",
    "__pthread_cond_*",
    "___pthread_cond_*",
    "__futex_*",
    "futex_*",
    "epoll_wait*",
    "__epoll_wait*",
    "syscall",
    "core::ops::function::",
    "[*",
];

/// Whether a function is how one waits.
pub fn is_way(name: &str) -> bool {
    knows(WAITING, name)
}

/// The category of what works on its own account.
pub fn anywhere(names: &[&str]) -> Option<Category> {
    (RULES.iter())
        .filter(|rule| rule.at == Where::Anywhere)
        .find(|rule| names.iter().any(|name| knows(rule.names, name)))
        .map(|rule| rule.category)
}

/// The category by the nearest function that a rule knows.
pub fn nearest(names: &[&str]) -> Option<Category> {
    let mut only_waits = true;
    for name in names.iter().rev() {
        let found = RULES.iter().find(|rule| {
            let looks = rule.at == Where::Nearest || (rule.at == Where::Waiting && only_waits);
            looks && knows(rule.names, name)
        });
        if let Some(rule) = found {
            return Some(rule.category);
        }
        only_waits &= knows(WAITING, name);
    }
    None
}

/// The category by the thread's name.
pub fn of_thread(thread: &str) -> Option<Category> {
    (RULES.iter())
        .find(|rule| rule.at == Where::Thread && knows(rule.names, thread))
        .map(|rule| rule.category)
}

/// Whether a name is one of these, or begins as one of those that end in `*` or `::`.
pub fn knows(patterns: &[&str], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None if pattern.ends_with("::") => name.starts_with(pattern),
            None => name == *pattern,
        })
}
