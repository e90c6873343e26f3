//! The receivers of spans that orders may name. Each has a queue and a thread of its own, from when it is first named on: whoever fills one takes no room
//! from the others, and one that is away holds nobody up.

use std::{collections::BTreeMap, sync::Arc, thread, time::Duration};

use ckb_probe_crds::{DEFAULT_EXPORTER, SpanCounts};
use ckb_probe_traces::{Counts, Limits, Settings};
use tracing::{error, info};

use super::{
    exemplars::Exemplars,
    span_sink::{Origin, SpanSink},
};
use crate::{mechanism::Event, target::InstanceKey};

/// All of them, by their names.
#[derive(Debug, Default)]
pub struct Exporters {
    all: BTreeMap<String, Exporter>,
    /// This machine's name in its cluster.
    node: Option<String>,
    /// Whoever makes a page of metrics has them meanwhile.
    exemplars: Arc<Exemplars>,
}

#[derive(Debug)]
enum Exporter {
    /// Nobody has named it yet.
    Idle(Box<Settings>),
    Running(Box<SpanSink>),
    /// It cannot be used, as the log says.
    Unusable,
}

impl Exporters {
    /// Those that have these settings, on the node of this name; none of them runs.
    pub fn new(settings: BTreeMap<String, Settings>, node: String) -> Self {
        let idle = settings.into_iter();
        let idle = idle.map(|(name, to)| (name, Exporter::Idle(Box::new(to))));
        Self {
            all: idle.collect(),
            node: Some(node),
            exemplars: Arc::default(),
        }
    }

    /// One alone, which is the default.
    pub fn of_one(sink: SpanSink) -> Self {
        let running = Exporter::Running(Box::new(sink));
        Self {
            all: [(DEFAULT_EXPORTER.to_string(), running)].into(),
            ..Self::default()
        }
    }

    /// Begins to export by this one, if there is such and it does not run yet. Where it cannot be used, everything is measured all the same,
    /// and whoever names it is told.
    pub fn begin(&mut self, name: &str) {
        let Some(exporter) = self.all.get_mut(name) else {
            return;
        };
        let Exporter::Idle(to) = exporter else {
            return;
        };
        let (to, receiver) = ((**to).clone(), to.receiver());
        *exporter = match SpanSink::start(to, Limits::DEFAULT, self.node.clone()) {
            Ok(sink) => {
                info!(exporter = name, receiver, "traces are exported");
                Exporter::Running(Box::new(sink))
            }
            Err(error) => {
                error!(exporter = name, receiver, %error, "no traces are exported");
                Exporter::Unusable
            }
        };
    }

    /// Takes what of these events takes a time, for whoever exports by the exporter of this name.
    pub fn offer(&mut self, name: &str, origin: &Origin<'_>, events: &[Event]) {
        if let Some(Exporter::Running(sink)) = self.all.get_mut(name) {
            sink.offer(origin, events, &mut self.exemplars);
        }
    }

    /// Has leave what waited long enough for what it may be a part of. To be called from time to time.
    pub fn tick(&mut self) {
        for exporter in self.all.values_mut() {
            if let Exporter::Running(sink) = exporter {
                sink.tick(&mut self.exemplars);
            }
        }
    }

    /// Forgets what it counted for all targets but those that export, each by the exporter that `named` says.
    pub fn keep<'a>(&mut self, named: impl Fn(&InstanceKey) -> Option<&'a str>) {
        for (name, exporter) in &mut self.all {
            if let Exporter::Running(sink) = exporter {
                sink.keep(|key| named(key) == Some(name.as_str()), &mut self.exemplars);
            }
        }
        self.exemplars_of(|key| named(key).is_some());
    }

    /// Keeps the exemplars of these targets alone.
    fn exemplars_of(&mut self, is_known: impl Fn(&InstanceKey) -> bool) {
        if !self.exemplars.are_of(&is_known) {
            Arc::make_mut(&mut self.exemplars).keep(is_known);
        }
    }

    /// Which traces stand for what is in the metrics: those that found room among what is to be exported.
    pub fn exemplars(&self) -> Arc<Exemplars> {
        Arc::clone(&self.exemplars)
    }

    /// What became of the spans of a target that are to go by the exporter of this name.
    pub fn report(&self, name: &str, key: &InstanceKey) -> SpanCounts {
        match self.all.get(name) {
            Some(Exporter::Running(sink)) => sink.report(key),
            _ => SpanCounts {
                message: no_receiver(name),
                ..SpanCounts::default()
            },
        }
    }

    /// What became of all spans up to now, by each exporter that there is, also where nobody has named it: a counter that begins at zero
    /// is seen to grow.
    pub fn counts(&self) -> BTreeMap<String, Counts> {
        let counts = self.all.iter().map(|(name, exporter)| {
            let counts = match exporter {
                Exporter::Running(sink) => sink.counts(),
                Exporter::Idle(_) | Exporter::Unusable => Counts::default(),
            };
            (name.clone(), counts)
        });
        counts.collect()
    }

    /// Sends what there is, for no longer than this in all, and says what became of all, a sentence for each exporter that ran.
    pub fn end(self, within: Duration) -> Vec<String> {
        let all = self.all.into_values();
        let sinks = all.filter_map(|exporter| match exporter {
            Exporter::Running(sink) => Some(*sink),
            Exporter::Idle(_) | Exporter::Unusable => None,
        });
        // Beside each other: one that is away takes its whole time.
        thread::scope(|scope| {
            let ending = sinks.map(|sink| scope.spawn(move || sink.end(within)));
            let ending: Vec<_> = ending.collect();
            let ended = ending.into_iter();
            ended.filter_map(|one| one.join().ok()).collect()
        })
    }
}

/// What a target says where nobody is to take its spans. Which of all receivers it is, and what it says, is for the log of the agent.
fn no_receiver(name: &str) -> String {
    let (place, what) = match name == DEFAULT_EXPORTER {
        true => ("otlp.endpoint", String::new()),
        false => ("otlp.exporters", format!(" by the exporter {name}")),
    };
    format!(
        "this installation exports no traces{what}: {place} of its chart names no receiver, or one that cannot be used: see the agent's log"
    )
}
