//! What /proc and /sys say: the one module that reads them.

mod address_space;
mod cache;
mod contention;
mod disks;
mod files;
mod functions;
mod kernel_functions;
mod libraries;
mod mappings;
mod memory_limit;
mod namespaces;
mod node;
mod process;
mod search;
mod standstill;
mod survivor;
mod symbols;
mod threads;
mod usdt;

use std::time::Duration;

pub use address_space::{AddressSpace, FunctionName};
pub use cache::{FunctionCache, SymbolCache, UsdtCache};
pub use ckb_probe_symbols::{
    FirstInstruction, GLOB_LIMIT, Glob, GlobError, Machine, SearchError, SymbolName, demangle,
    syscall_name, syscall_number,
};
pub use contention::ContentionFiles;
pub use disks::{BlockDevice, block_devices};
pub use files::OpenFiles;
pub use functions::{
    Function, FunctionsError, LISTED_LIMIT, Matches, Pattern, find_functions, functions_of_file,
};
use k8s_openapi::jiff::Timestamp;
pub use kernel_functions::{KernelFunctions, find_kernel_functions};
pub use libraries::{Change, Libraries};
pub use mappings::Mappings;
pub use memory_limit::memory_limit;
pub use namespaces::{HeldNamespace, Namespaces, are_numbers_the_kernels};
use nix::time::ClockId;
pub use node::NodeFacts;
pub use process::{
    CpuTime, Exit, Found, Life, ObserveError, Place, Process, ProcessId, Program, Resident,
    Unmeasured, bytes_moved, cpu_time, is_called, is_confined, open_file, process, processes,
    resident, successor, unmeasured,
};
pub use search::{ContainerNames, Search};
pub use standstill::Standstill;
pub use symbols::{Location, Symbols, SymbolsError, find_symbols, symbols_of_file};
pub use threads::ended_threads;
pub use usdt::{UsdtFile, find_usdt, usdt_of_file};

/// The kernel's release, such as `6.18.44`; `unknown` when /proc does not say.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|release| release.trim().to_string())
        .unwrap_or_else(|_| "unknown".to_string())
}

/// What this machine is called; `unknown` when /proc does not say.
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_string())
        .unwrap_or_else(|_| "unknown".to_string())
}

/// Whether the kernel takes pages away for a moment, to see which node's CPUs use them.
pub fn balances_nodes() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/numa_balancing")
        .is_ok_and(|balancing| balancing.trim() != "0")
}

/// The monotonic clock's time, which the BPF programs read.
pub fn monotonic() -> Duration {
    ClockId::CLOCK_MONOTONIC
        .now()
        .map(Duration::from)
        .unwrap_or_default()
}

/// CPU time that this thread has had: on a busy node, time that others had does not count.
pub fn thread_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID
        .now()
        .map(Duration::from)
        .unwrap_or_default()
}

/// A thread of this process.
#[derive(Clone, Copy, Debug)]
pub struct OwnThread(i32);

impl OwnThread {
    /// The one that asks.
    pub fn current() -> Self {
        Self(nix::unistd::gettid().as_raw())
    }

    /// For how many nanoseconds it ran, and whether it would run now if there were a CPU for it; None where it has ended, or the kernel does
    /// not say.
    pub fn scheduled(self) -> Option<(u64, bool)> {
        let task = procfs::process::Process::myself().and_then(|own| own.task_from_tid(self.0));
        let task = task.ok()?;
        let ran = task.schedstat().ok()?.sum_exec_runtime;
        Some((ran, task.stat().ok()?.state == 'R'))
    }
}

/// The wall clock's time at which the monotonic clock, which the BPF programs read, was zero.
pub fn boot_time() -> Timestamp {
    let monotonic = monotonic();
    let now = Timestamp::now();
    now.checked_sub(monotonic).unwrap_or(now)
}

/// What the wall clock showed so many nanoseconds after [`boot_time`].
pub fn since_boot(booted: Timestamp, nanos: u64) -> Timestamp {
    let since = Duration::from_nanos(nanos);
    booted.checked_add(since).unwrap_or(booted)
}
