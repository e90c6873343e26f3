//! Where the time of a block went.

use serde_json::Value;

use super::{calls, every_block, node, number, took};
use crate::way::{in_every_way, total};

/// A clock that a program reads in the kernel is told in other steps than those that a thread reads its CPU time by.
const CPU_ERROR_NS: u64 = 200_000;

#[test]
fn time_is_told_apart_by_what_it_went_to() {
    in_every_way(every_block(), |way| {
        let mut node = node();
        let mut session = way.attach(node.pid());
        let truth = took(&node.tell("accept 1 20 1 5000 3000"));
        let synced = took(&node.tell("sync 21"));
        let events = session.events();
        session.read().unwrap();
        assert_eq!(events.len(), 21);
        for (event, [_, _, least, most]) in events.iter().zip(truth.iter().chain(&synced)) {
            let cpu = number(event, "cpuNanoseconds");
            let range = least.saturating_sub(CPU_ERROR_NS)..=most + CPU_ERROR_NS;
            assert!(range.contains(&cpu), "{event}: {least} to {most}");
            let off_cpu = number(event, "offCpuNanoseconds");
            assert_eq!(cpu + off_cpu, number(event, "durationNanoseconds"));
        }
        let accepted = total(&session, "accepted");
        // Each slept for five milliseconds, and the last for twenty.
        assert!(accepted.sums["offCpu"] >= 20 * 5_000_000 - 20 * CPU_ERROR_NS);
        let sync = accepted.sums["sync"];
        assert!(
            (20_000_000..synced[0][1]).contains(&sync),
            "{sync} of {synced:?}"
        );
        // What RocksDB does within its calls is in them.
        assert!(accepted.sums["storage"] >= sync);
        assert_eq!(calls(&session, "accepted", "TxnCommit"), 21);
        assert_eq!(calls(&session, "accepted", "FileSync"), 0);
        let wal = accepted.sums["walWrite"];
        assert!(
            (300_000..synced[0][1]).contains(&wal),
            "{wal} of {synced:?}"
        );
        let last = events.last().unwrap();
        assert_eq!(number(last, "walWriteNanoseconds"), wal);
        assert_eq!(number(last, "syncNanoseconds"), sync);
        let commit = number(last, "commitNanoseconds");
        assert!(commit >= wal + sync, "{last}");
    });
}

/// How many blocks are verified.
const VERIFIED: usize = 9;

/// Whether a block whose verification slept for five milliseconds is told with that, and with no more of the CPU than the whole block used.
fn is_told_apart(event: &Value) -> bool {
    let took = number(event, "verificationNanoseconds");
    let off_cpu = number(event, "verificationOffCpuNanoseconds");
    let cpu = number(event, "cpuNanoseconds");
    let of_block = number(event, "offCpuNanoseconds");
    // Of the last two either is off by so much.
    off_cpu >= 5_000_000 - CPU_ERROR_NS
        && took - off_cpu <= cpu + CPU_ERROR_NS
        && off_cpu <= of_block + 2 * CPU_ERROR_NS
}

#[test]
fn verification_is_told_with_what_of_it_the_thread_had_no_cpu_for_and_faults_by_type() {
    in_every_way(every_block(), |way| {
        let mut node = node();
        let mut session = way.attach(node.pid());
        // What keeps the probes themselves waiting, as an emulated machine may, is off by as much: not each of them.
        for height in 1..=VERIFIED {
            node.tell(&format!("verify {height} 5000 3000"));
        }
        node.tell("fault 100 300");
        let events = session.events();
        session.read().unwrap();
        let (faulted, verified) = events.split_last().unwrap();
        assert_eq!(verified.len(), VERIFIED);
        for event in verified {
            let took = number(event, "verificationNanoseconds");
            assert!(took >= 8_000_000, "{event}");
            assert!(took <= number(event, "durationNanoseconds"), "{event}");
        }
        assert!(verified.iter().any(is_told_apart), "{verified:?}");
        assert!(
            faulted.get("verificationNanoseconds").is_none(),
            "{faulted}"
        );
        // Its own stack and the probes' pages may come to it.
        let faults = number(faulted, "minorFaults");
        assert!((300..340).contains(&faults), "{faulted}");
        let accepted = total(&session, "accepted");
        let sum = |name| -> u64 { verified.iter().map(|event| number(event, name)).sum() };
        assert_eq!(
            accepted.sums["verification"],
            sum("verificationNanoseconds")
        );
        assert_eq!(
            accepted.sums["verificationOffCpu"],
            sum("verificationOffCpuNanoseconds")
        );
        assert!(accepted.sums["minorFaults"] >= faults);
    });
}
