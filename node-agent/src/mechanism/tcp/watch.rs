//! What watches the sockets of all processes, as it is shared by all who watch any.

use std::collections::BTreeMap;

use ckb_probe_common::tcp::MAX_PROCESSES;
use ckb_probe_crds::Name;

use crate::{
    kernel::{AttachError, Identity, Links, ReadError, Socket, SocketWatch},
    mechanism::shared::{Losses, NodeEvent, NodeProgram, Spent},
    share,
};

/// The programs, and whose the processes are that they watch.
pub struct Watch {
    /// The kernel's side.
    pub sockets: SocketWatch,
    /// By process: its namespace, and the number of that for its share of the ring.
    owners: BTreeMap<u32, (String, u32)>,
}

impl Watch {
    /// Loads the programs.
    pub fn load() -> Result<Self, AttachError> {
        Ok(Self {
            sockets: SocketWatch::load()?,
            owners: BTreeMap::new(),
        })
    }

    /// Takes in one who asks about a process of this namespace.
    pub fn enroll(&mut self, process: Identity, namespace: &str) -> Result<Identity, AttachError> {
        if self.owners.contains_key(&process.number) {
            return Ok(process);
        }
        let owners = self.owners.values();
        let owners = owners.map(|(namespace, payer)| (namespace.as_str(), *payer));
        let namespaces = owners.clone().map(|(namespace, _)| namespace);
        if !share::may_take_one(namespaces, namespace, MAX_PROCESSES) {
            return Err(AttachError::NoRoom(
                "a node watches the sockets of 256 processes, of which one namespace has no more than it leaves to others",
            ));
        }
        let payer = share::number_of(owners, namespace);
        self.sockets.enroll(process, payer)?;
        let owner = (namespace.to_string(), payer);
        self.owners.insert(process.number, owner);
        Ok(process)
    }
}

/// A subscriber is known by the process whose sockets it watches.
impl NodeProgram for Watch {
    type Subscriber = Identity;
    type Key = u32;
    type Event = Socket;

    /// 3 MiB.
    const MAX_WAITING: usize = 32 << 10;
    const EVENTS_LOST: &'static str = "connections";

    fn key(process: &Identity) -> u32 {
        process.number
    }

    fn attach(&mut self) -> Result<(), AttachError> {
        self.sockets.attach()
    }

    fn detach(&mut self) -> Option<Links> {
        self.sockets.detach()
    }

    fn open(&mut self, process: &mut Identity, _: &[&Identity]) -> Result<(), AttachError> {
        self.sockets.add(*process)
    }

    fn close(&mut self, process: &mut Identity, others: &[&Identity]) -> Result<(), ReadError> {
        match others.iter().any(|other| other.number == process.number) {
            true => Ok(()),
            false => self.sockets.remove(process.number),
        }
    }

    fn forget(&mut self, process: Identity, others: &[&Identity]) -> Result<(), ReadError> {
        if !others.iter().any(|other| other.number == process.number) {
            self.owners.remove(&process.number);
            self.sockets.forget(process.number);
        }
        Ok(())
    }

    /// Changes of the state of any socket.
    fn costs(&self) -> Result<Spent<u32>, ReadError> {
        Ok(vec![(None, self.sockets.changes()?)])
    }

    /// Sockets that were established or closed and are not told of.
    fn lost(&mut self, process: &Identity) -> Result<Losses, ReadError> {
        let lost = self.sockets.lost(process.number)?;
        Ok([(Name::Borrowed(Self::EVENTS_LOST), lost)].into())
    }

    fn drain(&mut self) -> Vec<NodeEvent<u32, Socket>> {
        let changed = self.sockets.changed().into_iter();
        let told = changed.map(|socket| NodeEvent {
            key: Some(socket.process),
            time_ns: socket.time_ns,
            event: socket,
        });
        told.collect()
    }
}
