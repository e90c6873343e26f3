//! `heatmap`: how long a row takes, over time.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use ckb_probe_crds::{CkbProbe, NodeProbe};
use ckb_probe_views::{
    document::Distribution,
    heatmap::{Heatmap, told},
    histogram::{self, Which},
};
use clap::Args;
use kube::{Api, Client, api::ListParams};
use tokio::time::{Instant, sleep_until};

use crate::{
    ClusterArguments, Outcome, VerbError, documents, error::sentence, interrupts::Interrupts,
    print, top::clock,
};

const LOOK: Duration = Duration::from_secs(1);

/// What the plugin takes.
#[derive(Args, Clone, Debug)]
pub struct HeatmapArguments {
    /// The CkbProbe.
    pub(crate) name: String,
    /// The row, such as Get. Unset: the busiest.
    pub(crate) row: Option<String>,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) how: DrawArguments,
}

/// What is drawn of it, and how long.
#[derive(Args, Clone, Debug)]
pub struct DrawArguments {
    /// The probe that has it. Unset: the first that has distributions.
    #[arg(long, value_name = "NAME")]
    probe: Option<String>,
    /// A part of the row, such as a column family. Unset: all of it.
    #[arg(long)]
    part: Option<String>,
    /// For how long it is watched.
    #[arg(long = "for", value_name = "DURATION", default_value = "5m")]
    pub time: ckb_probe_crds::Duration,
    /// Print each interval as a line of JSON as it comes, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl ckbprobe heatmap ckb -n ckb                       the busiest row, for five minutes or until Ctrl-C\n  \
    kubectl ckbprobe heatmap ckb TxnCommit -n ckb --for 20m\n  \
    kubectl ckbprobe heatmap ckb Get -n ckb --part CELL --for 1m > heat.txt\n  \
    kubectl ckbprobe heatmap ckb Get -n ckb -o json | jq .count\n\n\
    Agents tell distributions in NodeProbes: it takes the right to list these. Exit codes: 0 there are some; 1 there is none;\n\
    2 wrong arguments.";

impl DrawArguments {
    /// What is asked for, of this row.
    pub fn which<'a>(&'a self, row: Option<&'a str>) -> Which<'a> {
        Which {
            probe: self.probe.as_deref(),
            row,
            part: self.part.as_deref(),
        }
    }

    /// Where it is drawn.
    pub fn canvas(&self) -> Canvas {
        Canvas {
            json: self.output.is_some(),
            redraws: self.output.is_none() && io::stdout().is_terminal(),
            drawn: 0,
        }
    }
}

/// Where a heatmap is drawn: over the one before in a terminal, once at the end elsewhere; or a line for each interval.
pub struct Canvas {
    json: bool,
    redraws: bool,
    drawn: usize,
}

impl Canvas {
    /// What is drawn after another look, by which these intervals are complete.
    pub fn draw(&mut self, heatmap: &Heatmap, complete: &[Distribution]) -> String {
        if self.json {
            return documents(complete);
        }
        if !self.redraws {
            return String::new();
        }
        let text = heatmap.text();
        let up = match self.drawn {
            0 => "\r".to_owned(),
            lines => format!("\x1b[{lines}A"),
        };
        self.drawn = text.lines().count();
        format!("{up}\x1b[J{text}")
    }

    /// It is over: what is drawn last.
    pub fn end(&mut self, heatmap: &mut Heatmap) -> String {
        let last = heatmap.close();
        match self.json || self.redraws {
            true => self.draw(heatmap, last.as_slice()),
            false => heatmap.text(),
        }
    }
}

/// Whether there is anything on it.
pub fn outcome(heatmap: &Heatmap) -> Outcome {
    match heatmap.is_empty() {
        true => Outcome::Broken,
        false => Outcome::Well,
    }
}

/// Draws it for its time.
pub async fn run(
    name: &str,
    row: Option<&str>,
    cluster: &ClusterArguments,
    how: &DrawArguments,
) -> Result<Outcome, VerbError> {
    let (client, namespace) = cluster.connect().await?;
    let mut interrupts = Interrupts::new()?;
    let subject = format!("{namespace}/{name}");
    let mut heatmap = None;
    let mut canvas = how.canvas();
    let began = Instant::now();
    let end = began + how.time.get();
    loop {
        let next = Instant::now() + LOOK;
        match look(&client, &namespace, name).await {
            Ok((probe, orders)) => {
                if heatmap.is_none() {
                    heatmap = Heatmap::of(&subject, &probe.spec.probes, how.which(row));
                }
                let Some(heatmap) = &mut heatmap else {
                    return Err(VerbError::NoDistribution(subject));
                };
                heatmap.choose(|| {
                    let each = histogram::of(&probe, &orders, how.which(row));
                    each.into_iter().next().map(|one| one.row)
                });
                let told = told(&probe, &orders, heatmap.which());
                let complete = heatmap.take(&told, began.elapsed(), &clock());
                print(&canvas.draw(heatmap, &complete))?;
            }
            Err(error) if heatmap.is_none() => return Err(error),
            // It may come back.
            Err(VerbError::Request { source, .. }) => eprintln!("ckbprobe: {}", sentence(&source)),
            Err(error) => return Err(error),
        }
        tokio::select! {
            () = sleep_until(next.min(end)) => {}
            () = interrupts.next() => break,
        }
        if Instant::now() >= end {
            break;
        }
    }
    let Some(mut heatmap) = heatmap else {
        return Ok(Outcome::Broken);
    };
    print(&canvas.end(&mut heatmap))?;
    let outcome = outcome(&heatmap);
    if outcome == Outcome::Broken {
        eprintln!(
            "ckbprobe: nothing was measured of that meanwhile: see kubectl ckbprobe doctor {name} -n {namespace}"
        );
    }
    Ok(outcome)
}

async fn look(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<(CkbProbe, Vec<NodeProbe>), VerbError> {
    let api: Api<CkbProbe> = Api::namespaced(client.clone(), namespace);
    let probe = api.get(name).await;
    let what = format!("read CkbProbe {name}");
    let probe = probe.map_err(|error| VerbError::request(what, namespace, error))?;
    let api: Api<NodeProbe> = Api::all(client.clone());
    let orders = api.list(&ListParams::default()).await;
    let orders = orders.map_err(|error| VerbError::request("list NodeProbes", "any", error))?;
    Ok((probe, orders.items))
}
