//! The mechanisms at work on a process, as one: groups go to those that have them.

use std::{sync::mpsc::Receiver, time::Duration};

use super::Reaper;
use crate::{
    kernel::{AttachError, Links, ReadError},
    mechanism::{Event, GroupId, GroupIds, Mechanism, Reading, SharedTrap, profile::Finished},
};

/// A mechanism, and which groups are its.
pub struct Running {
    /// The mechanism.
    pub mechanism: Box<dyn Mechanism>,
    /// Numbered from this one on, as many as it has costs.
    pub first: GroupId,
}

impl Running {
    /// The groups of the mechanism.
    pub fn loads(&self) -> GroupIds {
        let groups = 0..self.mechanism.costs().len();
        groups.map(|index| self.first.offset(index)).collect()
    }
}

/// See [`Mechanism::node_share`]: of all of them together, if any has one.
pub fn node_share(all: &[Running]) -> Option<f64> {
    let shares = all.iter().filter_map(|one| one.mechanism.node_share());
    shares.reduce(|all, more| all + more)
}

/// All that measure a process. Dropping them detaches.
pub struct Mechanisms(Vec<Running>);

/// Mechanisms that began.
pub struct Started {
    /// The mechanisms that began.
    pub mechanisms: Mechanisms,
    /// What one hit of each group costs, by its number; None for what was refused, or is not there.
    pub costs: Vec<Option<Duration>>,
    /// The groups that the kernel refused, and why.
    pub refused: Vec<(GroupIds, AttachError)>,
}

impl Mechanisms {
    /// Attaches all that they have to attach, but for what is left for later. What the kernel refuses is left out.
    pub fn start(all: Vec<Running>, later: &GroupIds) -> Started {
        let mut refused = Vec::new();
        let mut costs: Vec<Option<Duration>> = Vec::new();
        let mut running = Vec::new();
        for mut one in all {
            let groups = one.loads();
            costs.resize(one.first.index(), None);
            match one.mechanism.attach(&(&groups - later)) {
                Ok(_) => {
                    costs.extend_from_slice(one.mechanism.costs());
                    running.push(one);
                }
                Err(error) => {
                    costs.resize(one.first.index() + groups.len(), None);
                    refused.push((groups, error));
                }
            }
        }
        Started {
            mechanisms: Self(running),
            costs,
            refused,
        }
    }

    /// Whether none is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the kernel waits after each site that some of them detaches.
    pub fn detach_one_by_one(&self) -> bool {
        let mut all = self.0.iter();
        all.any(|one| one.mechanism.detaches_one_by_one())
    }

    /// See [`Mechanism::stop`].
    pub fn stop(&mut self) -> Result<(), ReadError> {
        let mut all = self.0.iter_mut();
        all.try_for_each(|one| one.mechanism.stop())
    }

    /// See [`Mechanism::end`].
    pub fn end(&mut self, reaper: &Reaper) {
        for one in &mut self.0 {
            reaper.take(one.mechanism.end());
        }
    }

    /// Attaches `always` in place of what was so `before`, where that is not the same. The links of that are handed back, also
    /// where it fails half-way.
    pub fn attach(
        &mut self,
        always: &GroupIds,
        before: &GroupIds,
        links: &mut Vec<Links>,
    ) -> Result<(), AttachError> {
        for one in &mut self.0 {
            let own = one.loads();
            let mut changes = always.symmetric_difference(before);
            if changes.any(|group| own.contains(group)) {
                links.extend(one.mechanism.attach(always)?);
            }
        }
        Ok(())
    }

    /// Begins a slice, of those that have any of these groups.
    pub fn open_slice(&mut self, groups: &GroupIds) -> Result<(), AttachError> {
        for one in &mut self.0 {
            if !one.loads().is_disjoint(groups) {
                one.mechanism.open_slice(groups)?;
            }
        }
        Ok(())
    }

    /// Ends a slice of these groups. Its links are handed back, also where it fails half-way.
    pub fn close_slice(
        &mut self,
        groups: &GroupIds,
        links: &mut Vec<Links>,
    ) -> Result<(), ReadError> {
        for one in &mut self.0 {
            if !one.loads().is_disjoint(groups) {
                links.extend(one.mechanism.close_slice()?);
            }
        }
        Ok(())
    }

    /// The hits of `groups` groups.
    pub fn hits(&self, groups: usize) -> Result<Vec<u64>, ReadError> {
        let mut hits = vec![0; groups];
        for one in &self.0 {
            let first = one.first.index();
            for (to, from) in hits[first..].iter_mut().zip(one.mechanism.hits()?) {
                *to = from;
            }
        }
        Ok(hits)
    }

    /// See [`Mechanism::beside`].
    pub fn beside(&self) -> Vec<SharedTrap> {
        let all = self.0.iter();
        all.flat_map(|one| one.mechanism.beside()).collect()
    }

    /// See [`Mechanism::fixed_cost`]: each by the first group of its mechanism.
    pub fn fixed_costs(&self) -> Result<Vec<(GroupId, Duration)>, ReadError> {
        let all = self.0.iter();
        all.map(|one| Ok((one.first, one.mechanism.fixed_cost()?)))
            .collect()
    }

    /// See [`node_share`].
    pub fn node_share(&self) -> Option<f64> {
        node_share(&self.0)
    }

    /// What was counted.
    pub fn read(&mut self) -> Result<Reading, ReadError> {
        let mut reading = Reading::default();
        for one in &mut self.0 {
            reading.extend(one.mechanism.read()?);
        }
        Ok(reading)
    }

    /// See [`Mechanism::profiles`]: each with its group.
    pub fn profiles(&mut self) -> Vec<(GroupId, Receiver<Finished>)> {
        let all = self.0.iter_mut();
        all.filter_map(|one| one.mechanism.profiles()).collect()
    }

    /// Takes the events that wait.
    pub fn events(&mut self) -> Vec<Event> {
        let all = self.0.iter_mut();
        all.flat_map(|one| one.mechanism.events()).collect()
    }
}
