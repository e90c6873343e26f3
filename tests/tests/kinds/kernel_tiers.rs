//! The ways in which this kernel lets functions of its own be probed.

use std::sync::OnceLock;

use ckb_probe_agent::{
    kernel::{
        AttachError, DEFAULT_RING_BYTES, Identity, KernelPlan, KernelSite, KernelTier, Probes,
        Slots,
    },
    observe::{Glob, find_kernel_functions},
};

use crate::way::NONE;

/// The function of the kernel that a system call of this machine is made by.
macro_rules! system_call {
    ($name:literal) => {
        if cfg!(target_arch = "aarch64") {
            concat!("__arm64_sys_", $name)
        } else {
            concat!("__x64_sys_", $name)
        }
    };
}
pub(crate) use system_call;

/// Attaches to functions, on behalf of a process.
pub fn attach(tier: KernelTier, process: u32, functions: &[&str]) -> Result<Probes, AttachError> {
    let plan = KernelPlan {
        process: Identity::of_now(process)?,
        sites: functions
            .iter()
            .map(|function| KernelSite {
                function: function.to_string(),
                slow_threshold_ns: u64::MAX,
            })
            .collect(),
        ring_bytes: DEFAULT_RING_BYTES,
        trap_ns: 0,
    };
    let mut probes = Probes::load_kernel(tier, &plan)?;
    let slots: Slots = (0..functions.len()).map(|slot| slot as u8).collect();
    let replaced = probes.attach(&slots)?;
    assert!(
        replaced.is_none(),
        "there was nothing to be attached before"
    );
    Ok(probes)
}

/// The ways, the best first. `CKB_PROBE_KERNEL_TIERS` may say which there must be, separated by commas; where it does not, there
/// is at least one if the kernel was built with kprobes.
pub fn kernel_tiers() -> &'static [KernelTier] {
    static TIERS: OnceLock<Vec<KernelTier>> = OnceLock::new();
    TIERS.get_or_init(|| {
        let (mut works, mut names, mut refused) = (Vec::new(), Vec::new(), String::new());
        for &tier in KernelTier::ALL {
            match attach(tier, std::process::id(), &[system_call!("getppid")]) {
                Ok(_) => {
                    works.push(tier);
                    names.push(tier.as_str());
                }
                Err(error) => refused += &format!("\n{}: {error}", tier.as_str()),
            }
        }
        if names.is_empty() {
            names.push(NONE);
        }
        match std::env::var("CKB_PROBE_KERNEL_TIERS") {
            Ok(expected) => assert_eq!(names.join(","), expected, "these work{refused}"),
            Err(_) => assert_eq!(works.is_empty(), !has_kprobes(), "{names:?} work{refused}"),
        }
        works
    })
}

fn has_kprobes() -> bool {
    let registers = Glob::new("register_[fk]*probe").unwrap();
    let found = find_kernel_functions(&registers).unwrap().found;
    ["register_fprobe", "register_kprobe"]
        .iter()
        .any(|function| found.contains_key(*function))
}
