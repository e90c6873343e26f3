//! What the system says of this node, and of what this program may do there.

use std::{
    fs::{self, File},
    io,
    str::FromStr,
};

use procfs::process::Process;

use super::process::is_confined_by;

/// What can be known before anything is tried.
#[derive(Debug)]
pub struct NodeFacts {
    /// The kernel's release, such as `6.18.44`.
    pub kernel: String,
    /// What this program was built for, such as `x86_64`.
    pub architecture: &'static str,
    /// Whether the kernel's type information can be read.
    pub btf: io::Result<()>,
    /// This program's effective capabilities, by bit; None where /proc does not say.
    pub capabilities: Option<u64>,
    /// `kernel.perf_event_paranoid`; None where /proc does not say.
    pub perf_event_paranoid: Option<i64>,
    /// The kernel's lockdown mode: `none`, `integrity` or `confidentiality`; None where securityfs is not mounted.
    pub lockdown: Option<String>,
    /// The number of the performance monitoring unit for uprobes.
    pub uprobe_pmu: io::Result<u32>,
    /// Whether this program is confined by seccomp itself.
    pub confined: bool,
    /// Whether processes go by the same numbers here as for the kernel.
    pub kernels_numbers: bool,
}

impl NodeFacts {
    /// Reads them.
    pub fn read() -> Self {
        let status = Process::myself().and_then(|process| process.status()).ok();
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown");
        Self {
            kernel: super::kernel_release(),
            architecture: std::env::consts::ARCH,
            btf: File::open("/sys/kernel/btf/vmlinux").map(drop),
            capabilities: status.as_ref().map(|status| status.capeff),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid").ok(),
            lockdown: lockdown.ok().and_then(|text| chosen(&text)),
            uprobe_pmu: number("/sys/bus/event_source/devices/uprobe/type"),
            confined: status.is_none_or(|status| is_confined_by(&status)),
            kernels_numbers: super::are_numbers_the_kernels(),
        }
    }
}

fn number<T: FromStr>(path: &str) -> io::Result<T> {
    let text = fs::read_to_string(path)?;
    let number = text.trim().parse();
    number.map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The one in brackets, as in `[none] integrity confidentiality`.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (chosen, _) = rest.split_once(']')?;
    Some(chosen.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lockdown_mode_is_the_one_in_brackets() {
        let text = "none [integrity] confidentiality\n";
        assert_eq!(chosen(text).as_deref(), Some("integrity"));
        assert_eq!(chosen("none integrity"), None);
    }

    #[test]
    fn this_node_has_a_kernel_and_this_program_capabilities() {
        let facts = NodeFacts::read();
        assert_eq!(facts.kernel, super::super::kernel_release());
        assert!(facts.capabilities.is_some());
    }
}
