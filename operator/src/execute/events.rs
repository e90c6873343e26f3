//! Writes Events.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use ckb_probe_crds::{CkbProbe, NodeProbe, ProbeReference, Reason};
use k8s_openapi::{
    api::{core::v1::ObjectReference, events::v1},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Api, Client, Resource,
    api::PostParams,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use tokio::time::{Duration, Instant};

use super::{FIELD_MANAGER, RequestError, quota::Quota, request};
use crate::{
    hash::fnv1a,
    metrics::Metrics,
    notes::{CAPTURED, Note, OBSERVED},
};

/// What events.k8s.io takes as a note, in bytes.
const NOTE_LENGTH: usize = 1024;

/// For so long after it was told, what is told again is the same Event once more, as a [`Recorder`] has it.
const SERIES: Duration = Duration::from_secs(6 * 60);

/// Where Events go.
#[derive(Clone)]
pub struct Events {
    client: Client,
    namespace: Arc<str>,
    identity: Arc<str>,
    reporter: Reporter,
    /// Who counts what is told again, by what it says, and when that was told last.
    recorders: Arc<Mutex<BTreeMap<u64, (Recorder, Instant)>>>,
    /// The quota of each object's Events.
    quota: Arc<Mutex<Quota>>,
    metrics: Metrics,
}

impl Events {
    /// Those of NodeProbes in this namespace, and of CkbProbes anywhere, signed with this name.
    pub fn new(client: Client, namespace: String, identity: String, metrics: Metrics) -> Self {
        let reporter = Reporter {
            controller: FIELD_MANAGER.to_owned(),
            instance: Some(identity.clone()),
        };
        Self {
            reporter,
            recorders: Arc::default(),
            quota: Arc::default(),
            client,
            namespace: namespace.into(),
            identity: identity.into(),
            metrics,
        }
    }

    /// An Event that cannot be written is lost, with a line in the log: the status says the same, and lasts. So is one of a
    /// CkbProbe that has had too many, which is counted.
    pub async fn of_probe(&self, probe: &ProbeReference, note: Note) {
        if !self.may_have_another(&probe.uid) {
            self.metrics.dropped_event();
            let (name, namespace, reason) = (&probe.name, &probe.namespace, note.reason);
            tracing::debug!(probe = %name, %namespace, reason, "it has had too many Events: not written");
            return;
        }
        let regarding = object::<CkbProbe>(&probe.namespace, &probe.name, &probe.uid);
        let reason = note.reason;
        let written = if [OBSERVED, CAPTURED, Reason::Unusual.as_str()].contains(&reason) {
            // How a process ended, which profiles there are, and which figure is off by how much is so once.
            self.write_once("ckbprobe", &probe.namespace, regarding, note)
                .await
        } else {
            let event = Event {
                type_: note.type_,
                reason: reason.to_owned(),
                note: Some(cut(&note.text, NOTE_LENGTH)),
                action: note.action.to_owned(),
                secondary: None,
            };
            let recorder = self.recorder(said(&regarding, &note));
            request(recorder.publish(&event, &regarding)).await
        };
        if let Err(error) = written {
            tracing::warn!(%error, probe = %probe.name, namespace = %probe.namespace, reason, "cannot write an Event");
        }
    }

    /// Who counts how often this is told. A recorder takes a second Event for the first once more, whatever it says, and it may be about
    /// another pod: what says the same has one of its own. By the quota, there are no more than 31 for an object.
    fn recorder(&self, said: u64) -> Recorder {
        let now = Instant::now();
        // It is whole after every statement.
        let mut recorders = self
            .recorders
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        recorders.retain(|_, (_, told)| now < *told + SERIES);
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let (recorder, told) = recorders.entry(said).or_insert_with(|| (new(), now));
        *told = now;
        recorder.clone()
    }

    fn may_have_another(&self, uid: &str) -> bool {
        // It is whole after every statement.
        let mut quota = self.quota.lock().unwrap_or_else(PoisonError::into_inner);
        quota.take(uid, Instant::now())
    }

    /// Of a NodeProbe, in the operator's namespace. One of which there were too many is not written, and counted.
    pub async fn of_node_probe(
        &self,
        node: &str,
        uid: &str,
        note: Note,
    ) -> Result<(), RequestError> {
        // What an agent says of itself is told as often as it says something else.
        if !self.may_have_another(uid) {
            self.metrics.dropped_event();
            tracing::debug!(%node, reason = note.reason, "it has had too many Events: not written");
            return Ok(());
        }
        let regarding = object::<NodeProbe>(&self.namespace, node, uid);
        self.write_once("nodeprobe", &self.namespace, regarding, note)
            .await
    }

    /// Written only once, however often it is told and by whichever replica: its name comes from what it says, so that
    /// the API server itself refuses a second one for as long as it keeps the first, an hour by default.
    async fn write_once(
        &self,
        prefix: &str,
        namespace: &str,
        regarding: ObjectReference,
        note: Note,
    ) -> Result<(), RequestError> {
        let said = said(&regarding, &note);
        let Note {
            type_,
            reason,
            action,
            text,
        } = note;
        let event = v1::Event {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}.{said:016x}")),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            regarding: Some(regarding),
            event_time: Some(MicroTime(Timestamp::now())),
            type_: Some(match type_ {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            reason: Some(reason.to_owned()),
            action: Some(action.to_owned()),
            note: Some(cut(&text, NOTE_LENGTH)),
            reporting_controller: Some(FIELD_MANAGER.to_owned()),
            reporting_instance: Some(self.identity.to_string()),
            ..v1::Event::default()
        };
        let events: Api<v1::Event> = Api::namespaced(self.client.clone(), namespace);
        match request(events.create(&PostParams::default(), &event)).await {
            Err(error) if !error.is_conflict() => Err(error),
            _ => Ok(()),
        }
    }
}

/// What tells an Event from any that says something else.
fn said(regarding: &ObjectReference, note: &Note) -> u64 {
    let uid = regarding.uid.as_deref().unwrap_or_default();
    let said = [uid, note.reason, note.action, &note.text];
    fnv1a(said.join("\n").as_bytes())
}

fn object<K: Resource<DynamicType = ()>>(
    namespace: &str,
    name: &str,
    uid: &str,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// The text, cut to at most so many bytes between two characters.
fn cut(text: &str, bytes: usize) -> String {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

#[cfg(test)]
mod tests;
