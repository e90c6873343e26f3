//! Why a mechanism with one group counts.

use std::ops::{Deref, DerefMut};

use super::super::{GroupId, GroupIds};
use crate::kernel::{AttachError, Links, ReadError};

/// Counting all of the time, and counting for a slice of it, are two reasons: what ends one leaves the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// The group that it is of.
    group: GroupId,
    always: bool,
    slice: bool,
}

impl Gate {
    /// That of a group: closed.
    pub fn of(group: GroupId) -> Self {
        Self {
            group,
            ..Self::default()
        }
    }

    /// The group.
    pub fn group(self) -> GroupId {
        self.group
    }

    /// Whether there is any reason to count.
    pub fn is_open(self) -> bool {
        self.always || self.slice
    }
}

/// A mechanism with one group, which counts or does not.
pub trait OneGroup {
    /// Of which group, and why it counts. Only this trait changes that.
    fn gate(&mut self) -> &mut Gate;

    /// Counts from now on.
    fn open(&mut self) -> Result<(), AttachError>;

    /// Counts no more, and hands back the links where nobody else does.
    fn close(&mut self) -> Result<Option<Links>, ReadError>;

    /// Counts all of the time where its group is among these, and else no longer than its slice.
    fn attach_load(&mut self, groups: &GroupIds) -> Result<Option<Links>, AttachError> {
        let always = groups.contains(&self.gate().group);
        let before = *self.gate();
        if always && !before.is_open() {
            self.open()?;
        }
        self.gate().always = always;
        Ok(self.close_if_no_reason(before)?)
    }

    /// Counts for a slice where its group is among these.
    fn open_load(&mut self, groups: &GroupIds) -> Result<(), AttachError> {
        if groups.contains(&self.gate().group) {
            if !self.gate().is_open() {
                self.open()?;
            }
            self.gate().slice = true;
        }
        Ok(())
    }

    /// Counts no more, unless it does so all of the time.
    fn close_load(&mut self) -> Result<Option<Links>, ReadError> {
        let before = *self.gate();
        self.gate().slice = false;
        self.close_if_no_reason(before)
    }

    /// Closes where the last reason to count is gone.
    fn close_if_no_reason(&mut self, before: Gate) -> Result<Option<Links>, ReadError> {
        match before.is_open() && !self.gate().is_open() {
            true => self.close(),
            false => Ok(None),
        }
    }
}

/// What counts from its opening to its closing, and has nothing else to do at either.
pub trait Switch {
    /// Counts from now on.
    fn open(&mut self) -> Result<(), AttachError>;

    /// Counts no more, and hands back the links where nobody else does.
    fn close(&mut self) -> Result<Option<Links>, ReadError>;
}

/// What counts, with its gate: all that a mechanism of one group need say of how it counts and ceases to.
pub struct Gated<S> {
    counts: S,
    gate: Gate,
}

impl<S> Gated<S> {
    /// Closed.
    pub fn of(group: GroupId, counts: S) -> Self {
        Self {
            counts,
            gate: Gate::of(group),
        }
    }

    /// The group for which it counts.
    pub fn group(&self) -> GroupId {
        self.gate.group()
    }
}

impl<S> Deref for Gated<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.counts
    }
}

impl<S> DerefMut for Gated<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.counts
    }
}

impl<S: Switch> OneGroup for Gated<S> {
    fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    fn open(&mut self) -> Result<(), AttachError> {
        self.counts.open()
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        self.counts.close()
    }
}
