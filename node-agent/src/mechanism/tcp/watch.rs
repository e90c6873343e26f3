//! What watches the sockets of all processes, as it is shared by all who watch any.

use ckb_probe_crds::Name;

use crate::{
    kernel::{AttachError, Identity, Links, ReadError, Socket, SocketWatch},
    mechanism::shared::{Losses, NodeEvent, NodeProgram, Spent},
};

/// A subscriber is known by the process whose sockets it watches.
impl NodeProgram for SocketWatch {
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
        self.attach()
    }

    fn detach(&mut self) -> Option<Links> {
        self.detach()
    }

    fn open(&mut self, process: &mut Identity, _: &[&Identity]) -> Result<(), AttachError> {
        self.add(*process)
    }

    fn close(&mut self, process: &mut Identity, others: &[&Identity]) -> Result<(), ReadError> {
        match others.iter().any(|other| other.number == process.number) {
            true => Ok(()),
            false => self.remove(process.number),
        }
    }

    fn forget(&mut self, _: Identity, _: &[&Identity]) -> Result<(), ReadError> {
        Ok(())
    }

    /// Changes of the state of any socket.
    fn costs(&self) -> Result<Spent<u32>, ReadError> {
        Ok(vec![(None, self.met()?.changes)])
    }

    /// Sockets that were established or closed and are not told of: whose they were, nobody knows.
    fn lost(&mut self, _: &Identity) -> Result<Losses, ReadError> {
        let lost = self.met()?.lost;
        Ok([(Name::Borrowed(Self::EVENTS_LOST), lost)].into())
    }

    fn drain(&mut self) -> Vec<NodeEvent<u32, Socket>> {
        let changed = self.changed().into_iter();
        let told = changed.map(|socket| NodeEvent {
            key: Some(socket.process),
            time_ns: socket.time_ns,
            event: socket,
        });
        told.collect()
    }
}
