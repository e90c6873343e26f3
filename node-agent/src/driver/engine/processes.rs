//! What is measured of each process, and handed to the views that look at it.

use std::collections::btree_map::Entry;

use ckb_probe_crds::{InstanceState, Reason};
use serde_json::json;
use tracing::{info, warn};

use super::{
    super::{
        measured::Measured,
        measurement::Total,
        view::{Stage, View},
    },
    Engine, views_on,
};
use crate::{books::instance::Instance, observe::ProcessId};

impl Engine {
    /// Measures of a process what is asked of it now, or lets it go.
    pub(super) fn settle(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        if let Some(measurement) = measured.and_then(Measured::measurement)
            && let Err(error) = measurement.stop()
        {
            warn!(%error, pid = process.pid, "what measured it goes on until it is replaced");
        }
        self.read_process(process);
        self.take_events(process);
        let tier = self.means().map_or("none", |means| means.tier.as_str());
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
                        view.instance.failed(Reason::AttachFailed, message, now);
                        view.stage = Stage::Waiting;
                    }
                    return;
                }
            },
        };
        for view in &mut views {
            view.spent = Total::default();
        }
        let mut looking: Vec<(&mut Instance, usize)> = views
            .into_iter()
            .map(|view| {
                let others = match view.stage {
                    Stage::On { others, .. } => others,
                    Stage::Waiting | Stage::Held => 0,
                };
                (&mut view.instance, others)
            })
            .collect();
        measured.measure(&mut self.tools, &mut looking, self.clock);
        for (instance, _) in looking {
            let key = &instance.key;
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

    /// Takes in what was counted of a process up to now.
    pub(super) fn read_process(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        if let Some(measurement) = measured.and_then(Measured::measurement)
            && let Err(error) = measurement.read(self.clock.now())
        {
            warn!(%error, pid = process.pid, "cannot read what the kernel counted");
        }
        self.deliver(process);
    }

    /// Hands what was noted of a process to the books of all that look at it.
    pub(super) fn deliver(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let Some(measurement) = measured.and_then(Measured::measurement) else {
            return;
        };
        let entries = measurement.entries();
        if entries.is_empty() {
            return;
        }
        for view in views_on(&mut self.views, process) {
            for entry in &entries {
                view.instance.take(entry);
            }
        }
    }

    /// Takes the events of a process, for the books of all that look at it, and for whoever asks for the lines.
    pub(super) fn take_events(&mut self, process: ProcessId) {
        let measured = self.processes.get_mut(&process);
        let Some(measurement) = measured.and_then(Measured::measurement) else {
            return;
        };
        let events = measurement.events();
        if events.is_empty() {
            return;
        }
        for view in views_on(&mut self.views, process) {
            let key = view.instance.key.clone();
            for mut line in events.iter().flat_map(|event| view.instance.event(event)) {
                line["namespace"] = json!(key.pod.namespace);
                line["pod"] = json!(key.pod.name);
                line["container"] = json!(key.container);
                line["ckbprobe"] = json!(key.probe.name);
                self.undelivered.push(line);
            }
        }
    }
}
