//! What mechanisms finish that is more than figures, on its way to those who asked for it.

use std::sync::mpsc::{Receiver, TryRecvError};

use ckb_probe_crds::PodReference;

use super::{Engine, views_on};
use crate::{
    driver::measured::Measured,
    mechanism::{LoadId, profiles::Finished},
    observe::ProcessId,
};

/// Who asked: the word for what is asked, and the probe in it that did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressee {
    /// The order's word for what is asked.
    pub asks: String,
    /// The probe's name.
    pub probe: String,
    /// Of which pod.
    pub pod: PodReference,
    /// And which container.
    pub container: String,
}

/// Something finished, and who asked for it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Who asked.
    pub to: Addressee,
    /// It.
    pub finished: Finished,
}

/// Where something finished comes from, until there is no more.
pub(super) struct Mailbox {
    receiver: Receiver<Finished>,
    addressees: Vec<Addressee>,
}

impl Engine {
    /// Whether something finished may be waiting.
    pub fn has_mailboxes(&self) -> bool {
        !self.mailboxes.is_empty()
    }

    /// Takes what was finished since the last time, for each that asked. It may be of processes that have ended.
    pub fn finished(&mut self) -> Vec<Delivery> {
        let mut deliveries = Vec::new();
        self.mailboxes.retain(|mailbox| {
            loop {
                let finished = match mailbox.receiver.try_recv() {
                    Ok(finished) => finished,
                    Err(TryRecvError::Empty) => return true,
                    Err(TryRecvError::Disconnected) => return false,
                };
                let all = mailbox.addressees.iter();
                deliveries.extend(all.map(|to| Delivery {
                    to: to.clone(),
                    finished: finished.clone(),
                }));
            }
        });
        deliveries
    }

    /// A process is measured anew: what is finished of it is for those that look at it now.
    pub(super) fn open_mailboxes(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let Some(measurement) = measured.and_then(Measured::measurement) else {
            return;
        };
        for (load, receiver) in measurement.profiles() {
            let addressees = self.addressees(process, load);
            self.mailboxes.push(Mailbox {
                receiver,
                addressees,
            });
        }
    }

    /// Those who asked for a load. Of several that ask the same of a pod there is one.
    fn addressees(&mut self, process: ProcessId, load: LoadId) -> Vec<Addressee> {
        let mut all: Vec<Addressee> = Vec::new();
        for view in views_on(&mut self.views, process) {
            let (key, asks) = (&view.instance.key, &view.assignment.asks);
            for book in &view.instance.probes {
                if !book.series.iter().any(|series| series.is(load)) {
                    continue;
                }
                let addressee = Addressee {
                    asks: asks.clone(),
                    probe: book.probe.name.clone(),
                    pod: key.pod.clone(),
                    container: key.container.clone(),
                };
                if !all.contains(&addressee) {
                    all.push(addressee);
                }
            }
        }
        all
    }
}
