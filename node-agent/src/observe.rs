//! What /proc says: the one module that reads it.

mod process;
mod symbols;

pub use process::{
    CpuTime, Exit, ObserveError, Process, ProcessId, container_id, cpu_time, own_file_offset,
    pod_and_container, processes,
};
pub use symbols::{Binary, Location, Symbols, SymbolsError, find_symbols};

/// The kernel's release, such as `6.18.44`; `unknown` when /proc does not say.
pub fn kernel_release() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease")
        .map(|release| release.trim().to_string())
        .unwrap_or_else(|_| "unknown".to_string())
}
