//! One kind's objects by key, fed with watch events.

use std::{borrow::Borrow, collections::BTreeMap, ops::RangeFrom};

use kube::runtime::watcher::Event;

/// What a table holds.
pub trait Row: Clone + PartialEq {
    /// What tells rows apart.
    type Key: Clone + Ord;

    /// The key of the row.
    fn key(&self) -> Self::Key;

    /// Whether `other` is the same object, and not one made later under the same name.
    fn same(&self, other: &Self) -> bool;
}

/// Has types be rows: each by its key, and the same object where this field is the same.
macro_rules! rows {
    ($($row:ident by $key:ty: |$own:ident| $value:expr, $($uid:ident).+;)*) => {
        $(impl $crate::world::Row for $row {
            type Key = $key;

            fn key(&self) -> $key {
                let $own = self;
                $value
            }

            fn same(&self, other: &Self) -> bool {
                self.$($uid).+ == other.$($uid).+
            }
        })*
    };
}

pub(crate) use rows;

/// A key with the row before and after.
pub type Changed<R> = (<R as Row>::Key, Option<R>, Option<R>);

/// Rows by key.
#[derive(Clone, Debug)]
pub struct Table<R: Row> {
    rows: BTreeMap<R::Key, R>,
    listing: Option<BTreeMap<R::Key, R>>,
    synced: bool,
}

impl<R: Row> Default for Table<R> {
    fn default() -> Self {
        Self {
            rows: BTreeMap::new(),
            listing: None,
            synced: false,
        }
    }
}

impl<R: Row> Table<R> {
    /// Takes the event in and returns the rows that are others than before.
    pub fn apply(&mut self, event: Event<R>) -> Vec<Changed<R>> {
        match event {
            Event::Init => {
                self.listing = Some(BTreeMap::new());
                Vec::new()
            }
            Event::InitApply(row) => {
                self.listing.get_or_insert_default().insert(row.key(), row);
                Vec::new()
            }
            Event::InitDone => {
                self.synced = true;
                let rows = self.listing.take().unwrap_or_default();
                self.replace(rows)
            }
            Event::Apply(row) => {
                let key = row.key();
                let before = self.rows.insert(key.clone(), row.clone());
                changed(key, before, Some(row)).into_iter().collect()
            }
            Event::Delete(row) => {
                let key = row.key();
                if !self.rows.get(&key).is_some_and(|held| held.same(&row)) {
                    return Vec::new();
                }
                let before = self.rows.remove(&key);
                changed(key, before, None).into_iter().collect()
            }
        }
    }

    fn replace(&mut self, rows: BTreeMap<R::Key, R>) -> Vec<Changed<R>> {
        let mut before = std::mem::replace(&mut self.rows, rows);
        let mut changes: Vec<_> = self
            .rows
            .iter()
            .filter_map(|(key, row)| changed(key.clone(), before.remove(key), Some(row.clone())))
            .collect();
        changes.extend(before.into_iter().map(|(key, row)| (key, Some(row), None)));
        changes
    }

    /// True once the first list is complete.
    pub fn synced(&self) -> bool {
        self.synced
    }

    /// The row of this key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&R>
    where
        R::Key: Borrow<Q>,
    {
        self.rows.get(key)
    }

    /// How many rows there are.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The keys in order.
    pub fn keys(&self) -> impl Iterator<Item = &R::Key> {
        self.rows.keys()
    }

    /// The rows in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &R> {
        self.rows.values()
    }

    /// The rows from this key on.
    pub fn range(&self, range: RangeFrom<R::Key>) -> impl Iterator<Item = &R> {
        self.rows.range(range).map(|(_, row)| row)
    }
}

fn changed<R: Row>(key: R::Key, before: Option<R>, after: Option<R>) -> Option<Changed<R>> {
    (before != after).then_some((key, before, after))
}
