use super::*;
use crate::testing::stacks;

/// Stacks of CKB, from the thread's name to the function that ran, and where they belong.
const STACKS: &[(&str, Heading)] = &[
    (
        "verify_blocks;ckb_chain::verify::ConsumeUnverifiedBlockProcessor::consume_unverified_blocks;ckb_verification_contextual::contextual_block_verifier::ContextualBlockVerifier<CS, MS>::verify;blake2b_rs::Blake2b::update",
        Heading::Verification,
    ),
    (
        "verify_blocks;ckb_chain::verify::ConsumeUnverifiedBlocks::start;rayon_core::registry::WorkerThread::wait_until_cold;sched_yield",
        Heading::Verification,
    ),
    (
        "GlobalRt-3;tokio::runtime::task::raw::poll;ckb_tx_pool::process::TxPoolService::process_tx::{closure};core::slice::sort",
        Heading::Verification,
    ),
    (
        "verify_blocks;ckb_verification_contextual::contextual_block_verifier::BlockTxsVerifier::verify;ckb_script::verify::TransactionScriptsVerifier<DL, V, M>::verify;ckb_vm_x64_execute",
        Heading::Scripts,
    ),
    (
        "x;<ckb_script::syscalls::load_cell::LoadCell<DL> as Syscalls<Mac>>::ecall;memcpy",
        Heading::Scripts,
    ),
    // A script that loads a cell: what takes the time is the read.
    (
        "x;ckb_script::scheduler::Scheduler<DL, V, M>::run;ckb_store::store::ChainStore::get_cell_data;rocksdb_get_pinned_cf;rocksdb::DBImpl::GetImpl;rocksdb::BlockBasedTable::Get;LZ4_decompress_safe",
        Heading::RocksDbRead,
    ),
    (
        "x;rocksdb_iter_seek;rocksdb::ArenaWrappedDBIter::Seek;pread64;[k]ext4_file_read_iter",
        Heading::RocksDbRead,
    ),
    (
        "x;ckb_chain::verify::ConsumeUnverifiedBlocks::start;rocksdb_transaction_put_cf;rocksdb::WriteBatchWithIndex::Put;memcpy",
        Heading::RocksDbWrite,
    ),
    // A commit looks for conflicts, and writes all the same.
    (
        "x;ckb_db::transaction::RocksDBTransaction::commit;rocksdb_transaction_commit;rocksdb::DBImpl::GetLatestSequenceForKey;rocksdb::MemTable::Get",
        Heading::RocksDbWrite,
    ),
    (
        "x;rocksdb_write;rocksdb::DBImpl::WriteImpl;rocksdb::log::Writer::AddRecord;write;[k]ext4_file_write_iter",
        Heading::RocksDbWrite,
    ),
    (
        "rocksdb:high0;rocksdb::ThreadPoolImpl::Impl::BGThread;rocksdb::DBImpl::BGWorkFlush;rocksdb::FlushJob::Run;rocksdb::BlockBasedTableBuilder::Add",
        Heading::RocksDbWrite,
    ),
    // What compaction reads and writes is compaction.
    (
        "rocksdb:low0;rocksdb::DBImpl::BackgroundCallCompaction;rocksdb::CompactionJob::Run;rocksdb::MergingIterator::Next;rocksdb::BlockBasedTableIterator::Next",
        Heading::Compaction,
    ),
    (
        "x;rocksdb::DBImpl::BGWorkCompaction;rocksdb::CompactionJob::Run;rocksdb::WritableFileWriter::Append",
        Heading::Compaction,
    ),
    (
        "rocksdb:low0;rocksdb::ThreadPoolImpl::Impl::BGThread;pthread_cond_wait",
        Heading::Compaction,
    ),
    (
        "GlobalRt-1;tokio::runtime::task::harness::poll_future;<ckb_network::protocols::identify::IdentifyProtocol<T> as ServiceProtocol>::received::{closure};memcpy",
        Heading::Network,
    ),
    (
        "GlobalRt-1;tentacle::service::Service::run::{closure};[k]tcp_sendmsg",
        Heading::Network,
    ),
    (
        "GlobalRt-1;ckb_sync::synchronizer::Synchronizer::received::{closure};ckb_chain::chain_controller::ChainController::blocking_process_block",
        Heading::Verification,
    ),
    (
        "GlobalRt-2;axum::serve;<ckb_rpc::module::chain::ChainRpcImpl as ChainRpc>::get_block;serde_json::to_string",
        Heading::Rpc,
    ),
    (
        "GlobalRt-2;ckb_rpc::module::chain::ChainRpcImpl::get_block_by_hash;rocksdb_get_pinned_cf",
        Heading::RocksDbRead,
    ),
    (
        "miner;ckb_miner::worker::eaglesong_simple::EaglesongSimple::solve;eaglesong::eaglesong",
        Heading::Miner,
    ),
    (
        "GlobalRt-2;ckb_tx_pool::block_assembler::BlockAssembler::update_full",
        Heading::Miner,
    ),
    (
        "GlobalRt-2;tokio::runtime::scheduler::multi_thread::worker::Context::park_internal;tokio::runtime::scheduler::multi_thread::park::Parker::park;parking_lot::condvar::Condvar::wait;syscall;[k]futex_do_wait",
        Heading::TokioIdle,
    ),
    (
        "GlobalRt-2;tokio::runtime::blocking::pool::Inner::run;std::sync::poison::condvar::Condvar::wait_timeout;std::sys::sync::condvar::futex::Condvar::wait_timeout;syscall",
        Heading::TokioIdle,
    ),
    ("GlobalRt-2;[idle tokio workers]", Heading::TokioIdle),
    // What is done for others in the same pool is not idle.
    (
        "GlobalRt-2;tokio::runtime::blocking::pool::Inner::run;tokio::runtime::task::raw::poll;sled::flush;fsync",
        Heading::Other,
    ),
    (
        "GlobalRt-2;tokio::runtime::task::raw::poll;hyper::proto::h1::dispatch",
        Heading::Other,
    ),
    ("verify_blocks;[k]asm_exc_page_fault", Heading::Verification),
    ("preload_unverif;memcpy", Heading::Verification),
    ("ckb;main", Heading::Other),
    ("", Heading::Other),
    ("x;[pruned];compaction", Heading::Compaction),
    ("x;[pruned]", Heading::Other),
    ("x;[pruned];ckb_rpc::no_heading", Heading::Other),
    // A path's beginning, and not any part of a name.
    (
        "x;core::ptr::drop_in_place<ckb_rpc::Server>",
        Heading::Other,
    ),
    ("x;ckb_rpcs::run", Heading::Other),
    // Nobody's kernel is RocksDB.
    ("x;[k]rocksdb_get", Heading::Other),
];

#[test]
fn each_stack_of_the_table_is_put_where_it_belongs() {
    for (line, expected) in STACKS {
        let stacks = stacks(Mode::OffCpu, &[&format!("{line} 1")]);
        let stack = stacks.iter().next().unwrap();
        assert_eq!(heading(&stack), *expected, "{line}");
    }
}

#[test]
fn each_heading_and_each_rule_is_tried() {
    let under = |heading| STACKS.iter().filter(move |(_, of)| *of == heading);
    for heading in Heading::ALL {
        assert!(under(heading).next().is_some(), "{heading}");
    }
    for rule in RULES {
        let tried = under(rule.heading).any(|(line, _)| {
            let mut names = line.split(';').map(path);
            let thread = names.next();
            match rule.at {
                Where::Thread => thread.is_some_and(|thread| rules::knows(rule.names, thread)),
                _ => names.any(|name| rules::knows(rule.names, name)),
            }
        });
        assert!(tried, "{rule:?}");
    }
}

#[test]
fn rules_for_threads_fit_in_what_the_kernel_keeps_of_a_name() {
    for rule in RULES.iter().filter(|rule| rule.at == Where::Thread) {
        for name in rule.names {
            assert!(name.trim_end_matches('*').len() <= 15, "{name}");
        }
    }
}

#[test]
fn the_split_is_told_in_one_line() {
    let some = stacks(
        Mode::Cpu,
        &[
            "x;ckb_vm_x64_execute 41 410",
            "x;rocksdb_get 22 220",
            "x;rocksdb_write 3 366",
            "x;main 1 4",
        ],
    );
    assert_eq!(
        split(&some, 0),
        [
            (Heading::Scripts, 41),
            (Heading::RocksDbRead, 22),
            (Heading::RocksDbWrite, 3),
            (Heading::Other, 1),
        ]
    );
    assert_eq!(
        summary(&some),
        "Cpu: scripts 41 %, rocksdb write 37 %, rocksdb read 22 %"
    );
    assert_eq!(
        summary(&Stacks::of(Mode::OffCpu)),
        "OffCpu: nothing was seen"
    );
    // To the nearest percent, and nothing that is none.
    let some = stacks(
        Mode::OffCpu,
        &["x;ckb_vm_x64_execute 991", "x;rocksdb_get 5", "x;main 4"],
    );
    assert_eq!(summary(&some), "OffCpu: scripts 99 %, rocksdb read 1 %");
    let some = stacks(Mode::OffCpu, &["x;ckb_vm_x64_execute 994", "x;main 6"]);
    assert_eq!(summary(&some), "OffCpu: scripts 99 %, other 1 %");
}

#[test]
fn the_page_for_users_shows_the_table() {
    let page = include_str!("../../../../docs/flame-graphs.md");
    let at = |at| match at {
        Where::Anywhere => "anywhere",
        Where::Nearest => "nearest",
        Where::Waiting => "waiting",
        Where::Thread => "thread",
    };
    for rule in RULES {
        let names: Vec<String> = rule.names.iter().map(|name| format!("`{name}`")).collect();
        let row = format!(
            "| {} | {} | {} |",
            rule.heading,
            at(rule.at),
            names.join(" ")
        );
        assert!(
            page.contains(&row),
            "docs/flame-graphs.md lacks this row:\n{row}"
        );
    }
}
