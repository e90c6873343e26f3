//! Profiles as gzipped pprof, the format that `go tool pprof`, speedscope, Pyroscope and others read.
//!
//! Its definition is `profile.proto` of github.com/google/pprof. A stack's thread, target, state, what it waits for, and its category
//! are labels. Modules are mappings, those of the kernel's functions under the name that perf gives them.

mod messages;
mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{Limits, ReadError};

/// The labels of a sample.
mod label {
    pub const THREAD: &str = "thread";
    pub const TARGET: &str = "target";
    pub const STATE: &str = "state";
    pub const WAIT: &str = "wait";
    /// Written for others, and not read: it follows from the stack.
    pub const HEADING: &str = "heading";
    /// What others call the thread.
    pub const THREADS: [&str; 4] = [THREAD, "thread_name", "comm", "thread.name"];
}
