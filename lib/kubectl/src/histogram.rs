//! `histogram`: how long it takes, and how often.

use std::io::{self, Write};

use ckb_probe_crds::{CkbProbe, NodeProbe};
use ckb_probe_views::{
    document::{Document, View},
    histogram::{self, Which},
};
use clap::Args;
use kube::{Api, api::ListParams};

use crate::{ClusterArguments, Outcome, VerbError};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    kubectl ckbprobe histogram ckb -n ckb                      each row of the first probe that has distributions\n  \
    kubectl ckbprobe histogram ckb -n ckb --row Get\n  \
    kubectl ckbprobe histogram ckb -n ckb --row Get --part CELL\n  \
    watch kubectl ckbprobe histogram ckb -n ckb --probe calls --row fsync\n\n\
    Agents tell distributions in NodeProbes: it takes the right to list these. Exit codes: 0 there are some; 1 there is none;\n\
    2 wrong arguments.")]
pub struct HistogramArguments {
    /// The CkbProbe.
    name: String,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// The probe of it. Unset: the first that has distributions.
    #[arg(long, value_name = "NAME")]
    probe: Option<String>,
    /// The row, such as Get. Unset: each.
    #[arg(long)]
    row: Option<String>,
    /// A part of the row, such as a column family. Unset: all of it.
    #[arg(long, requires = "row")]
    part: Option<String>,
    /// Print lines of JSON, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

/// Shows the last report interval.
pub async fn run(arguments: &HistogramArguments) -> Result<Outcome, VerbError> {
    let (client, namespace) = arguments.cluster.connect().await?;
    let api: Api<CkbProbe> = Api::namespaced(client.clone(), &namespace);
    let what = format!("read CkbProbe {}", arguments.name);
    let probe = api.get(&arguments.name).await;
    let probe = probe.map_err(|error| VerbError::request(&*what, &namespace, error))?;
    let orders: Api<NodeProbe> = Api::all(client);
    let orders = orders.list(&ListParams::default()).await;
    let orders = orders.map_err(|error| VerbError::request("list NodeProbes", "any", error))?;
    let which = Which {
        probe: arguments.probe.as_deref(),
        row: arguments.row.as_deref(),
        part: arguments.part.as_deref(),
    };
    let found = histogram::of(&probe, &orders.items, which);
    let mut out = io::stdout().lock();
    for (place, one) in found.iter().enumerate() {
        match arguments.output {
            Some(_) => {
                let document = Document::of(View::Distribution(one.clone()));
                writeln!(out, "{}", document.line())?;
            }
            None => {
                let gap = if place > 0 { "\n" } else { "" };
                write!(out, "{gap}{}", one.text())?;
            }
        }
    }
    out.flush()?;
    if found.is_empty() {
        eprintln!(
            "ckbprobe: nothing was measured of that in the last report interval: see kubectl ckbprobe doctor {} -n {namespace}",
            arguments.name
        );
        return Ok(Outcome::Broken);
    }
    Ok(Outcome::Well)
}
