//! Which process is meant, and where its runtime put it: what is said of one, apart from how that is found out.

mod place;

pub use place::{Place, pod_and_container, pod_and_container_in};

/// A process, told apart from a later one of the same number by when it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Its number in the host's pid namespace.
    pub pid: u32,
    /// When it started, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
}

/// A process that runs an executable somebody looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process, told apart from others of the same number.
    pub id: ProcessId,
    /// The base name of its executable.
    pub executable: String,
    /// Where its runtime put it.
    pub place: Place,
    /// The name of its container, where the kubelet's mounts say.
    pub name: Option<String>,
}

#[cfg(test)]
mod tests;
