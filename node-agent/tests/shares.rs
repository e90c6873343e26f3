//! How namespaces share what there is once for a node: on this machine's kernel, as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod begun;
mod trial;

use std::sync::Arc;

use ckb_probe_agent::{
    kinds::instrument,
    mechanism::{
        Config, GroupId, GroupIds, Mechanism, Node, RowId,
        block_io::BlockIoConfig,
        counts::{Counted, CountsConfig, Decode, DecodedEvent, Membership, RawEvent},
        syscalls::SyscallsConfig,
    },
};
use ckb_probe_common::counts::{KEY_BYTES, MAX_BUCKETS};
use ckb_probe_crds::{
    Figures, KindSpec,
    kinds::{block_io::BlockIoProbe, syscalls::SyscallsProbe},
};
use trial::{PROGRAM, call};

/// Numbers that no process of this machine has.
const NOBODY: u32 = 1 << 22;

fn begin<C: Config>(
    node: &mut Node,
    config: C,
    pid: u32,
    namespace: &str,
) -> Result<Box<dyn Mechanism>, String> {
    let begun = begun::begin(node, GroupId::default(), config, pid, namespace);
    begun.map(|(_, mechanism)| mechanism)
}

fn trace(node: &mut Node, pid: u32, namespace: &str) -> Result<Box<dyn Mechanism>, String> {
    let spec: KindSpec = SyscallsProbe::default().into();
    let config: SyscallsConfig = instrument(&spec).config().of().unwrap();
    begin(node, config, pid, namespace)
}

#[test]
fn one_namespace_has_half_of_the_targets_whose_system_calls_are_traced() {
    let mut node = Node::default();
    let mut held = Vec::new();
    let refusal = loop {
        match trace(&mut node, NOBODY + held.len() as u32, "many") {
            Ok(one) => held.push(one),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(held.len(), 32);
    assert!(
        refusal.contains("no more than it leaves to others"),
        "{refusal}"
    );
    let few = trace(&mut node, NOBODY + 1000, "few").unwrap();
    assert!(trace(&mut node, NOBODY + 1001, "many").is_err());
    // What is given back can be had again.
    held.truncate(20);
    held.push(trace(&mut node, NOBODY + 1001, "many").unwrap());
    drop((held, few));
}

fn look(node: &mut Node, namespace: &str, milliseconds: u64) -> Result<Box<dyn Mechanism>, String> {
    let threshold = format!("{milliseconds}ms").parse().unwrap();
    let spec: KindSpec = BlockIoProbe {
        slow_threshold: threshold,
        ..BlockIoProbe::default()
    }
    .into();
    let config: BlockIoConfig = instrument(&spec).config().of().unwrap();
    begin(node, config, std::process::id(), namespace)
}

#[test]
fn one_namespace_has_half_of_the_thresholds_of_slow_requests() {
    let mut node = Node::default();
    let mut held: Vec<_> = (1..=4)
        .map(|threshold| look(&mut node, "many", threshold).unwrap())
        .collect();
    let refusal = look(&mut node, "many", 5).err().unwrap();
    assert!(
        refusal.contains("no more than it leaves to others"),
        "{refusal}"
    );
    held.push(look(&mut node, "few", 6).unwrap());
    // Those that there are already are for everybody.
    held.push(look(&mut node, "many", 6).unwrap());
    held.push(look(&mut node, "few", 1).unwrap());
}

#[derive(Debug)]
struct Numbers;

impl Decode for Numbers {
    fn raw(&self, key: &[u8; KEY_BYTES]) -> RowId {
        RowId {
            place: u64::from(u16::from_le_bytes([key[0], key[1]])),
            ..RowId::default()
        }
    }

    fn figures(&self, counted: &Counted) -> Figures {
        trial::figures(counted)
    }

    fn event(&self, _: &RawEvent<'_>) -> Option<DecodedEvent> {
        None
    }
}

fn count(node: &mut Node, pid: u32, namespace: &str) -> Result<Box<dyn Mechanism>, String> {
    let config = CountsConfig {
        program: &PROGRAM,
        belonging: Membership::Process,
        wants: 0,
        sliced: true,
        decode: Arc::new(Numbers),
    };
    begin(node, config, pid, namespace)
}

fn call_each(numbers: std::ops::Range<i64>) {
    for number in numbers {
        call(number, 1);
    }
}

/// Calls that were counted, and those that are in a distribution.
fn counted(counts: &mut dyn Mechanism) -> (u64, u64) {
    let reading = counts.read().unwrap();
    assert_eq!(reading.lost[0].counts["counts"], 0);
    let rows = &reading.groups[&GroupId::default()];
    let sum = |name: &str| rows.iter().map(|row| row.figures.sums[name]).sum();
    (sum("calls"), sum("measured"))
}

#[test]
fn one_namespace_leaves_others_pods_and_buckets_and_every_call_is_counted() {
    const CALLS: u64 = 120;
    let all = GroupIds::from([GroupId::default()]);
    let mut node = Node::default();
    // Alone, it has as many buckets as it needs.
    let mut own = count(&mut node, std::process::id(), "many").unwrap();
    own.attach(&all).unwrap();
    call_each(0..CALLS as i64);
    assert_eq!(counted(&mut *own), (CALLS, CALLS));
    drop(own);

    let mut held: Vec<_> = (1..128)
        .map(|one| count(&mut node, NOBODY + one, "many").unwrap())
        .collect();
    let mut own = count(&mut node, std::process::id(), "many").unwrap();
    assert!(count(&mut node, NOBODY, "many").is_err());
    held.push(count(&mut node, NOBODY, "few").unwrap());
    own.attach(&all).unwrap();
    call_each(0..CALLS as i64);
    // Equal shares for two namespaces and a third, and of that for the targets of this one.
    let share = u64::from(MAX_BUCKETS / 3 / 128);
    assert!(share < CALLS);
    assert_eq!(counted(&mut *own), (CALLS, share));
}
