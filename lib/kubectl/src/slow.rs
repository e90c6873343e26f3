//! `slow`: what is listed individually, such as slow calls, as it comes.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use ckb_probe_crds::{CkbProbe, EventStatus};
use ckb_probe_views::{
    document::{Document, Event, View},
    figures, unlisted,
};
use clap::Args;
use kube::{Api, ResourceExt, api::ListParams};
use tokio::time::{Instant, sleep_until};

use crate::{ClusterArguments, Outcome, VerbError, error::sentence, print};

const LOOK: Duration = Duration::from_secs(1);

/// So many are remembered, so that none is told twice: more than all statuses of a namespace have.
const KNOWN: usize = 10_000;

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl ckbprobe slow -n ckb                 of every CkbProbe of the namespace, until Ctrl-C\n  \
    kubectl ckbprobe slow ckb -n ckb --for 10m\n  \
    kubectl ckbprobe slow ckb -o json | jq -r .event.details.duration\n\n\
    A status has the ten most important of each report interval; the agents' logs have all of them.";

/// What the plugin takes.
#[derive(Args, Clone, Debug)]
pub struct SlowArguments {
    /// The CkbProbe. Unset: all of the namespace.
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) how: ListArguments,
}

/// For how long they are listed, and how.
#[derive(Args, Clone, Debug)]
pub struct ListArguments {
    /// Stop after this time. Unset: at Ctrl-C.
    #[arg(long = "for", value_name = "DURATION")]
    pub time: Option<ckb_probe_crds::Duration>,
    /// Print lines of JSON, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

impl ListArguments {
    /// A line for each of these, in the order in which they happened.
    pub fn text(&self, mut events: Vec<Event>) -> String {
        events.sort_by_key(|one| one.event.time.as_ref().map(|time| time.0));
        let lines = events.into_iter().map(|one| match self.output {
            None => figures::event_line(&one.event) + "\n",
            Some(_) => Document::of(View::Event(one)).line() + "\n",
        });
        lines.collect()
    }
}

/// Prints each as soon as a status has it.
pub async fn run(
    name: Option<&str>,
    cluster: &ClusterArguments,
    how: &ListArguments,
) -> Result<Outcome, VerbError> {
    let (client, namespace) = cluster.connect().await?;
    let api: Api<CkbProbe> = Api::namespaced(client, &namespace);
    let end = how.time.map(|time| Instant::now() + time.get());
    let mut parameters = ListParams::default();
    if let Some(name) = name {
        parameters = parameters.fields(&format!("metadata.name={name}"));
    }
    let mut told: VecDeque<(String, String, EventStatus)> = VecDeque::new();
    let mut sampled = BTreeSet::new();
    let mut first = true;
    loop {
        let next = Instant::now() + LOOK;
        match api.list(&parameters).await {
            Ok(list) => {
                if first && let (Some(name), true) = (name, list.items.is_empty()) {
                    eprintln!("ckbprobe: there is no CkbProbe {name} in namespace {namespace} yet");
                }
                first = false;
                for probe in &list.items {
                    let name = probe.name_any();
                    let told = probe.status.as_ref();
                    let told = told.and_then(|status| unlisted::of(&status.probes));
                    if let Some(said) = told.filter(|_| sampled.insert(name.clone())) {
                        eprintln!("ckbprobe: {namespace}/{name}: {said}");
                    }
                }
                print(&how.text(new(&list.items, &mut told)))?;
            }
            Err(error) if first => {
                return Err(VerbError::request("list CkbProbes", &namespace, error));
            }
            // It may come back.
            Err(error) => eprintln!("ckbprobe: {}", sentence(&error)),
        }
        if end.is_some_and(|end| next > end) {
            return Ok(Outcome::Well);
        }
        sleep_until(next).await;
    }
}

/// Those that were not told yet.
fn new(probes: &[CkbProbe], told: &mut VecDeque<(String, String, EventStatus)>) -> Vec<Event> {
    let mut new = Vec::new();
    for probe in probes {
        let subject = format!(
            "{}/{}",
            probe.namespace().unwrap_or_default(),
            probe.name_any()
        );
        for of in probe.status.iter().flat_map(|status| &status.probes) {
            for event in &of.events {
                let one = (subject.clone(), of.name.clone(), event.clone());
                if !told.contains(&one) {
                    told.push_back(one);
                    new.push(Event {
                        subject: subject.clone(),
                        probe: of.name.clone(),
                        event: event.clone(),
                    });
                }
            }
        }
    }
    while told.len() > KNOWN {
        told.pop_front();
    }
    new
}
