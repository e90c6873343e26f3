use super::*;
use crate::testing::cases;

/// Of CKB 0.210 as it mines, from the thread's name to the function that waits.
const STACKS: &[(&str, Option<&str>)] = &cases! {
    "GlobalRt-2;[libc.so.6];tokio::runtime::blocking::pool::Inner::run;tokio::runtime::task::core::Core<T,S>::poll;tokio::runtime::scheduler::multi_thread::worker::run;tokio::runtime::scheduler::multi_thread::worker::Context::park_internal;tokio::runtime::scheduler::multi_thread::park::Parker::park;tokio::runtime::driver::Driver::park;tokio::runtime::time::Driver::park_internal;tokio::runtime::io::driver::Driver::turn;mio::poll::Poll::poll;epoll_wait"
        => Some("[idle tokio workers]");
    "GlobalRt-8;[libc.so.6];std::sys::backtrace::__rust_begin_short_backtrace;tokio::runtime::blocking::pool::Inner::run;parking_lot::condvar::Condvar::wait_until_internal;syscall"
        => Some("[idle tokio blocking pool]");
    "RayonGlobal-1;rayon_core::registry::ThreadBuilder::run;rayon_core::registry::WorkerThread::wait_until_cold;rayon_core::sleep::Sleep::sleep;std::sys::sync::condvar::futex::Condvar::wait;syscall"
        => Some("[idle rayon]");
    "rocksdb:low;[libstdc++.so.6];rocksdb::ThreadPoolImpl::Impl::BGThreadWrapper;rocksdb::ThreadPoolImpl::Impl::BGThread;pthread_cond_wait;[libc.so.6]"
        => Some("[idle rocksdb]");
    "ckb;rocksdb::Timer::Run;rocksdb::port::CondVar::TimedWait;pthread_cond_timedwait;[libc.so.6]"
        => Some("[idle rocksdb]");
    "sled-io-6;sled::threadpool::perform_work;parking_lot::condvar::Condvar::wait_until_internal;syscall"
        => Some("[idle sled]");
    "verify_blocks;ckb_chain::verify::ConsumeUnverifiedBlocks::start;crossbeam_channel::select::run_select;crossbeam_channel::select::run_select::{{closure}};std::thread::functions::park;syscall"
        => Some("[idle ckb]");
    "ckb;main;ckb_stop_handler::stop_register::wait_all_ckb_services_exit;crossbeam_channel::channel::Receiver<T>::recv;crossbeam_channel::flavors::array::Channel<T>::recv;std::thread::functions::park;syscall"
        => Some("[idle ckb]");
    "LogWriter;[libc.so.6];std::sys::thread::unix::Thread::new::thread_start;core::ops::function::FnOnce::call_once{{vtable.shim}};std::sys::backtrace::__rust_begin_short_backtrace;crossbeam_channel::channel::Receiver<T>::recv;std::thread::functions::park;syscall"
        => Some("[idle ckb]");
    "ctrl-c;std::sys::backtrace::__rust_begin_short_backtrace;ctrlc::platform::unix::implementation::sem_wait_forever;[libc.so.6]"
        => Some("[idle ckb]");
    // Work that waits is not idle, in whatever pool it is done.
    "GlobalRt-2;tokio::runtime::blocking::pool::Inner::run;tokio::runtime::task::raw::poll;sled::flush;fsync"
        => None;
    "rocksdb:low;rocksdb::ThreadPoolImpl::Impl::BGThread;rocksdb::CompactionJob::Run;pread64" => None;
    "GlobalRt-2;tokio::runtime::park::CachedParkThread::block_on;std::thread::functions::park;syscall" => None;
    // Waits for others of its pool to do their part of its work.
    "RayonGlobal-1;rayon_core::registry::ThreadBuilder::run;rayon_core::join::join_context;rayon_core::registry::WorkerThread::wait_until_cold;sched_yield"
        => None;
    // Waits for whoever does not keep up.
    "ChainService;ckb_chain::chain_service::ChainService::start_process_block;crossbeam_channel::flavors::array::Channel<T>::send;std::thread::functions::park;syscall"
        => None;
    "LogWriter;std::sys::backtrace::__rust_begin_short_backtrace;write" => None;
    "somebody;std::sys::backtrace::__rust_begin_short_backtrace;syscall" => None;
    "LogWriter" => None;
};

#[test]
fn only_who_waits_for_work_is_idle() {
    for (stack, expected) in STACKS {
        let mut names = stack.split(';');
        let thread = names.next().unwrap();
        let functions: Vec<&str> = names.collect();
        assert_eq!(idle(thread, &functions), *expected, "{stack}");
    }
}

#[test]
fn each_pool_is_tried() {
    for pool in POOLS {
        let found = STACKS.iter().any(|(_, name)| *name == Some(pool.name));
        assert!(found, "{}", pool.name);
    }
}

#[test]
fn the_page_for_users_shows_the_table() {
    let page = include_str!("../../../../docs/flame-graphs.md");
    let all = |names: &[&str]| -> String {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        names.join(" ")
    };
    for pool in POOLS {
        let threads = all(pool.threads);
        let row = format!("| `{}` | {} | {threads} |", pool.name, all(pool.functions));
        assert!(
            page.contains(&row),
            "docs/flame-graphs.md lacks this row:\n{row}"
        );
    }
    assert!(
        page.contains(&all(WAYS)),
        "docs/flame-graphs.md lacks: {}",
        all(WAYS)
    );
}
