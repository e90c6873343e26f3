//! `doctor`: what is broken first, and what to type next.

use std::time::Duration;

use ckb_probe_views::diagnosis::{Diagnosis, Finding, Place};
use clap::Args;
use tokio::time::{Instant, sleep_until};

use crate::{
    ClusterArguments, Outcome, Output, VerbError,
    gather::{self, Asked},
};

/// How often it looks again where it waits.
const LOOK: Duration = Duration::from_secs(2);

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    kubectl ckbprobe doctor -n ckb              every CkbProbe of the namespace\n  \
    kubectl ckbprobe doctor ckb -n ckb          one of them\n  \
    kubectl ckbprobe doctor -A -o short         only what is not as it should be, in the whole cluster\n  \
    kubectl ckbprobe doctor ckb --wait 2m       after helm install or kubectl apply: until all is as it should be\n  \
    kubectl ckbprobe doctor ckb -o json | jq .ok\n\n\
    Exit codes: 0 nothing is broken; 1 something is; 2 wrong arguments.")]
pub struct DoctorArguments {
    /// The CkbProbe. Unset: all of the namespace.
    name: Option<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// In all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["namespace", "name"])]
    all_namespaces: bool,
    /// What is printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Look again until nothing is broken, for so long.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    wait: ckb_probe_crds::Duration,
    /// The namespace of the installation, for whoever may not look for it.
    #[arg(long, value_name = "NAMESPACE", default_value = "ckb-probe")]
    system: String,
}

/// Looks, and says it.
pub async fn run(arguments: &DoctorArguments) -> Result<Outcome, VerbError> {
    let end = Instant::now() + arguments.wait.get();
    let found = loop {
        let found = look(arguments).await;
        let next = Instant::now() + LOOK;
        // What passes by itself is waited for, too, where somebody waits.
        let waits = !arguments.wait.get().is_zero() && !found.is_settled();
        if next > end || found.ok && !waits {
            break found;
        }
        sleep_until(next).await;
    };
    arguments.output.print(&found)?;
    Ok(match found.ok {
        true => Outcome::Well,
        false => Outcome::Broken,
    })
}

/// Looks once. That there is no cluster is a finding, too.
async fn look(arguments: &DoctorArguments) -> Diagnosis {
    match arguments.cluster.connect().await {
        Ok((client, namespace)) => {
            let asked = Asked {
                namespace: (!arguments.all_namespaces).then_some(namespace),
                name: arguments.name.clone(),
                system: arguments.system.clone(),
            };
            gather::snapshot(&client, &asked).await.diagnose()
        }
        Err(error) => {
            let finding = Finding::failed(Place::Cluster, error.to_string());
            let finding = finding.next("kubectl config get-contexts");
            Diagnosis::of(
                Vec::new(),
                vec![finding.see("the-cluster-and-the-installation")],
            )
        }
    }
}
