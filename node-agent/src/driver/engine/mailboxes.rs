//! What mechanisms finish that is more than figures, on its way to those who asked for it.

use std::sync::{
    Arc,
    mpsc::{Receiver, TryRecvError},
};

use ckb_probe_crds::PodReference;
use k8s_openapi::jiff::Timestamp;

use super::{Engine, views_on};
use crate::{
    driver::view::View,
    mechanism::{GroupId, profile::Finished},
    observe::ProcessId,
    state::{instance::Instance, probe::ProbeState, slow_calls::SlowCalls},
    target::InstanceKey,
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
    /// The window that is finished.
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
        !self.mailboxes.is_empty() || !self.broken_off.is_empty()
    }

    /// Takes what was finished since the last time, for each that asked. It may be of processes that have ended.
    pub fn finished(&mut self) -> Vec<Delivery> {
        let mut deliveries = std::mem::take(&mut self.broken_off);
        let now = Timestamp::now();
        for view in self.views.values_mut() {
            deliveries.extend(gathered(view, |calls| calls.take_over(now)));
        }
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

    /// Nothing more will be gathered: takes it as it stands.
    pub fn last(&mut self) -> Vec<Delivery> {
        let keys: Vec<InstanceKey> = self.views.keys().cloned().collect();
        for key in keys {
            self.break_off(&key);
        }
        self.finished()
    }

    /// Lets go of a view. What was gathered for it is told as it stands, unless another goes on with it, that asks the same.
    pub(super) fn break_off(&mut self, key: &InstanceKey) {
        let Some(mut view) = self.views.remove(key) else {
            return;
        };
        let is_heir = |other: &View| {
            let of = &other.instance.key;
            (&of.pod, &of.container) == (&key.pod, &key.container)
                && other.assignment.asks == view.assignment.asks
        };
        if !self.views.values().any(is_heir) {
            let now = Timestamp::now();
            self.broken_off
                .extend(gathered(&mut view, |calls| calls.take_all(now)));
        }
    }

    /// A process is measured anew: what is finished of it is for those that look at it now.
    pub(super) fn open_mailboxes(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let Some(measurement) = measured.and_then(|one| one.measurement(&self.tools)) else {
            return;
        };
        for (group, receiver) in measurement.profiles() {
            let addressees = self.addressees(process, group);
            self.mailboxes.push(Mailbox {
                receiver,
                addressees,
            });
        }
    }

    /// Those who asked for a group. Of several that ask the same of a pod there is one.
    fn addressees(&mut self, process: ProcessId, group: GroupId) -> Vec<Addressee> {
        let mut all: Vec<Addressee> = Vec::new();
        for view in views_on(&mut self.views, process) {
            let (key, asks) = (&view.instance.key, &view.assignment.asks);
            for book in &view.instance.probes {
                if !book.series.iter().any(|series| series.is(group)) {
                    continue;
                }
                let addressee = addressee(asks, key, book);
                if !all.contains(&addressee) {
                    all.push(addressee);
                }
            }
        }
        all
    }
}

fn addressee(asks: &str, key: &InstanceKey, book: &ProbeState) -> Addressee {
    Addressee {
        asks: asks.to_string(),
        probe: book.probe.name.clone(),
        pod: key.pod.clone(),
        container: key.container.clone(),
    }
}

/// What is taken of the slow calls of a view.
fn gathered(view: &mut View, take: impl Fn(&mut SlowCalls) -> Vec<Finished>) -> Vec<Delivery> {
    let asks = &view.assignment.asks;
    let Instance { key, probes, .. } = Arc::make_mut(&mut view.instance);
    let key = &*key;
    let books = probes.iter_mut();
    let deliveries = books.flat_map(|book| {
        let finished = take(&mut book.slow_calls).into_iter();
        let book = &*book;
        finished.map(move |finished| Delivery {
            to: addressee(asks, key, book),
            finished,
        })
    });
    deliveries.collect()
}
