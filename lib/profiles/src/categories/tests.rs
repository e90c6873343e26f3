use super::*;
use crate::testing::{cases, stacks};

/// Stacks of CKB, from the thread's name to the function that ran, and where they belong.
const STACKS: &[(&str, Category)] = &cases! {
    "verify_blocks;ckb_chain::verify::ConsumeUnverifiedBlockProcessor::consume_unverified_blocks;ckb_verification_contextual::contextual_block_verifier::ContextualBlockVerifier<CS, MS>::verify;blake2b_rs::Blake2b::update"
        => Category::Verification;
    "verify_blocks;ckb_chain::verify::ConsumeUnverifiedBlocks::start;rayon_core::registry::WorkerThread::wait_until_cold;sched_yield"
        => Category::Verification;
    "GlobalRt-3;tokio::runtime::task::raw::poll;ckb_tx_pool::process::TxPoolService::process_tx::{closure};core::slice::sort"
        => Category::Verification;
    "verify_blocks;ckb_verification_contextual::contextual_block_verifier::BlockTxsVerifier::verify;ckb_script::verify::TransactionScriptsVerifier<DL, V, M>::verify;ckb_vm_x64_execute"
        => Category::Scripts;
    "x;<ckb_script::syscalls::load_cell::LoadCell<DL> as Syscalls<Mac>>::ecall;memcpy" => Category::Scripts;
    // A script that loads a cell: what takes the time is the read.
    "x;ckb_script::scheduler::Scheduler<DL, V, M>::run;ckb_store::store::ChainStore::get_cell_data;rocksdb_get_pinned_cf;rocksdb::DBImpl::GetImpl;rocksdb::BlockBasedTable::Get;LZ4_decompress_safe"
        => Category::RocksDbRead;
    "x;rocksdb_iter_seek;rocksdb::ArenaWrappedDBIter::Seek;pread64;[k]ext4_file_read_iter"
        => Category::RocksDbRead;
    "x;ckb_chain::verify::ConsumeUnverifiedBlocks::start;rocksdb_transaction_put_cf;rocksdb::WriteBatchWithIndex::Put;memcpy"
        => Category::RocksDbWrite;
    // A commit looks for conflicts, and writes all the same.
    "x;ckb_db::transaction::RocksDBTransaction::commit;rocksdb_transaction_commit;rocksdb::DBImpl::GetLatestSequenceForKey;rocksdb::MemTable::Get"
        => Category::RocksDbWrite;
    "x;rocksdb_write;rocksdb::DBImpl::WriteImpl;rocksdb::log::Writer::AddRecord;write;[k]ext4_file_write_iter"
        => Category::RocksDbWrite;
    "rocksdb:high0;rocksdb::ThreadPoolImpl::Impl::BGThread;rocksdb::DBImpl::BGWorkFlush;rocksdb::FlushJob::Run;rocksdb::BlockBasedTableBuilder::Add"
        => Category::RocksDbWrite;
    // What compaction reads and writes is compaction.
    "rocksdb:low0;rocksdb::DBImpl::BackgroundCallCompaction;rocksdb::CompactionJob::Run;rocksdb::MergingIterator::Next;rocksdb::BlockBasedTableIterator::Next"
        => Category::Compaction;
    "x;rocksdb::DBImpl::BGWorkCompaction;rocksdb::CompactionJob::Run;rocksdb::WritableFileWriter::Append"
        => Category::Compaction;
    "rocksdb:low0;[pthread]" => Category::Compaction;
    // A pool that waits for something to do does not do what its threads are called for.
    "rocksdb:low0;rocksdb::ThreadPoolImpl::Impl::BGThread;pthread_cond_wait" => Category::Idle;
    "rocksdb:low0;[idle rocksdb]" => Category::Idle;
    "rocksdb:high0;[idle rocksdb]" => Category::Idle;
    "verify_blocks;[idle ckb]" => Category::Idle;
    "RayonGlobal-1;[idle rayon]" => Category::Idle;
    "sled-io-1;[idle sled]" => Category::Idle;
    "GlobalRt-1;tokio::runtime::task::harness::poll_future;<ckb_network::protocols::identify::IdentifyProtocol<T> as ServiceProtocol>::received::{closure};memcpy"
        => Category::Network;
    "GlobalRt-1;tentacle::service::Service::run::{closure};[k]tcp_sendmsg" => Category::Network;
    "GlobalRt-1;ckb_sync::synchronizer::Synchronizer::received::{closure};ckb_chain::chain_controller::ChainController::blocking_process_block"
        => Category::Verification;
    "GlobalRt-2;axum::serve;<ckb_rpc::module::chain::ChainRpcImpl as ChainRpc>::get_block;serde_json::to_string"
        => Category::Rpc;
    "GlobalRt-2;ckb_rpc::module::chain::ChainRpcImpl::get_block_by_hash;rocksdb_get_pinned_cf"
        => Category::RocksDbRead;
    "miner;ckb_miner::worker::eaglesong_simple::EaglesongSimple::solve;eaglesong::eaglesong"
        => Category::Miner;
    "GlobalRt-2;ckb_tx_pool::block_assembler::BlockAssembler::update_full" => Category::Miner;
    "GlobalRt-2;tokio::runtime::scheduler::multi_thread::worker::Context::park_internal;tokio::runtime::scheduler::multi_thread::park::Parker::park;parking_lot::condvar::Condvar::wait;syscall;[k]futex_do_wait"
        => Category::TokioIdle;
    "GlobalRt-2;tokio::runtime::blocking::pool::Inner::run;std::sync::poison::condvar::Condvar::wait_timeout;std::sys::sync::condvar::futex::Condvar::wait_timeout;syscall"
        => Category::TokioIdle;
    "GlobalRt-2;[idle tokio workers]" => Category::TokioIdle;
    // What is done for others in the same pool is not idle.
    "GlobalRt-2;tokio::runtime::blocking::pool::Inner::run;tokio::runtime::task::raw::poll;sled::flush;fsync"
        => Category::Other;
    "GlobalRt-2;tokio::runtime::task::raw::poll;hyper::proto::h1::dispatch" => Category::Other;
    "verify_blocks;[k]asm_exc_page_fault" => Category::Verification;
    "preload_unverif;memcpy" => Category::Verification;
    "ckb;main" => Category::Other;
    "" => Category::Other;
    "x;[pruned];compaction" => Category::Compaction;
    "x;[pruned]" => Category::Other;
    "x;[pruned];ckb_rpc::no_heading" => Category::Other;
    // A path's beginning, and not any part of a name.
    "x;core::ptr::drop_in_place<ckb_rpc::Server>" => Category::Other;
    "x;ckb_rpcs::run" => Category::Other;
    // Nobody's kernel is RocksDB.
    "x;[k]rocksdb_get" => Category::Other;
};

#[test]
fn each_stack_of_the_table_is_put_where_it_belongs() {
    for (line, expected) in STACKS {
        let stacks = stacks(ProfileMode::OffCpu, &[&format!("{line} 1")]);
        let stack = stacks.iter().next().unwrap();
        assert_eq!(category(&stack), *expected, "{line}");
    }
}

#[test]
fn each_heading_and_each_rule_is_tried() {
    let under = |category| STACKS.iter().filter(move |(_, of)| *of == category);
    for &category in Category::ALL {
        assert!(under(category).next().is_some(), "{category}");
    }
    for rule in RULES {
        let tried = under(rule.category).any(|(line, _)| {
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
        ProfileMode::Cpu,
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
            (Category::Scripts, 41),
            (Category::RocksDbRead, 22),
            (Category::RocksDbWrite, 3),
            (Category::Other, 1),
        ]
    );
    assert_eq!(
        summary(&some),
        "Cpu: scripts 41 %, rocksdb write 37 %, rocksdb read 22 %"
    );
    assert_eq!(
        summary(&Stacks::of(ProfileMode::OffCpu)),
        "OffCpu: nothing was seen"
    );
    // To the nearest percent, and nothing that is none.
    let some = stacks(
        ProfileMode::OffCpu,
        &["x;ckb_vm_x64_execute 991", "x;rocksdb_get 5", "x;main 4"],
    );
    assert_eq!(summary(&some), "OffCpu: scripts 99 %, rocksdb read 1 %");
    let some = stacks(
        ProfileMode::OffCpu,
        &["x;ckb_vm_x64_execute 994", "x;main 6"],
    );
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
            rule.category,
            at(rule.at),
            names.join(" ")
        );
        assert!(
            page.contains(&row),
            "docs/flame-graphs.md lacks this row:\n{row}"
        );
    }
}
