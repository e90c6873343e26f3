//! Which cluster, and which namespace of it, in kubectl's own words.

use std::path::PathBuf;

use ckb_probe_k8s::client::client;
use clap::Args;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::VerbError;

/// What `kubectl` takes, too.
#[derive(Args, Clone, Debug, Default)]
pub struct ClusterArguments {
    /// The namespace of the CkbProbe and its pods. Unset: that of the context.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The context of the kubeconfig. Unset: the current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The kubeconfig. Unset: KUBECONFIG, or ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
}

impl ClusterArguments {
    /// The namespace that is meant, without a look at the cluster. Without a kubeconfig it is to be said.
    pub async fn namespace(&self) -> Result<String, VerbError> {
        match &self.namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => Ok(self.config().await?.default_namespace),
        }
    }

    /// A client, and the namespace that is meant.
    pub async fn connect(&self) -> Result<(Client, String), VerbError> {
        let mut config = self.config().await?;
        // Somebody waits: what is refused or not there is told at once.
        config.default_retry = false;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        Ok((client(config)?, namespace))
    }

    async fn config(&self) -> Result<Config, VerbError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        Ok(match &self.kubeconfig {
            Some(file) => {
                let file = Kubeconfig::read_from(file)?;
                Config::from_custom_kubeconfig(file, &options).await?
            }
            None => Config::from_kubeconfig(&options).await?,
        })
    }
}
