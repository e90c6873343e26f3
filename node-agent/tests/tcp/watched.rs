//! A process, measured by the mechanism itself.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_agent::{
    kinds::Instrument,
    mechanism::{GroupId, GroupIds, Mechanism, Node, RowReading, tcp::TcpConfig},
};
use ckb_probe_crds::{Name, kinds::tcp::TcpProbe};

use crate::{actor::Actor, begun::begin};

/// What a row, or a part of one, says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    pub connections: u64,
    pub established: u64,
    pub listening: u64,
    pub opened: u64,
    pub closed: u64,
    pub failed: u64,
    pub dropped: u64,
    pub sent: u64,
    pub received: u64,
    /// Of all that were closed.
    pub lifetimes: u64,
    /// Closed connections that nobody was told of.
    pub lost: u64,
}

/// An attached mechanism.
pub struct Watched {
    mechanism: Box<dyn Mechanism>,
    _node: Node,
}

impl Watched {
    /// Watches it from now on.
    pub fn of(actor: &Actor, probe: &TcpProbe) -> Self {
        Self::of_process(actor.pid(), probe)
    }

    /// The same of any process.
    pub fn of_process(pid: u32, probe: &TcpProbe) -> Self {
        Self::on(&Node::default(), "", pid, probe)
    }

    /// The same, on behalf of a namespace, beside others of the node.
    pub fn on(node: &Node, namespace: &str, pid: u32, probe: &TcpProbe) -> Self {
        let config: TcpConfig = probe.config().of().unwrap();
        let mut node = node.clone();
        let begun = begin(&mut node, GroupId::default(), config, pid, namespace);
        let (accepted, mut mechanism) = begun.unwrap();
        assert_eq!(accepted.subscriptions.len(), 1);
        let all: GroupIds = [GroupId::default()].into();
        assert!(mechanism.attach(&all).unwrap().is_none());
        Self {
            mechanism,
            _node: node,
        }
    }

    fn read(&mut self) -> (Vec<RowReading>, u64) {
        let mut reading = self.mechanism.read().unwrap();
        let lost = reading.lost[0].counts[&Name::Borrowed("connections")];
        (reading.groups.remove(&GroupId::default()).unwrap(), lost)
    }

    /// Each row and part with what it says; a part that is not there is empty.
    pub fn counts(&mut self) -> BTreeSet<(String, String, Count)> {
        let (rows, lost) = self.read();
        let mut counts = BTreeSet::new();
        for row in rows {
            let sum = |name| number(&row.figures.sums, name);
            let level = |name| number(&row.figures.levels, name);
            let count = Count {
                connections: level("connections"),
                established: level("established"),
                listening: level("listening"),
                opened: sum("opened"),
                closed: sum("closed"),
                failed: sum("failed"),
                dropped: sum("dropped"),
                sent: sum("sent"),
                received: sum("received"),
                lifetimes: row.figures.distributions["lifetime"].count(),
                lost,
            };
            let part = row.part.map(|part| part.text).unwrap_or_default();
            assert!(counts.insert((row.row.unwrap().text, part, count)));
        }
        counts
    }

    /// How many round-trip times were noted.
    pub fn round_trips(&mut self) -> u64 {
        let (rows, _) = self.read();
        let noted = rows
            .iter()
            .map(|row| row.figures.distributions["rtt"].count());
        noted.sum()
    }
}

fn number(of: &BTreeMap<Name, u64>, name: &str) -> u64 {
    of[&Name::Owned(name.to_string())]
}
