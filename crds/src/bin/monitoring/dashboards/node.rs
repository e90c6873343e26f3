//! One node, by every kind that is asked of it.

use super::{Dashboard, Unit, Variables, figure, how_uncertain, lines};
use crate::query::{chosen, most, quantile, rate};

/// The 99th percentile by one label, the ten largest.
fn slowest(histogram: &str, label: &str) -> String {
    let histogram = chosen(&format!("{histogram}_bucket"), "");
    format!(
        "topk(10, {})",
        quantile(0.99, &histogram, label, "$__rate_interval")
    )
}

/// How much of it per second by labels, the ten largest. CkbProbes that count the same are not added.
fn busiest(counter: &str, labels: &str) -> String {
    let counter = rate(&chosen(counter, ""));
    format!("topk(10, max by ({labels}) (sum by (ckbprobe, probe, {labels}) ({counter})))")
}

/// How long requests are with disks, and before them.
pub(super) fn disk_times() -> Vec<(String, &'static str)> {
    vec![
        (
            slowest("ckb_probe_block_io_device_seconds", "disk"),
            "{{disk}} at the device",
        ),
        (
            slowest("ckb_probe_block_io_queue_seconds", "disk"),
            "{{disk}} before it",
        ),
    ]
}

pub fn dashboard() -> Dashboard {
    Dashboard {
        name: "node",
        title: "One node",
        about: "One pod by all that is asked of it: what no CkbProbe asks has no data.",
        variables: Variables::OnePod,
        panels: vec![
            figure(
                "Is it measured?",
                "1 while probes are in place, and while each of them counts something.",
                Unit::Number,
                vec![
                    (most("ckb_probe_target_attached"), "attached"),
                    (most("ckb_probe_target_firing"), "firing"),
                ],
            ),
            figure(
                "What does measuring cost it?",
                "The estimated share of the CPU time that it uses itself.",
                Unit::Ratio,
                vec![(most("ckb_probe_overhead_ratio"), "overhead")],
            ),
            figure(
                "Has its process come back?",
                "How often the process was found anew after it had gone, in the time that is shown.",
                Unit::Number,
                vec![(
                    format!(
                        "max(increase({}[$__range]))",
                        chosen("ckb_probe_reattaches_total", "")
                    ),
                    "times",
                )],
            ),
            figure(
                "Was anything killed for lack of memory?",
                "Processes of the pod that the kernel killed to free memory, since the agent began.",
                Unit::Number,
                vec![(most("ckb_probe_process_oom_kills_total"), "killed")],
            ),
            lines(
                "Which operations of RocksDB are slow?",
                "The 99th percentile by operation, the ten slowest.",
                Unit::Seconds,
                vec![(
                    slowest("ckb_probe_operation_duration_seconds", "operation"),
                    "{{operation}}",
                )],
            ),
            lines(
                "Which functions are slow?",
                "The 99th percentile of functions of the node and of the kernel, the ten slowest of each.",
                Unit::Seconds,
                vec![
                    (
                        slowest("ckb_probe_function_duration_seconds", "function"),
                        "{{function}}",
                    ),
                    (
                        slowest("ckb_probe_kernel_function_duration_seconds", "function"),
                        "{{function}} (kernel)",
                    ),
                ],
            ),
            lines(
                "Which system calls does it make?",
                "System calls per second, the ten busiest.",
                Unit::PerSecond,
                vec![(
                    busiest("ckb_probe_syscall_duration_seconds_count", "syscall"),
                    "{{syscall}}",
                )],
            ),
            lines(
                "Which system calls fail?",
                "Those per second by the error's name, the ten most frequent.",
                Unit::PerSecond,
                vec![(
                    busiest("ckb_probe_syscall_errors_total", "syscall, errno"),
                    "{{syscall}} {{errno}}",
                )],
            ),
            lines(
                "Is the disk slow, or is there a queue before it?",
                "The 99th percentile of how long the device had requests, and of how long they waited for it; of the whole node.",
                Unit::Seconds,
                disk_times(),
            ),
            lines(
                "Who reads and writes?",
                "Bytes per second of requests to disks, by who asked for them. What the kernel writes later on its behalf is other.",
                Unit::BytesPerSecond,
                vec![(
                    busiest("ckb_probe_block_io_issuer_bytes_total", "disk, issuer"),
                    "{{disk}} {{issuer}}",
                )],
            ),
            lines(
                "Which peers are far?",
                "The 99th percentile of round-trip times, the ten longest.",
                Unit::Seconds,
                vec![(slowest("ckb_probe_tcp_rtt_seconds", "peer"), "{{peer}}")],
            ),
            lines(
                "How many connections are there?",
                "Open connections by peer, the ten with most.",
                Unit::Number,
                vec![(
                    format!(
                        "topk(10, max by (peer) ({}))",
                        chosen("ckb_probe_tcp_connections", "")
                    ),
                    "{{peer}}",
                )],
            ),
            lines(
                "What do peers cost?",
                "Payload bytes per second, sent and received, the ten busiest peers of each.",
                Unit::BytesPerSecond,
                vec![
                    (
                        busiest("ckb_probe_tcp_sent_bytes_total", "peer"),
                        "to {{peer}}",
                    ),
                    (
                        busiest("ckb_probe_tcp_received_bytes_total", "peer"),
                        "from {{peer}}",
                    ),
                ],
            ),
            lines(
                "What ends in the pod?",
                "Ends of processes by command, since the agent began.",
                Unit::Number,
                vec![(
                    format!(
                        "max by (command) ({})",
                        chosen("ckb_probe_process_ends_total", "")
                    ),
                    "{{command}}",
                )],
            ),
            lines(
                "Where does the time go?",
                "Threads by part of CKB, on a CPU or waiting, in the windows that were profiled: seconds since the agent began.",
                Unit::Seconds,
                vec![(
                    format!(
                        "topk(10, max by (mode, heading) ({}))",
                        chosen("ckb_probe_profile_seconds_total", "")
                    ),
                    "{{mode}} {{heading}}",
                )],
            ),
            lines(
                "How often are USDT probes met?",
                "Hits per second, the ten busiest.",
                Unit::PerSecond,
                vec![(
                    busiest("ckb_probe_usdt_hits_total", "usdt_probe"),
                    "{{usdt_probe}}",
                )],
            ),
            how_uncertain(""),
        ],
    }
}
