//! What was found, in words: each with what follows from it and what to do, where it is not as needed.

use ckb_probe_crds::{Check, display_nanos as nanos};

use super::means;
use crate::{
    kernel::{Attempt, Calibration, ConfinedReturn, Tier},
    mechanism::Foreign,
    observe::NodeFacts,
};

/// Attach cookies, which every tier needs, came with this kernel.
const OLDEST_KERNEL: (u32, u32) = (5, 15);

/// Above this, kernels of Debian and Ubuntu let SYS_ADMIN alone open perf events.
const STRICTEST_OF_THE_MAIN_LINE: i64 = 2;

// include/uapi/linux/capability.h
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const SYS_PTRACE: u32 = 19;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// The capabilities that every tier needs, those that include them, and what does not work without.
const CAPABILITIES: [(&str, [u32; 2], &str); 4] = [
    ("BPF", [BPF, SYS_ADMIN], "no program can be loaded"),
    ("PERFMON", [PERFMON, SYS_ADMIN], "no probe can be attached"),
    (
        "SYS_PTRACE",
        [SYS_PTRACE; 2],
        "the processes of others cannot be looked at",
    ),
    (
        "DAC_READ_SEARCH",
        [DAC_READ_SEARCH, DAC_OVERRIDE],
        "binaries that only their owner may read cannot be searched",
    ),
];

/// What was found: Ok where it is as needed.
type Finding = Result<String, String>;

/// What the facts and the attempts come to.
pub(super) fn checks(facts: &NodeFacts, attempts: &[(Tier, Attempt)]) -> Vec<Check> {
    let used = means(attempts).map(|means| means.tier);
    let facts_alone = [
        ("Kernel", kernel(facts)),
        ("PidNamespace", pid_namespace(facts)),
        ("Btf", btf(facts)),
        ("Capabilities", capabilities(facts)),
        ("PerfEventParanoid", perf_event_paranoid(facts, used)),
        ("Lockdown", lockdown(facts, used)),
        ("UprobePmu", uprobe_pmu(facts, used)),
    ];
    let tiers = attempts
        .iter()
        .map(|(tier, attempt)| (tier.as_str(), tried(*tier, attempt, attempts, used)));
    // Where nothing works, nothing was tested.
    let confined = attempts.iter().find_map(|(_, attempt)| match attempt {
        Attempt::Works {
            confined_return, ..
        } => Some(("SeccompReturn", seccomp_return(facts, confined_return))),
        Attempt::Refused(_) | Attempt::NotTried => None,
    });
    let findings = facts_alone.into_iter().chain(tiers).chain(confined);
    findings.map(check).collect()
}

fn check((name, finding): (&str, Finding)) -> Check {
    Check {
        name: name.to_string(),
        passed: finding.is_ok(),
        detail: finding.unwrap_or_else(|detail| detail),
    }
}

fn kernel(facts: &NodeFacts) -> Finding {
    let found = format!("{}, {}", facts.kernel, facts.architecture);
    let (major, minor) = OLDEST_KERNEL;
    if !["x86_64", "aarch64"].contains(&facts.architecture) {
        return Err(format!("{found}: only x86_64 and aarch64 can be measured"));
    }
    match version(&facts.kernel) {
        Some(version) if version < OLDEST_KERNEL => Err(format!(
            "{found}: nothing can be measured before Linux {major}.{minor}; run the node on a newer one"
        )),
        // A release that does not say how old it is does not matter: what works is tried.
        _ => Ok(found),
    }
}

/// Major and minor of a release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

fn pid_namespace(facts: &NodeFacts) -> Finding {
    match facts.kernels_numbers {
        true => Ok("processes go by the numbers that the kernel tells programs".to_string()),
        false => Err(Foreign.to_string()),
    }
}

fn btf(facts: &NodeFacts) -> Finding {
    match &facts.btf {
        Ok(()) => Ok("the kernel has its type information in /sys/kernel/btf/vmlinux".to_string()),
        Err(error) => Err(format!(
            "/sys/kernel/btf/vmlinux cannot be read ({error}): without the kernel's type information there are no \
             sessions; a kernel built with CONFIG_DEBUG_INFO_BTF has it"
        )),
    }
}

fn capabilities(facts: &NodeFacts) -> Finding {
    if facts.capabilities.is_none() {
        return Ok("unknown: /proc/self/status does not say".to_string());
    }
    let missing: Vec<String> = CAPABILITIES
        .iter()
        .filter(|(_, any_of, _)| !any_of.iter().any(|bit| has(facts, *bit)))
        .map(|(name, _, without)| format!("{name} is missing ({without})"))
        .collect();
    if !missing.is_empty() {
        return Err(format!(
            "{}; the chart's agent.capabilities grants an agent what it needs, and root on a host has it",
            missing.join(", ")
        ));
    }
    let names = CAPABILITIES.map(|(name, ..)| name).join(", ");
    let admin = if has(facts, SYS_ADMIN) {
        "and SYS_ADMIN"
    } else {
        "and not SYS_ADMIN, which the tier perf-event alone needs"
    };
    Ok(format!("{names}, {admin}"))
}

/// Whether this program has the capability; where that is not known, that it has.
fn has(facts: &NodeFacts, bit: u32) -> bool {
    facts.capabilities.is_none_or(|held| held & (1 << bit) != 0)
}

fn perf_event_paranoid(facts: &NodeFacts, used: Option<Tier>) -> Finding {
    let Some(value) = facts.perf_event_paranoid else {
        return Ok("unknown: /proc/sys/kernel/perf_event_paranoid cannot be read".to_string());
    };
    if value <= STRICTEST_OF_THE_MAIN_LINE {
        return Ok(value.to_string());
    }
    let found = format!("{value}: perf events are for SYS_ADMIN alone");
    match without_perf_events(used) {
        Some(tier) => Ok(format!("{found}, and {tier} uses none")),
        None if has(facts, SYS_ADMIN) => Ok(format!("{found}, which this program has")),
        None => Err(format!(
            "{found}, so the tier perf-event does not work; the chart's agent.sysAdmin=true grants it"
        )),
    }
}

/// The tier in use, if it is one that needs no perf events.
fn without_perf_events(used: Option<Tier>) -> Option<&'static str> {
    used.filter(|tier| *tier != Tier::PerfEvent)
        .map(Tier::as_str)
}

fn lockdown(facts: &NodeFacts, used: Option<Tier>) -> Finding {
    let Some(mode) = &facts.lockdown else {
        return Ok("unknown: /sys/kernel/security is not mounted here".to_string());
    };
    if mode != "confidentiality" {
        return Ok(mode.clone());
    }
    // All tiers were seen to work under it, on Linux 6.1 and 6.12: blamed only where nothing else explains a failure.
    let found = "confidentiality: the kernel's own memory may not be read, which no tier does";
    if used.is_some() || !has(facts, SYS_ADMIN) {
        return Ok(found.to_string());
    }
    Err(format!(
        "{found}; still nothing works, with every capability: try the node with lockdown=integrity, or without"
    ))
}

fn uprobe_pmu(facts: &NodeFacts, used: Option<Tier>) -> Finding {
    let error = match &facts.uprobe_pmu {
        Ok(number) => return Ok(format!("uprobes are the perf events of type {number}")),
        Err(error) => error,
    };
    let found = format!("there are no uprobes among the perf events ({error})");
    match without_perf_events(used) {
        Some(tier) => Ok(format!("{found}, and {tier} uses none")),
        None => Err(format!(
            "{found}, so the tier perf-event does not work; a kernel built with CONFIG_UPROBE_EVENTS has them"
        )),
    }
}

fn tried(
    tier: Tier,
    attempt: &Attempt,
    attempts: &[(Tier, Attempt)],
    used: Option<Tier>,
) -> Finding {
    match attempt {
        Attempt::Works { calibration, .. } => Ok(works(calibration)),
        Attempt::Refused(error) => {
            let instead = used.map_or(String::new(), |used| {
                format!("; {} is used instead", used.as_str())
            });
            Err(format!("{error}. It needs {}{instead}", needs(tier)))
        }
        // The best is the least.
        Attempt::NotTried => match used.filter(|used| *used < tier) {
            Some(better) => Ok(format!("not needed, since {} works", better.as_str())),
            None => {
                let asked = attempts
                    .iter()
                    .find(|(_, attempt)| !matches!(attempt, Attempt::NotTried))
                    .map_or("another", |(tier, _)| tier.as_str());
                Err(format!("not tried, since {asked} was asked for"))
            }
        },
    }
}

fn works(calibration: &Calibration) -> String {
    let Calibration {
        cost_per_call_ns,
        single_step_cost_ns,
        counted_cost_ns,
        further_cost_ns,
        trap_ns,
        inner_ns,
        calls,
        counted,
    } = calibration;
    format!(
        "works: counted {counted} of {calls} calls; each costs the target {}, or {} where the function's first instruction \
         is single-stepped, {} where it is only counted, and {} for a further pair of programs on it; {} of that would be seen as the call's own time, and {} as that of a call that makes \
         it: both are taken off",
        nanos(*cost_per_call_ns),
        nanos(*single_step_cost_ns),
        nanos(*counted_cost_ns),
        nanos(*further_cost_ns),
        nanos(*trap_ns),
        nanos(*inner_ns),
    )
}

fn needs(tier: Tier) -> &'static str {
    match tier {
        Tier::Session => "Linux 6.13, the kernel's type information, BPF and PERFMON",
        Tier::UprobeMulti => {
            "Linux 6.6 (6.10, where the filter by process was not repaired), BPF and PERFMON"
        }
        Tier::PerfEvent => {
            "Linux 5.15, BPF, PERFMON and SYS_ADMIN (the chart's agent.sysAdmin=true)"
        }
    }
}

fn seccomp_return(facts: &NodeFacts, found: &ConfinedReturn) -> Finding {
    const SPARED: &str = "calls of a process that is confined by seccomp are counted and not timed";
    let estimate = if facts.confined {
        "; this program is confined itself, so the cost of a call was estimated from that of its entry"
    } else {
        ""
    };
    match found {
        ConfinedReturn::Harmless => Ok(
            "a process that is confined by seccomp survives a probe at a function's return"
                .to_string(),
        ),
        ConfinedReturn::Kills { signal } => Err(format!(
            "on this kernel a probe at a function's return kills a process that is confined by seccomp (signal \
             {signal}): {SPARED}; Linux 6.14 does not do that, nor do repaired releases of 6.11 to 6.13{estimate}"
        )),
        ConfinedReturn::Unknown(error) => Err(format!(
            "not known, since {error}: to be safe, {SPARED}{estimate}"
        )),
    }
}
