//! The operator of ckb-probe: turns CkbProbes into NodeProbes and agent pods, and the agents' reports into status.
//!
//! [`world`] is what the API has; [`desired`] and [`plan`] say what to do about it, [`aggregate`] and [`notes`]
//! what to tell. Those are plain functions. [`watch`], [`execute`], [`election`] and [`http`] are the effects, and
//! [`controller`] ties them together. Every replica watches; only the one that leads writes.

use std::net::SocketAddr;

use ckb_probe_k8s::{
    listener::{ListenError, bind, serve},
    secure::{CertificateError, Protection, Secure},
};
use futures::future::OptionFuture;
use kube::Client;

pub mod aggregate;
pub mod controller;
pub mod desired;
pub mod election;
pub mod execute;
mod hash;
pub mod http;
pub mod limits;
pub mod metrics;
pub mod notes;
pub mod plan;
pub mod profiles;
pub mod queue;
pub mod selector;
pub mod template;
#[cfg(test)]
mod testing;
pub mod watch;
pub mod world;

use controller::Controller;
use election::{Election, ElectionConfig};
use execute::{Events, Executor};
use http::Pages;
use limits::Limits;
use metrics::Metrics;
use profiles::{
    publish::Publisher,
    push::{PushConfig, PushError, Pusher},
};
use template::AgentTemplate;
use watch::Scope;

/// What an operator is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The election; its namespace is where NodeProbes and agent pods live.
    pub election: ElectionConfig,
    /// The namespace whose CkbProbes are served; unset: all.
    pub watch_namespace: Option<String>,
    /// What agent pods are made from.
    pub template: AgentTemplate,
    /// The Deployment, in the same namespace, that NodeProbes belong to, and go with.
    pub owner: Option<String>,
    /// What a namespace and a pod may take.
    pub limits: Limits,
    /// Where profiles are pushed to.
    pub push: Option<PushConfig>,
    /// The address on which /metrics is served.
    pub metrics_address: SocketAddr,
    /// Who may read the metrics, and by which certificate they are served.
    pub protection: Protection,
    /// The address on which /healthz and /readyz are served.
    pub health_address: SocketAddr,
}

/// Why an operator ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The metrics cannot be registered.
    #[error("cannot register the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The address is taken, or not ours.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// There is no certificate to protect the metrics with.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Profiles cannot be pushed.
    #[error(transparent)]
    Push(#[from] PushError),
    /// A part ended that runs for ever.
    #[error("{0} ended: {1}")]
    Ended(&'static str, String),
}

/// Runs until `stop` is ready, then gives the Lease up.
pub async fn run(
    client: Client,
    config: Config,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let Config {
        election,
        watch_namespace,
        template,
        owner,
        limits,
        push,
        metrics_address,
        protection,
        health_address,
    } = config;
    let metrics_door = bind(metrics_address).await?;
    let health_door = bind(health_address).await?;
    let secure = Secure::new(&protection, client.clone())?;
    let pages = Pages {
        metrics: Metrics::new()?,
        ready: Default::default(),
    };
    let scope = Scope {
        own: election.namespace.clone(),
        watched: watch_namespace,
    };
    let pusher = push.map(|push| Pusher::new(push, pages.metrics.clone()));
    let (pusher, pushing) = pusher.transpose()?.unzip();
    let pushing = OptionFuture::from(pushing);
    let events = Events::new(
        client.clone(),
        election.namespace.clone(),
        election.identity.clone(),
        pages.metrics.clone(),
    );
    let publisher = Publisher::new(
        client.clone(),
        &election.namespace,
        events.clone(),
        pages.metrics.clone(),
        pusher,
    );
    let executor = Executor::new(
        client.clone(),
        election.namespace.clone(),
        events,
        template,
        owner,
    );
    let (mut election, leadership) = Election::new(client.clone(), election);
    let controller = Controller::new(
        executor,
        publisher,
        limits,
        leadership,
        pages.metrics.clone(),
        pages.ready.clone(),
    );
    let changes = watch::changes(&client, &scope);
    let health = pages.clone();
    let result = tokio::select! {
        () = stop => Ok(()),
        () = controller.run(changes) => Err(RunError::Ended("the controller", "its watches ended".to_owned())),
        () = serve(metrics_door, secure, move |asked| pages.metrics(asked.path)) => Err(RunError::Ended("the metrics", "without a reason".to_owned())),
        () = serve(health_door, None, move |asked| health.health(asked.path)) => Err(RunError::Ended("the health", "without a reason".to_owned())),
        Some(()) = pushing => Err(RunError::Ended("the pushing of profiles", "without a reason".to_owned())),
        () = election.run() => Err(RunError::Ended("the election", "without a reason".to_owned())),
    };
    // Whatever was being written was dropped with the controller: nothing is written after the Lease is free.
    if let Err(error) = election.release().await {
        tracing::warn!(%error, "the Lease will have to expire");
    }
    result
}
