//! What runs beside the agent's loop for as long as the agent does, and how the loop speaks with it.

use std::{pin::pin, sync::Arc};

use ckb_probe_crds::{NodeProbe, NodeProbeStatus, ProfilePart};
use futures::StreamExt;
use kube::{Api, Client};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};
use tracing::warn;

use super::{
    Settings,
    exchange::{
        Written, orders,
        parts::{Queue, write_parts},
        write_reports,
    },
};

/// Tasks that end with the agent, and never before.
pub(super) struct Tasks {
    server: JoinHandle<()>,
    reports: JoinHandle<()>,
    parts: JoinHandle<()>,
    orders: JoinHandle<()>,
}

/// What goes to the API server, and comes from there.
pub(super) struct Exchange {
    /// The order as it changes; None while there is none.
    pub orders: mpsc::Receiver<Option<NodeProbe>>,
    /// The report that is to be written.
    pub reports: watch::Sender<Option<NodeProbeStatus>>,
    /// What became of those before.
    pub written: Arc<Written>,
    /// Windows of stacks that are to be written.
    pub parts: Arc<Queue>,
}

impl Tasks {
    /// Starts all of them: `serving` answers whoever asks the agent.
    pub fn start(
        serving: impl Future<Output = ()> + Send + 'static,
        client: &Client,
        settings: &Settings,
    ) -> (Self, Exchange) {
        let node = settings.node.clone();
        let (parts, written) = (Arc::<Queue>::default(), Arc::<Written>::default());
        let of_parts: Api<ProfilePart> = Api::namespaced(client.clone(), &settings.namespace);
        let api: Api<NodeProbe> = Api::namespaced(client.clone(), &settings.namespace);
        let (reports, latest) = watch::channel(None);
        // In a task of its own: what is measured wakes the loop often, and that is nothing to the watch.
        let watch = orders(api.clone(), &node);
        let (order, orders) = mpsc::channel(1);
        let watching = async move {
            let mut watch = pin!(watch);
            while let Some(changed) = watch.next().await
                && order.send(changed).await.is_ok()
            {}
        };
        let tasks = Self {
            server: tokio::spawn(serving),
            parts: tokio::spawn(write_parts(of_parts, node.clone(), Arc::clone(&parts))),
            reports: tokio::spawn(write_reports(api, node, latest, Arc::clone(&written))),
            orders: tokio::spawn(watching),
        };
        let exchange = Exchange {
            orders,
            reports,
            written,
            parts,
        };
        (tasks, exchange)
    }

    /// Waits until one of them ends, which none should. Its name.
    pub async fn ended(&mut self) -> &'static str {
        let (name, end) = tokio::select! {
            end = &mut self.server => ("server", end),
            end = &mut self.reports => ("reports", end),
            end = &mut self.parts => ("profile parts", end),
            end = &mut self.orders => ("orders", end),
        };
        if let Err(error) = end {
            warn!(%error, "a task failed");
        }
        name
    }
}
