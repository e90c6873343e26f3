//! Which threads only wait for work: pools, and loops that take orders. Of a profile of what is waited for they are the most, and
//! tell nothing.

#[cfg(test)]
mod tests;

use crate::categories::rules;

/// A pool, and how its threads are known when they have nothing to do.
#[derive(Clone, Copy, Debug)]
pub struct Pool {
    /// What stands in place of such a stack.
    pub name: &'static str,
    /// Functions that wait for work, where everything nearer is a way to wait. One that ends in `*` or `::` stands for all that
    /// begin so.
    pub functions: &'static [&'static str],
    /// Names of threads that do nothing but wait for work, where all of their functions are ways to wait.
    pub threads: &'static [&'static str],
}

const fn pool(name: &'static str, functions: &'static [&'static str]) -> Pool {
    Pool {
        name,
        functions,
        threads: &[],
    }
}

/// The table. docs/flame-graphs.md shows it to users.
pub const POOLS: &[Pool] = &[
    pool(
        "[idle tokio workers]",
        &[
            "tokio::runtime::scheduler::multi_thread::worker::Context::park*",
            "tokio::runtime::scheduler::multi_thread::park::",
            "tokio::runtime::scheduler::current_thread::Context::park*",
        ],
    ),
    pool(
        "[idle tokio blocking pool]",
        &["tokio::runtime::blocking::pool::Inner::run*"],
    ),
    pool(
        "[idle rayon]",
        &[
            "rayon_core::registry::ThreadBuilder::run",
            "rayon_core::registry::WorkerThread::main_loop*",
        ],
    ),
    pool(
        "[idle rocksdb]",
        &[
            "rocksdb::ThreadPoolImpl::Impl::BGThread",
            "rocksdb::Timer::Run",
        ],
    ),
    pool(
        "[idle sled]",
        &["sled::threadpool::perform_work", "sled::flusher::run"],
    ),
    Pool {
        name: "[idle ckb]",
        functions: &[
            "ckb_chain::chain_service::ChainService::start_process_block",
            "ckb_chain::preload_unverified_blocks_channel::PreloadUnverifiedBlocksChannel::start",
            "ckb_chain::verify::ConsumeUnverifiedBlocks::start",
            "ckb_stop_handler::stop_register::wait_all_ckb_services_exit",
        ],
        threads: &["LogWriter", "ctrl-c"],
    },
];

/// How pools wait, besides the ways in which everyone does.
pub const WAYS: &[&str] = &[
    "crossbeam_channel::channel::Receiver*",
    "crossbeam_channel::select::",
    "ctrlc::platform::",
    "mio::poll::",
    "rayon_core::registry::WorkerThread::wait_until*",
    "rayon_core::sleep::",
    "rocksdb::port::CondVar::",
    "sem_wait*",
    "std::thread::functions::park*",
    "tokio::runtime::driver::",
    "tokio::runtime::io::driver::",
    "tokio::runtime::time::Driver::",
];

/// The pool that a thread waits in for work; None where it does anything else. Its functions come from the outermost on, without the
/// kernel's.
pub fn idle(thread: &str, functions: &[&str]) -> Option<&'static str> {
    for name in functions.iter().rev() {
        let mut pools = POOLS.iter();
        if let Some(pool) = pools.find(|pool| rules::knows(pool.functions, name)) {
            return Some(pool.name);
        }
        if !is_way(name) {
            return None;
        }
    }
    let own = |pool: &&Pool| pool.threads.contains(&thread);
    let pool = POOLS.iter().find(own).filter(|_| !functions.is_empty());
    pool.map(|pool| pool.name)
}

fn is_way(name: &str) -> bool {
    // Whoever sends, and has to wait, waits for somebody who does not keep up.
    let receives = || name.starts_with("crossbeam_channel::flavors::") && name.contains("::recv");
    rules::is_way(name) || rules::knows(WAYS, name) || receives()
}
