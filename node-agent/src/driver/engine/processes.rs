//! What is measured of each process, and handed to the views that look at it.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use ckb_probe_crds::{InstanceState, Reason};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::{
    super::{
        measured::{Arrival, Measured},
        measurement::{Minute, Total},
        view::{Stage, View},
    },
    Engine, MOST_RENEWALS, views_on,
};
use crate::{
    export::span_sink::Origin,
    kernel::{ReadError, memory},
    observe::{self, ProcessId},
    state::instance::Instance,
};

impl Engine {
    /// Measures of a process what is asked of it now, or lets it go.
    pub(super) fn settle(&mut self, process: ProcessId) {
        if let Some(measured) = self.processes.get_mut(&process) {
            let mut views = looking(views_on(&mut self.views, process));
            if measured.goes_on(&self.tools, &mut views, self.clock) {
                return;
            }
        }
        self.stop(process);
        self.account_for_books(Some(process));
        let mut views: Vec<&mut View> = views_on(&mut self.views, process).collect();
        if views.is_empty() {
            if let Some(measured) = self.processes.remove(&process) {
                self.tools.reaper.take(measured);
            }
            return;
        }
        let measured = match self.processes.entry(process) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(room) => match Measured::new(process) {
                Ok(measured) => room.insert(measured),
                Err(error) => {
                    let now = self.clock.now();
                    for view in views {
                        let message = error.to_string();
                        view.instance_mut()
                            .failed(Reason::AttachFailed, message, now);
                        view.stage = Stage::Waiting;
                    }
                    return;
                }
            },
        };
        for view in &mut views {
            view.spent = Total::default();
            view.minute = Minute::default();
            view.accounts = None;
        }
        let mut views = looking(views);
        if !measured.is_busy(&self.tools, &mut views, self.clock) {
            measured.ask(&self.tools, &mut views, self.clock);
        }
        self.account_for_books(None);
    }

    /// Attaches nothing to a process until it is [settled](Self::settle) again: what it does meanwhile is a gap.
    pub(super) fn suspend(&mut self, process: ProcessId) {
        self.stop(process);
        if let Some(measured) = self.processes.get_mut(&process) {
            let mut views = looking(views_on(&mut self.views, process));
            measured.suspend(&self.tools, &mut views, self.clock);
        }
    }

    /// Measures a process anew where it runs another file than what was attached to. True if it does.
    pub(super) fn renew(&mut self, process: ProcessId) -> bool {
        let measured = self.processes.get_mut(&process);
        let Some(renewal) = measured.and_then(|measured| measured.renewal(&self.tools)) else {
            return false;
        };
        info!(pid = process.pid, "{renewal}: measured anew");
        self.renewals.push_back(renewal);
        if self.renewals.len() > MOST_RENEWALS {
            self.renewals.pop_front();
        }
        self.settle(process);
        true
    }

    /// Says what the books take, but those of the views of this process.
    pub(super) fn account_for_books(&self, but: Option<ProcessId>) {
        let views = self.views.values();
        let counted = views.filter(|view| but.is_none() || view.process() != but);
        let mut books: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for view in counted {
            let namespace = view.instance.key.pod.namespace.as_str();
            *books.entry(namespace.into()).or_default() += view.instance.bytes();
        }
        memory::budget().set_books(books);
    }

    /// Takes what was done for processes where nobody waited for it. True when anything changed that a report would say.
    pub fn receive(&mut self) -> bool {
        let scanned = self.scan.as_ref().map(|(scan, _)| scan.outcome());
        let mut changed = scanned.is_some_and(|outcome| self.scanned(outcome));
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            let pending = self.processes.get(&process);
            let may_answer = pending.is_some_and(Measured::is_pending);
            changed |= pending.is_some_and(Measured::looks_for_a_renewal) && self.renew(process);
            if may_answer {
                // Its views are told whether there is room for what they ask.
                self.account_for_books(Some(process));
            }
            let Some(measured) = self.processes.get_mut(&process) else {
                continue;
            };
            let mut views = looking(views_on(&mut self.views, process));
            let arrival = measured.arrive(&self.tools, &mut views, self.clock);
            match &arrival {
                Arrival::Nothing => {}
                Arrival::Answered => {
                    self.open_mailboxes(process);
                    self.tell(process);
                }
                Arrival::Again => self.settle(process),
                Arrival::Broken(error) => self.give_up(process, error, None),
                Arrival::Gone(error, read) => self.give_up(process, error, Some(*read)),
            }
            if may_answer {
                self.account_for_books(None);
            }
            changed |= arrival != Arrival::Nothing;
        }
        changed
    }

    /// What was attached to a process cannot be any more. What was counted up to now is told, and what comes is a gap; where that is
    /// gone, all is that came since it was `read`.
    pub(super) fn give_up(&mut self, process: ProcessId, error: &str, read: Option<Duration>) {
        self.stop(process);
        // Most likely the process is about to be seen to have ended.
        let message = format!(
            "cannot keep process {} within the budget: {error}",
            process.pid
        );
        warn!(pid = process.pid, %message, "detached");
        if let Some(measured) = self.processes.get_mut(&process) {
            measured.give_up(&self.tools);
        }
        let since = read.unwrap_or_else(|| self.clock.now());
        for view in views_on(&mut self.views, process) {
            let instance = view.instance_mut();
            instance.failed(Reason::AttachFailed, message.clone(), since);
        }
    }

    /// Says in the log how the views of a process stand.
    fn tell(&self, process: ProcessId) {
        let tier = self.means().map_or("none", |means| means.tier.as_str());
        let views = self.views.values();
        for view in views.filter(|view| view.process() == Some(process)) {
            let (instance, key) = (&view.instance, &view.instance.key);
            let report = instance.report(self.clock.now());
            if instance.is_attached() {
                info!(
                    pod = %key.pod.name, namespace = %key.pod.namespace, container = %key.container,
                    probe = %key.probe.name, pid = process.pid, tier, "attached"
                );
            } else if report.state == InstanceState::Failed {
                warn!(
                    pod = %key.pod.name, namespace = %key.pod.namespace, container = %key.container,
                    probe = %key.probe.name, pid = process.pid, error = %report.message, "cannot attach"
                );
            }
        }
    }

    /// Has nothing more be counted of a process, and takes in what was.
    pub(super) fn stop(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        if let Some(measurement) = measured.and_then(|one| one.measurement(&self.tools))
            && let Err(error) = measurement.stop(self.clock.now())
        {
            warn!(%error, pid = process.pid, "what measured it goes on until it is replaced");
        }
        self.read_process(process);
        self.take_events(process);
    }

    /// The same for the last time, where what is counted goes on to be: nothing is sliced any more.
    pub(super) fn finish(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let measured = measured.filter(|one| one.successor().is_none());
        if let Some(measurement) = measured.and_then(|one| one.measurement(&self.tools))
            && let Err(error) = measurement.finish(self.clock.now())
        {
            warn!(%error, pid = process.pid, "cannot read what the kernel counted");
        }
        self.deliver(process);
    }

    /// Takes in what was counted of a process up to now.
    pub(super) fn read_process(&mut self, process: ProcessId) {
        if let Err(error) = self.try_read(process) {
            warn!(%error, pid = process.pid, "cannot read what the kernel counted");
        }
    }

    /// The same, for who does not go on where that fails.
    pub(super) fn try_read(&mut self, process: ProcessId) -> Result<(), ReadError> {
        // What is counted by then is not only its own, and what it did since it was read last is lost.
        let measured = self.processes.get_mut(&process);
        let measured = measured.filter(|one| one.successor().is_none());
        let measurement = measured.and_then(|one| one.measurement(&self.tools));
        let read = measurement.map(|one| one.read(self.clock.now()));
        self.deliver(process);
        read.unwrap_or(Ok(()))
    }

    /// Hands what was noted of a process to the books of all that look at it.
    pub(super) fn deliver(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let entries = measured.map(Measured::entries).unwrap_or_default();
        if entries.is_empty() {
            return;
        }
        for view in views_on(&mut self.views, process) {
            let namespace = view.instance.key.pod.namespace.as_str().into();
            let instance = view.instance_mut();
            // Rows that come by take memory.
            memory::on_behalf_of(Some(namespace), || {
                for entry in &entries {
                    instance.take(entry);
                }
            });
        }
    }

    /// Takes the events of a process, for the books of all that look at it, and for whoever asks for the lines.
    pub(super) fn take_events(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let successor = measured.as_ref().and_then(|one| one.successor());
        let Some(measurement) = measured.and_then(|one| one.measurement(&self.tools)) else {
            return;
        };
        let mut events = measurement.events();
        if let Some(since) = successor {
            let since = observe::boot_time().checked_add(since);
            events.retain(|event| since.as_ref().is_ok_and(|since| event.time < *since));
        }
        let now = self.clock.now();
        let sharing = views_on(&mut self.views, process).count();
        self.spans.tick();
        for view in views_on(&mut self.views, process) {
            let mut lines = Vec::new();
            for event in &events {
                let told = view.instance_mut().event(event).into_iter();
                lines.extend(told.map(|line| (event, line)));
            }
            if let Some(exporter) = view.exporter() {
                let origin = Origin {
                    instance: &view.instance,
                    executable: &view.assignment.executable,
                    pid: process.pid,
                };
                self.spans.offer(exporter, &origin, &events);
            }
            let Some(flow) = &mut view.flow else {
                let told = lines.into_iter();
                self.told
                    .extend(told.map(|(event, line)| (event.clone(), line)));
                continue;
            };
            let key = view.instance.key.clone();
            let mut deliver = |mut line: Value| {
                line["namespace"] = json!(key.pod.namespace);
                line["pod"] = json!(key.pod.name);
                line["container"] = json!(key.container);
                line["ckbprobe"] = json!(key.probe.name);
                self.undelivered.push(line);
            };
            let weights: Vec<u64> = lines.iter().map(|(event, _)| event.weight).collect();
            let chosen = flow.choose(&weights, sharing, now);
            for ((_, line), chosen) in lines.into_iter().zip(chosen) {
                if chosen {
                    deliver(line);
                } else {
                    Arc::make_mut(&mut view.instance).leave_out(&line);
                }
            }
            if let Some(lines) = flow.left_out(now) {
                deliver(json!({
                    "time": format!("{:.6}", Timestamp::now()),
                    "linesLeftOut": lines,
                    "why": "the target makes more events than are written; they are counted, and the status lists the weightiest",
                }));
            }
        }
    }
}

/// The books of views, and how many other processes each of them does not look at.
fn looking<'a>(views: impl IntoIterator<Item = &'a mut View>) -> Vec<(&'a mut Instance, usize)> {
    let looking = views.into_iter().map(|view| {
        let others = match view.stage {
            Stage::On { others, .. } => others,
            Stage::Waiting | Stage::Held => 0,
        };
        (view.instance_mut(), others)
    });
    looking.collect()
}
