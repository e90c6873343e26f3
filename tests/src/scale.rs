//! The operator beside loads that exist in the API alone: a large cluster, and what a tenant or an outage may have it bear.
//! docs/scale.md explains the method.
//!
//! What is measured is the operator as it is released, as a process of its own, against a real API server. Nodes, pods and
//! agents are made up: nothing of the operator is linked in here.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, api::ListParams};

use crate::{
    bench::report::Report,
    cluster,
    failure::{Failure, Result, expect},
    fixture::repository,
    report::Bound,
};

mod agents;
mod away;
mod fleet;
mod full;
mod large;
mod operator;
mod orders;
mod parts;
mod paused;
mod requests;

use operator::Operator;

/// How large, and what with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nodes of the large cluster.
    pub nodes: usize,
    /// Its pods, each a target of one CkbProbe; one namespace for each fifty.
    pub pods: usize,
    /// How many changes of one pod are measured.
    pub changes: usize,
    /// For how many seconds it is looked at rest, and then under reports.
    pub seconds: u64,
    /// How many seconds apart an agent's reports are, from one time to the next, until the API server takes them in time.
    pub every: Vec<u64>,
    /// Paused copies of a CkbProbe.
    pub copies: usize,
    /// The operator's executable.
    pub operator: PathBuf,
    /// Where to write to.
    pub folder: PathBuf,
}

/// Something that the operator has to bear.
pub struct Load {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    measure: for<'a> fn(&'a Client, &'a Settings, &'a mut Report) -> LocalBoxFuture<'a, Result<()>>,
}

macro_rules! loads {
    ($($name:ident: $about:literal;)*) => {
        &[$(Load {
            name: stringify!($name),
            about: $about,
            measure: |client, settings, report| Box::pin($name::measure(client, settings, report)),
        }),*]
    };
}

/// Every load.
pub const ALL: &[Load] = loads! {
    large: "a thousand nodes, and agents that report on five targets each";
    paused: "thousands of paused copies beside one CkbProbe whose profiles are due";
    full: "a hundred agents whose reports are as long as they may be, as often as they may be";
    away: "no operator for an hour, and twenty agents that write all the while";
};

/// Targets of a CkbProbe, and of the small cluster that the large one is compared with.
pub const TARGETS: usize = 50;

/// Pods of a node.
pub const PODS_OF_A_NODE: usize = 5;

/// How often an agent reports.
pub const REPORT: Duration = Duration::from_secs(10);

/// Until every order is written.
const ORDERED: Duration = Duration::from_secs(600);

/// What the chart lets the operator have: 128 MiB.
const MEMORY_MB: f64 = 134.2;

/// One load, on an etcd and an API server of its own. What was measured is in the report even where it fails.
pub async fn run(load: &Load, settings: &Settings, report: &mut Report) -> Result<()> {
    let settings = Settings {
        folder: settings.folder.join(load.name),
        ..settings.clone()
    };
    let cluster = ApiServer::start().await?;
    let client = client().await?;
    alone(&client).await?;
    let measured = (load.measure)(&client, &settings, report).await;
    cluster.stop().await?;
    measured
}

/// An etcd and an API server that nothing runs beside.
struct ApiServer {
    folder: String,
}

impl ApiServer {
    async fn start() -> Result<Self> {
        let kubeconfig =
            std::env::var("KUBECONFIG").map_err(Failure::format("the variable KUBECONFIG"))?;
        let folder = Path::new(&kubeconfig).parent();
        let folder = folder.ok_or_else(|| Failure::missing("the folder of KUBECONFIG"))?;
        let cluster = Self {
            folder: folder.display().to_string(),
        };
        script("up.sh", &["--api", &cluster.folder]).await?;
        Ok(cluster)
    }

    async fn stop(self) -> Result<()> {
        script("down.sh", &[&self.folder]).await
    }
}

async fn script(name: &str, arguments: &[&str]) -> Result<()> {
    let script = repository().join("tests/cluster").join(name);
    cluster::run(&script.to_string_lossy(), arguments, None).await?;
    Ok(())
}

/// A client with the rights of an administrator.
async fn client() -> Result<Client> {
    let config = kube::Config::infer()
        .await
        .map_err(Failure::format("KUBECONFIG"))?;
    Ok(config.try_into()?)
}

/// Nodes of another's would be measured too, and ours would not be left alone by its controllers.
async fn alone(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list_metadata(&ListParams::default()).await?.items;
    expect(nodes.is_empty(), "an API server without nodes", || {
        format!("{} of them", nodes.len())
    })
}

/// What the operator told of all that, in rows that begin like this: nothing was wrong.
async fn told(of: &str, operator: &mut Operator, report: &mut Report) -> Result<()> {
    let errors = operator
        .scrape()
        .await?
        .sum("ckb_probe_reconcile_errors_total", &[])
        .unwrap_or_default();
    let complaints = operator.stop().await?;
    for line in complaints.iter().take(10) {
        println!("                   {line}");
    }
    let none = Some(Bound::Exactly(0.0));
    report.value(
        format!("{of}: warnings in its log"),
        complaints.len(),
        "",
        none,
    );
    report.value(format!("{of}: errors in its metrics"), errors, "", none);
    Ok(())
}
