//! `slow`: what is listed individually, such as slow calls, as it comes.

use std::{
    collections::VecDeque,
    io::{self, Write},
    time::Duration,
};

use ckb_probe_crds::{CkbProbe, EventStatus};
use ckb_probe_views::{
    document::{Document, Event, View},
    figures,
};
use clap::Args;
use kube::{Api, ResourceExt, api::ListParams};
use tokio::time::{Instant, sleep_until};

use crate::{ClusterArguments, Outcome, VerbError, error::sentence};

const LOOK: Duration = Duration::from_secs(1);

/// So many are remembered, so that none is told twice: more than all statuses of a namespace have.
const KNOWN: usize = 10_000;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    kubectl ckbprobe slow -n ckb                 of every CkbProbe of the namespace, until Ctrl-C\n  \
    kubectl ckbprobe slow ckb -n ckb --for 10m\n  \
    kubectl ckbprobe slow ckb -o json | jq -r .event.details.duration\n\n\
    A status has the ten most important of each report interval; the agents' logs have all of them.")]
pub struct SlowArguments {
    /// The CkbProbe. Unset: all of the namespace.
    name: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Stop after this time. Unset: at Ctrl-C.
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<ckb_probe_crds::Duration>,
    /// Print lines of JSON, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

/// Prints each as soon as a status has it.
pub async fn run(arguments: &SlowArguments) -> Result<Outcome, VerbError> {
    let (client, namespace) = arguments.cluster.connect().await?;
    let api: Api<CkbProbe> = Api::namespaced(client, &namespace);
    let end = arguments.time.map(|time| Instant::now() + time.get());
    let mut parameters = ListParams::default();
    if let Some(name) = &arguments.name {
        parameters = parameters.fields(&format!("metadata.name={name}"));
    }
    let mut told: VecDeque<(String, String, EventStatus)> = VecDeque::new();
    let mut first = true;
    loop {
        let next = Instant::now() + LOOK;
        match api.list(&parameters).await {
            Ok(list) => {
                if first && let (Some(name), true) = (&arguments.name, list.items.is_empty()) {
                    eprintln!("ckbprobe: there is no CkbProbe {name} in namespace {namespace} yet");
                }
                first = false;
                tell(arguments, &list.items, &mut told)?;
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

/// Those that were not told yet, in the order in which they happened.
fn tell(
    arguments: &SlowArguments,
    probes: &[CkbProbe],
    told: &mut VecDeque<(String, String, EventStatus)>,
) -> io::Result<()> {
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
                    told.push_back(one.clone());
                    new.push(one);
                }
            }
        }
    }
    while told.len() > KNOWN {
        told.pop_front();
    }
    new.sort_by_key(|(_, _, event)| event.time.as_ref().map(|time| time.0));
    let mut out = io::stdout().lock();
    for (subject, probe, event) in new {
        match arguments.output {
            None => writeln!(out, "{}", figures::event_line(&event))?,
            Some(_) => {
                let event = Event {
                    subject,
                    probe,
                    event,
                };
                writeln!(out, "{}", Document::of(View::Event(event)).line())?;
            }
        }
    }
    out.flush()
}
