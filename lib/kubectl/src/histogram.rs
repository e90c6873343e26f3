//! `histogram`: how long it takes, and how often.

use ckb_probe_crds::{CkbProbe, NodeProbe};
use ckb_probe_views::{
    document::Distribution,
    histogram::{self, Which},
};
use clap::Args;
use kube::{Api, api::ListParams};

use crate::{ClusterArguments, Outcome, VerbError, documents, print};

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl ckbprobe histogram ckb -n ckb                      each row of the first probe that has distributions\n  \
    kubectl ckbprobe histogram ckb -n ckb --row Get\n  \
    kubectl ckbprobe histogram ckb -n ckb --row Get --part CELL\n  \
    watch kubectl ckbprobe histogram ckb -n ckb --probe calls --row fsync\n\n\
    Agents tell distributions in NodeProbes: it takes the right to list these. Exit codes: 0 there are some; 1 there is none;\n\
    2 wrong arguments.";

/// What the plugin takes.
#[derive(Args, Clone, Debug)]
pub struct HistogramArguments {
    /// The CkbProbe.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) cluster: ClusterArguments,
    #[command(flatten)]
    pub(crate) how: HowArguments,
}

/// What is shown of it.
#[derive(Args, Clone, Debug)]
pub struct HowArguments {
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

impl HowArguments {
    /// What is asked for.
    pub fn which(&self) -> Which<'_> {
        Which {
            probe: self.probe.as_deref(),
            row: self.row.as_deref(),
            part: self.part.as_deref(),
        }
    }

    /// What was found, one after the other.
    pub fn text(&self, found: &[Distribution]) -> String {
        match self.output {
            Some(_) => documents(found),
            None => {
                let texts: Vec<String> = found.iter().map(Distribution::text).collect();
                texts.join("\n")
            }
        }
    }
}

/// Shows the last report interval.
pub async fn run(
    name: &str,
    cluster: &ClusterArguments,
    how: &HowArguments,
) -> Result<Outcome, VerbError> {
    let (client, namespace) = cluster.connect().await?;
    let api: Api<CkbProbe> = Api::namespaced(client.clone(), &namespace);
    let what = format!("read CkbProbe {name}");
    let probe = api.get(name).await;
    let probe = probe.map_err(|error| VerbError::request(&*what, &namespace, error))?;
    let orders: Api<NodeProbe> = Api::all(client);
    let orders = orders.list(&ListParams::default()).await;
    let orders = orders.map_err(|error| VerbError::request("list NodeProbes", "any", error))?;
    let found = histogram::of(&probe, &orders.items, how.which());
    print(&how.text(&found))?;
    if found.is_empty() {
        let of_any_row = how.which().of_any_row();
        let others = histogram::others(&histogram::of(&probe, &orders.items, of_any_row));
        eprintln!(
            "ckbprobe: nothing was measured of that in the last report interval{others}: see kubectl ckbprobe doctor {name} -n {namespace}"
        );
        return Ok(Outcome::Broken);
    }
    Ok(Outcome::Well)
}
