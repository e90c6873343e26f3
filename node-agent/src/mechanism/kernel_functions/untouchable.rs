//! Functions of the kernel that are left alone, whatever it would allow: what the probes themselves run through, which would be
//! missed or call itself, and what runs so often or in so delicate a place that a probe could bring the node down.

const PROBES: &str = "probes run through it themselves";
const RCU: &str = "probes rely on it while they run";
const CLOCKS: &str = "probes read their time by it";
const ENTRIES: &str = "the kernel is entered by it, before a probe may run";
const LOCKS: &str = "locks and preemption are made of it, in probes too";

/// By how a name begins.
const BEGINNINGS: &[(&str, &str)] = &[
    ("__bpf_", PROBES),
    ("__fentry__", PROBES),
    ("__ftrace_", PROBES),
    ("__htab_", PROBES),
    ("__perf_", PROBES),
    ("__trace_", PROBES),
    ("arch_ftrace", PROBES),
    ("arch_rethook", PROBES),
    ("array_map_", PROBES),
    ("bpf_", PROBES),
    ("fgraph_", PROBES),
    ("fprobe", PROBES),
    ("ftrace", PROBES),
    ("function_graph_", PROBES),
    ("htab_", PROBES),
    ("kprobe", PROBES),
    ("perf_", PROBES),
    ("rethook", PROBES),
    ("ring_buffer_", PROBES),
    ("trace_", PROBES),
    ("uprobe", PROBES),
    ("__rcu_", RCU),
    ("__srcu_", RCU),
    ("rcu_", RCU),
    ("srcu_", RCU),
    ("ktime_get", CLOCKS),
    ("local_clock", CLOCKS),
    ("sched_clock", CLOCKS),
    ("__irq_", ENTRIES),
    ("asm_", ENTRIES),
    ("do_nmi", ENTRIES),
    ("entry_SYSCALL", ENTRIES),
    ("exc_", ENTRIES),
    ("irq_enter", ENTRIES),
    ("irq_exit", ENTRIES),
    ("irqentry_", ENTRIES),
    ("nmi_", ENTRIES),
    ("syscall_enter_", ENTRIES),
    ("syscall_exit_", ENTRIES),
    ("sysvec_", ENTRIES),
    ("__migrate_", LOCKS),
    ("__preempt_", LOCKS),
    ("__raw_spin_", LOCKS),
    ("_raw_read_", LOCKS),
    ("_raw_spin_", LOCKS),
    ("_raw_write_", LOCKS),
    ("migrate_disable", LOCKS),
    ("migrate_enable", LOCKS),
    ("native_queued_spin_", LOCKS),
    ("preempt_", LOCKS),
    ("queued_spin_", LOCKS),
];

/// By what a name has in it.
const PARTS: &[(&str, &str)] = &[
    ("_bpf_", PROBES),
    ("_kprobe", PROBES),
    ("_uprobe", PROBES),
    ("rcu_read_", RCU),
    ("_rcu_read_", RCU),
];

/// A function that is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Untouchable {
    /// The name of the function.
    pub(super) name: String,
    /// Why, as the end of a sentence.
    pub(super) reason: &'static str,
}

impl Untouchable {
    /// The function, if it is one.
    pub(super) fn find(name: &str) -> Option<Self> {
        let begins = BEGINNINGS.iter().find(|(begin, _)| name.starts_with(begin));
        let has = || PARTS.iter().find(|(part, _)| name.contains(part));
        let (_, reason) = begins.or_else(has)?;
        Some(Self {
            name: name.to_string(),
            reason,
        })
    }
}
