//! What is where: the keys of a table's rows by node, so that one node's are found whatever the number of nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::table::Changed;
use crate::world::Row;

/// Keys by the name of a node.
#[derive(Clone, Debug)]
pub struct ByNode<K>(BTreeMap<String, BTreeSet<K>>);

impl<K> Default for ByNode<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Clone + Ord> ByNode<K> {
    /// Takes in what has changed in the table.
    pub fn follow<R: Row<Key = K>>(
        &mut self,
        changes: &[Changed<R>],
        node: impl Fn(&R) -> Option<String>,
    ) {
        for (key, before, after) in changes {
            let before = before.as_ref().and_then(&node);
            let after = after.as_ref().and_then(&node);
            if before == after {
                continue;
            }
            if let Some(node) = before
                && let Some(keys) = self.0.get_mut(&node)
            {
                keys.remove(key);
                if keys.is_empty() {
                    self.0.remove(&node);
                }
            }
            if let Some(node) = after {
                self.0.entry(node).or_default().insert(key.clone());
            }
        }
    }

    /// The keys on a node, in their order.
    pub fn on(&self, node: &str) -> impl Iterator<Item = &K> {
        self.0.get(node).into_iter().flatten()
    }

    /// The nodes that have any.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}
