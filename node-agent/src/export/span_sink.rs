//! Where the engine's events go as spans: an exporter, and what is said of whoever is measured.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ckb_probe_crds::SpanCounts;
use ckb_probe_otlp::{Exporter, ExporterError};
use ckb_probe_traces::{
    Attributes, Cause, Counts, Group, Ids, Key, Limits, Nest, Resource, Scope, Settings, Span,
    Within,
};
use k8s_openapi::jiff::Timestamp;

use super::{
    exemplars::{Exemplars, Place},
    exposition::Exemplar,
    spans::spans,
};
use crate::{mechanism::Event, observe, state::instance::Instance, target::InstanceKey};

/// What a target says where they are not taken. Which of all receivers it is, and what it says, is for the log of the agent.
const NOT_TAKEN: &str = "the receiver takes no spans at present: see the agent's log";

/// Exports what takes a time.
#[derive(Debug)]
pub struct SpanSink {
    exporter: Exporter,
    ids: Ids,
    host: String,
    /// The node's name in its cluster.
    node: Option<String>,
    /// What whoever set this up says of all that is measured.
    set: Attributes,
    /// For whom spans are counted. No number is given twice.
    owners: BTreeMap<InstanceKey, u64>,
    next_owner: u64,
    /// What may be a part of something that has not ended yet.
    nest: Nest<Carried>,
    begun: Instant,
}

/// What is known of an event while its spans wait.
#[derive(Clone, Debug)]
struct Carried {
    owner: u64,
    resource: Resource,
    key: InstanceKey,
    place: Place,
    time: Timestamp,
}

/// Where events are from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// On whose behalf, and its books.
    pub instance: &'a Instance,
    /// The name of the executable.
    pub executable: &'a str,
    /// The process.
    pub pid: u32,
}

impl SpanSink {
    /// Begins to export to whom the settings name; `node` is the name of this machine in its cluster.
    pub fn start(
        settings: Settings,
        limits: Limits,
        node: Option<String>,
    ) -> Result<Self, ExporterError> {
        let set = settings.resource.clone();
        let scope = Scope {
            name: "ckb-probe".to_string(),
            version: env!("CARGO_PKG_VERSION").to_string(),
        };
        Ok(Self {
            exporter: Exporter::start(settings, scope, limits)?,
            ids: Ids::from_seed(fastrand::u128(..)),
            host: observe::host_name(),
            node,
            set,
            owners: BTreeMap::new(),
            next_owner: 1,
            nest: Nest::default(),
            begun: Instant::now(),
        })
    }

    /// Takes what of these events takes a time, for each probe that tells of it. What is exported at once is noted as exemplars.
    pub fn offer(&mut self, origin: &Origin<'_>, events: &[Event], exemplars: &mut Arc<Exemplars>) {
        let mut resource = None;
        let owner = self.owner(&origin.instance.key);
        for event in events {
            // What a program numbered itself is sent once, whoever asks for it.
            let is_emitted = event.emitted().is_some();
            let told = if is_emitted { 1 } else { usize::MAX };
            for placed in origin.instance.placed(event).take(told) {
                let spans = spans(event, &placed, &mut self.ids);
                if spans.is_empty() {
                    continue;
                }
                let resource = resource.get_or_insert_with(|| {
                    let known = known(origin, &self.host, self.node.as_deref());
                    Resource::new(&overridden(known, &self.set))
                });
                let carried = Carried {
                    owner,
                    resource: resource.clone(),
                    key: origin.instance.key.clone(),
                    place: (placed.probe.to_string(), placed.row, placed.part),
                    time: event.time,
                };
                match within(event, owner) {
                    // It says itself what it is a part of, and no figure is of its time.
                    _ if is_emitted => {
                        self.export(&spans, &carried);
                    }
                    Some(within) => {
                        self.nest.hold(within, spans, carried, self.begun.elapsed());
                    }
                    None => self.send(&spans, carried, exemplars),
                }
            }
        }
    }

    /// Has leave what waited long enough for what it may be a part of. To be called from time to time.
    pub fn tick(&mut self, exemplars: &mut Arc<Exemplars>) {
        for (spans, carried) in self.nest.due(self.begun.elapsed()) {
            self.send(&spans, carried, exemplars);
        }
    }

    /// Has all leave that waits.
    fn send_all(&mut self, exemplars: &mut Arc<Exemplars>) {
        for (spans, carried) in self.nest.all() {
            self.send(&spans, carried, exemplars);
        }
    }

    /// Exports the spans of one event, of which the first is what happened.
    fn send(&mut self, spans: &[Span], carried: Carried, exemplars: &mut Arc<Exemplars>) {
        if self.export(spans, &carried)
            && let Some(whole) = spans.first()
        {
            let exemplar = Exemplar {
                trace: whole.trace,
                span: whole.id,
                nanoseconds: whole.end_ns.saturating_sub(whole.start_ns),
                time: carried.time,
            };
            let exemplars = Arc::make_mut(exemplars);
            exemplars.note(&carried.key, &carried.place, exemplar);
        }
    }

    /// Whether they found room.
    fn export(&self, spans: &[Span], carried: &Carried) -> bool {
        let group = Group::new(&carried.resource, spans).owned_by(carried.owner);
        self.exporter.offer(group)
    }

    fn owner(&mut self, key: &InstanceKey) -> u64 {
        if let Some(owner) = self.owners.get(key) {
            return *owner;
        }
        let owner = self.next_owner;
        self.next_owner += 1;
        self.owners.insert(key.clone(), owner);
        owner
    }

    /// Forgets what it counted for all others.
    pub fn keep(
        &mut self,
        is_known: impl Fn(&InstanceKey) -> bool,
        exemplars: &mut Arc<Exemplars>,
    ) {
        if self.owners.keys().all(&is_known) {
            return;
        }
        // Whoever is forgotten offers nothing afterwards.
        self.send_all(exemplars);
        let Self {
            owners, exporter, ..
        } = self;
        owners.retain(|key, owner| {
            let keep = is_known(key);
            if !keep {
                exporter.forget(*owner);
            }
            keep
        });
    }

    /// What became of the spans of a target.
    pub fn report(&self, key: &InstanceKey) -> SpanCounts {
        let owner = self.owners.get(key);
        let counts = owner.map(|owner| self.exporter.counts_of(*owner));
        let counts = counts.unwrap_or_default();
        // What waits for what it may be a part of is queued.
        let held = owner.map_or(0, |owner| self.nest.waiting_of(*owner));
        let problem = self.exporter.problem().map(|_| NOT_TAKEN.to_string());
        SpanCounts {
            started: counts.started + held,
            exported: counts.exported,
            dropped: counts.dropped_in_all(),
            queued: counts.queued + held,
            message: problem.unwrap_or_default(),
        }
    }

    /// What became of all spans up to now.
    pub fn counts(&self) -> Counts {
        let (counts, held) = (self.exporter.counts(), self.nest.waiting());
        Counts {
            started: counts.started + held,
            queued: counts.queued + held,
            hurried: self.nest.hurried(),
            ..counts
        }
    }

    /// What is in the way of exporting, if anything is.
    pub fn problem(&self) -> Option<String> {
        self.exporter.problem()
    }

    /// Sends what there is, for no longer than this, and says what became of all.
    pub fn end(mut self, within: Duration) -> String {
        self.send_all(&mut Arc::default());
        let receiver = self.exporter.receiver().to_string();
        let items = self.exporter.items();
        let (counts, problem) = self.exporter.end(within);
        let counts = Counts {
            hurried: self.nest.hurried(),
            ..counts
        };
        sentence(items, &receiver, &counts, problem.as_deref())
    }
}

/// By what is known what an event may be a part of; None where nothing is.
fn within(event: &Event, owner: u64) -> Option<Within> {
    let keyed = event.key();
    // What is within a time on the thread where that ended says nothing of it, if it began on another.
    let is_of_a_thread = keyed.is_none_or(|key| key.began_on == event.thread);
    let within = Within {
        owner,
        thread: Some(event.thread).filter(|thread| *thread > 0 && is_of_a_thread),
        key: keyed.and_then(|key| {
            Some(Key {
                name: key.name.clone()?,
                number: key.number,
            })
        }),
    };
    (within.thread.is_some() || within.key.is_some()).then_some(within)
}

/// What became of spans, or of what else is exported, for people.
pub(super) fn sentence(
    items: &str,
    receiver: &str,
    counts: &Counts,
    problem: Option<&str>,
) -> String {
    let causes = Cause::ALL.into_iter();
    let causes = causes.filter(|cause| counts.dropped_for(*cause) > 0);
    let causes: Vec<String> = causes
        .map(|cause| format!("{} {}", counts.dropped_for(cause), in_words(cause)))
        .collect();
    let mut text = format!(
        "of {} {items} {} were exported to {receiver}",
        counts.started, counts.exported
    );
    if !causes.is_empty() {
        text = format!(
            "{text} and {} dropped: {}",
            counts.dropped_in_all(),
            causes.join(", ")
        );
        if let Some(problem) = problem {
            text = format!("{text} ({problem})");
        }
    }
    if counts.hurried > 0 {
        text = format!(
            "{text}; {} slow calls or blocks were not held back for what they are a part of, since too many waited",
            counts.hurried
        );
    }
    text
}

fn in_words(cause: Cause) -> &'static str {
    match cause {
        Cause::Full => "since too many waited",
        Cause::Refused => "which it will not have",
        Cause::Unanswered => "that were sent and not answered, and may have arrived",
        Cause::Ended => "that still waited at the end",
    }
}

/// What is known of whoever is measured, by OpenTelemetry's names.
fn known(origin: &Origin<'_>, host: &str, node: Option<&str>) -> Attributes {
    let key = &origin.instance.key;
    let mut all: Attributes = vec![
        ("service.name".into(), origin.executable.into()),
        ("process.executable.name".into(), origin.executable.into()),
        ("process.pid".into(), u64::from(origin.pid).into()),
        ("host.name".into(), host.into()),
    ];
    if let Some(node) = node {
        all.push(("k8s.node.name".into(), node.into()));
    }
    if !key.pod.name.is_empty() {
        let pod = &key.pod;
        all.push(("k8s.namespace.name".into(), pod.namespace.as_str().into()));
        all.push(("k8s.pod.name".into(), pod.name.as_str().into()));
        all.push(("k8s.pod.uid".into(), pod.uid.as_str().into()));
        all.push(("k8s.container.name".into(), key.container.as_str().into()));
        all.push(("ckb_probe.ckbprobe".into(), key.probe.name.as_str().into()));
    }
    all
}

/// What is known, and in its place, or besides, what somebody set.
pub(super) fn overridden(known: Attributes, set: &Attributes) -> Attributes {
    let is_set = |name: &str| set.iter().any(|(key, _)| key == name);
    let kept = known.into_iter().filter(|(key, _)| !is_set(key));
    kept.chain(set.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_spans_is_said_in_one_sentence() {
        let mut counts = Counts {
            started: 10,
            exported: 10,
            ..Counts::default()
        };
        assert_eq!(
            sentence("spans", "a:1 by HTTP", &counts, Some("odd")),
            "of 10 spans 10 were exported to a:1 by HTTP"
        );
        counts.exported = 3;
        counts.dropped[Cause::Full as usize] = 5;
        counts.dropped[Cause::Ended as usize] = 2;
        assert_eq!(
            sentence("spans", "a:1 by HTTP", &counts, Some("connection refused")),
            "of 10 spans 3 were exported to a:1 by HTTP and 7 dropped: 5 since too many waited, 2 that still waited at the end \
             (connection refused)"
        );
        let hurried = Counts {
            started: 2,
            exported: 2,
            hurried: 7,
            ..Counts::default()
        };
        assert_eq!(
            sentence("spans", "a:1 by HTTP", &hurried, None),
            "of 2 spans 2 were exported to a:1 by HTTP; 7 slow calls or blocks were not held back for what they are a part of, since \
             too many waited"
        );
    }

    #[test]
    fn what_is_set_comes_before_what_is_known() {
        let known: Attributes = vec![
            ("service.name".into(), "ckb".into()),
            ("host.name".into(), "a".into()),
        ];
        let set: Attributes = vec![
            ("service.name".into(), "mainnet".into()),
            ("team".into(), "x".into()),
        ];
        let expected: Attributes = vec![
            ("host.name".into(), "a".into()),
            ("service.name".into(), "mainnet".into()),
            ("team".into(), "x".into()),
        ];
        assert_eq!(overridden(known, &set), expected);
    }
}
