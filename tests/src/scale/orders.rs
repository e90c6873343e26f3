//! The orders that the operator has written, as they come.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ckb_probe_crds::{NodeProbe, NodeProbeSpec};
use futures::StreamExt as _;
use kube::{
    Api, Client,
    core::ApiResource,
    runtime::{WatchStreamExt as _, watcher},
};
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::timeout};

use crate::{
    cluster::SYSTEM,
    failure::{Failure, Result, expect},
};

/// A NodeProbe whose status is of no interest.
type Order = kube::core::Object<NodeProbeSpec, Ignored>;

/// What is not read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Ignored {}

/// An order, and its generation.
pub type Known = (i64, Arc<NodeProbeSpec>);

/// All of them by node. Clones see the same.
#[derive(Clone)]
pub struct Orders {
    known: Arc<Mutex<BTreeMap<String, Known>>>,
    news: watch::Sender<()>,
}

impl Orders {
    /// Watches them from now on, for as long as this process lives.
    pub fn watch(client: Client) -> Self {
        let orders = Self {
            known: Arc::default(),
            news: watch::Sender::new(()),
        };
        let resource = ApiResource::erase::<NodeProbe>(&());
        let api: Api<Order> = Api::namespaced_with(client, SYSTEM, &resource);
        let own = orders.clone();
        tokio::spawn(async move {
            let seen = watcher(api, watcher::Config::default())
                .default_backoff()
                .applied_objects()
                .for_each(|order| {
                    // What fails is tried again.
                    if let Ok(order) = order {
                        own.take(order);
                    }
                    std::future::ready(())
                });
            seen.await;
        });
        orders
    }

    fn take(&self, order: Order) {
        let node = order.metadata.name.unwrap_or_default();
        let generation = order.metadata.generation.unwrap_or_default();
        let known = (generation, Arc::new(order.spec));
        let before = self.known().insert(node, known);
        if before.is_none_or(|(before, _)| before != generation) {
            self.news.send_replace(());
        }
    }

    /// That of a node.
    pub fn of(&self, node: &str) -> Option<Known> {
        self.known().get(node).cloned()
    }

    /// The nodes that have one.
    pub fn nodes(&self) -> Vec<String> {
        self.known().keys().cloned().collect()
    }

    /// Told of each change.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Assignments, and of how many different containers.
    pub fn extent(&self) -> (usize, usize) {
        let known = self.known();
        let all = known.values().flat_map(|(_, order)| &order.assignments);
        let with_id = all.clone().flat_map(|one| &one.containers);
        let with_id = with_id.filter(|container| container.id.is_some());
        (all.count(), with_id.count())
    }

    /// Waits until a container with this id is in one.
    pub async fn hold(&self, id: &str, limit: Duration) -> Result<()> {
        let mut news = self.news();
        let there = || {
            let known = self.known();
            let mut all = known
                .values()
                .flat_map(|(_, order)| &order.assignments)
                .flat_map(|assignment| &assignment.containers);
            all.any(|container| container.id.as_deref() == Some(id))
        };
        let wait = async {
            while !there() {
                if news.changed().await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(limit, wait).await;
        expect(
            there(),
            format!("an order with the container {id}"),
            || "none",
        )
    }

    /// Waits until so many assignments, each with the id of its container, are ordered.
    pub async fn reach(&self, assignments: usize, limit: Duration) -> Result<()> {
        let mut news = self.news();
        let wait = async {
            while self.extent() != (assignments, assignments) {
                if news.changed().await.is_err() {
                    return;
                }
            }
        };
        timeout(limit, wait).await.map_err(|_| Failure::Timeout {
            what: format!("{assignments} assignments"),
            limit,
            last: Box::new(Failure::unexpected(
                "all of them, each with a container's id",
                format!("{:?}", self.extent()),
            )),
        })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // What is behind it is whole after every statement.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
