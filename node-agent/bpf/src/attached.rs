//! Which operations are attached, and by which links.
//!
//! What is attached for good is so in bundles, each with links of its own: a bundle that stays whole is left alone, whatever becomes
//! of others. Where a part of one is to go, the rest is attached anew before the old links go, as the other one of two groups.
//! A call that is in flight then ends under the old links if it ends soon, and is counted without a time if it does not:
//! its end may not be seen.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use ckb_probe_common::{Gate, Group};

use super::{
    AttachError, Links, ReadError, Slots,
    links::{Presence, wait_while},
    maps::Maps,
};

/// How long calls in flight are waited for whose links are about to go. Meanwhile the old links cost as well.
const LINGER: Duration = Duration::from_millis(20);

/// Between two looks whether they have ended.
const LOOK: Duration = Duration::from_millis(1);

/// Where calls are to be seen: functions of a process, or of the kernel.
pub(super) trait Attachable: Send {
    /// Attaches to those of these slots; None where there are none.
    fn link(&self, slots: &Slots, group: Group) -> Result<Option<Links>, AttachError>;

    /// What of these slots has links in common.
    fn bundles(&self, slots: &Slots) -> Vec<Slots>;

    /// Calls that the kernel did not run the programs for.
    fn missed(&self) -> u64 {
        0
    }

    /// Whether the programs remember what is in flight, which the kernel does not for them.
    fn remembers(&self) -> bool {
        true
    }

    /// Whether a call of this slot that began under links that are gone ends under those that have taken their place.
    fn outlives_its_links(&self, slot: u8) -> bool;
}

/// What is attached for good, by links in common.
struct Bundle {
    slots: Slots,
    group: Group,
    links: Links,
}

/// Links on their way out.
struct Retired {
    slots: Slots,
    group: Group,
    presence: Presence,
}

/// What is attached.
pub(super) struct Attached {
    always: Vec<Bundle>,
    sliced: Option<Links>,
    /// The slots of the slice that is open.
    slice: Slots,
    /// As which group each slot was attached for good the last time.
    groups: BTreeMap<u8, Group>,
    retired: Vec<Retired>,
    /// Of slices that are over: what is on its way out.
    closed: Vec<Presence>,
    places: Box<dyn Attachable>,
}

impl Attached {
    pub(super) fn to_nothing(places: Box<dyn Attachable>) -> Self {
        Self {
            always: Vec::new(),
            sliced: None,
            slice: Slots::new(),
            groups: BTreeMap::new(),
            retired: Vec::new(),
            closed: Vec::new(),
            places,
        }
    }

    /// See [`Attachable::remembers`].
    pub(super) fn remembers(&self) -> bool {
        self.places.remembers()
    }

    /// See [`Attachable::missed`].
    pub(super) fn missed(&self) -> u64 {
        self.places.missed()
    }

    /// See [`super::Probes::attach`].
    pub(super) fn attach(
        &mut self,
        slots: &Slots,
        maps: &mut Maps,
    ) -> Result<Option<Links>, AttachError> {
        let whole = |bundle: &Bundle| bundle.slots.is_subset(slots);
        let kept = self.always.iter().filter(|bundle| whole(bundle));
        let kept: Slots = kept.flat_map(|bundle| &bundle.slots).copied().collect();
        let new = self.link(&(slots - &kept))?;
        let old: Vec<(u8, Group)> = self
            .always
            .iter()
            .filter(|bundle| !whole(bundle))
            .flat_map(|bundle| bundle.slots.iter().map(|slot| (*slot, bundle.group)))
            .collect();
        maps.order(|control| {
            for (slot, group) in &old {
                change(&mut control.gates, *slot, |gate| gate.leaving(*group));
            }
            for bundle in &new {
                for slot in &bundle.slots {
                    change(&mut control.gates, *slot, |gate| gate.opened(bundle.group));
                }
            }
        })?;
        maps.watch_causes(slots)?;
        let (whole, broken) = std::mem::take(&mut self.always)
            .into_iter()
            .partition(whole);
        self.always = whole;
        self.groups.extend(
            new.iter()
                .flat_map(|bundle| bundle.slots.iter().map(|slot| (*slot, bundle.group))),
        );
        self.always.extend(new);
        self.let_go(&old, slots, maps)?;
        Ok(self.retire(broken))
    }

    /// Attaches these slots anew, in the order of their bundles. Of each as the other group than before.
    fn link(&mut self, slots: &Slots) -> Result<Vec<Bundle>, AttachError> {
        let mut by_group = [Slots::new(), Slots::new()];
        for slot in slots {
            let before = self.groups.get(slot).copied().unwrap_or(Group::Second);
            by_group[usize::from(before.other() == Group::Second)].insert(*slot);
        }
        let mut new = Vec::new();
        for (group, slots) in [Group::First, Group::Second].into_iter().zip(by_group) {
            self.await_gone(group, &slots);
            for slots in self.places.bundles(&slots) {
                let links = self.places.link(&slots, group)?;
                new.extend(links.map(|links| Bundle {
                    slots,
                    group,
                    links,
                }));
            }
        }
        Ok(new)
    }

    /// Two links of one group count a call twice: one that sees it to its end by itself, and one of a pair, for which a second entry
    /// at one place says that the first was unwound.
    fn await_gone(&mut self, group: Group, slots: &Slots) {
        let in_the_way = |links: &Retired| links.group == group && !links.slots.is_disjoint(slots);
        wait_while(|| {
            self.retired.retain(|links| links.presence.lasts());
            self.retired.iter().any(in_the_way)
        });
    }

    /// Waits for calls in flight that began under old links, and then ceases to record them.
    fn let_go(&self, old: &[(u8, Group)], slots: &Slots, maps: &mut Maps) -> Result<(), ReadError> {
        let stays = |slot: &u8| slots.contains(slot) && self.places.outlives_its_links(*slot);
        let ending = old.iter().filter(|(slot, _)| !stays(slot));
        let ending: Vec<(u8, Group)> = ending.copied().collect();
        let begun = Instant::now();
        while begun.elapsed() < LINGER && maps.any_in_flight(&ending)? {
            thread::sleep(LOOK);
        }
        if ending.is_empty() {
            return Ok(());
        }
        maps.order(|control| {
            for (slot, group) in ending {
                change(&mut control.gates, slot, |gate| {
                    match slots.contains(&slot) {
                        true => gate.closed(group),
                        false => gate.closed(Group::First).closed(Group::Second).renewed(),
                    }
                });
            }
        })
    }

    /// Hands back the links of these.
    fn retire(&mut self, bundles: Vec<Bundle>) -> Option<Links> {
        let links = bundles.into_iter().map(|bundle| {
            self.retired.push(Retired {
                slots: bundle.slots,
                group: bundle.group,
                presence: bundle.links.presence(),
            });
            bundle.links
        });
        Links::together(links)
    }

    /// See [`super::Probes::open_slice`].
    pub(super) fn open_slice(&mut self, slots: &Slots, maps: &mut Maps) -> Result<(), AttachError> {
        maps.forget_unseen()?;
        maps.order(|control| control.slice = control.slice.wrapping_add(1).max(1))?;
        self.sliced = self.places.link(slots, Group::Sliced)?;
        self.slice.clone_from(slots);
        // A call counts where it begins: what began before all were attached is in no slice.
        maps.order(|control| {
            for slot in slots {
                change(&mut control.gates, *slot, |gate| gate.opened(Group::Sliced));
            }
        })?;
        Ok(())
    }

    /// See [`super::Probes::close_slice`].
    pub(super) fn close_slice(&mut self, maps: &mut Maps) -> Result<Option<Links>, ReadError> {
        let slots = std::mem::take(&mut self.slice);
        maps.order(|control| {
            for slot in slots {
                change(&mut control.gates, slot, |gate| gate.closed(Group::Sliced));
            }
        })?;
        let links = self.sliced.take();
        self.closed.retain(Presence::lasts);
        self.closed.extend(links.as_ref().map(Links::presence));
        Ok(links)
    }

    /// See [`super::Probes::detach`].
    pub(super) fn detach(&mut self) {
        self.always.clear();
        self.sliced = None;
        wait_while(|| {
            let mut retired = self.retired.iter().map(|links| &links.presence);
            retired.any(Presence::lasts) || self.closed.iter().any(Presence::lasts)
        });
    }
}

fn change(gates: &mut [Gate], slot: u8, to: impl FnOnce(Gate) -> Gate) {
    if let Some(gate) = gates.get_mut(usize::from(slot)) {
        *gate = to(*gate);
    }
}

#[cfg(test)]
mod tests;
