//! What is read of hits beyond how many there were: by which values of their arguments.

use ckb_probe_common::{
    CallKey, CallStart,
    hits::{Hit, HitLosses, Payload, Traceparent, VALUES, Value},
};

use super::super::{
    AttachError, ReadError, Site,
    object::Object,
    plan::CallSizes,
    typed::{Counts, PerCpu, Ring, Table, Values},
};

use super::SeenPayload;

/// The maps of hits, where an object has any.
pub(in super::super) struct Hits {
    seen: Values<Value>,
    counts: Values<u64>,
    losses: PerCpu<HitLosses>,
    spans: Table<CallKey, CallStart>,
    /// What some of them began with, by the same keys.
    parents: Table<CallKey, Traceparent>,
    /// What was emitted, where that is asked.
    payloads: Option<Ring<Payload>>,
    /// The slots whose hits are told apart by values, in the order in which those have places.
    told_apart: Vec<u8>,
    first_slot: u32,
}

impl Counts for HitLosses {}

impl Hits {
    /// Takes the maps over, and tells the programs what is looked at. None where there is nothing to look at.
    pub(in super::super) fn take(
        object: &mut Object,
        sizes: CallSizes,
        sites: &[Site],
    ) -> Result<Option<Self>, AttachError> {
        if sites.iter().all(|site| site.hit.is_none()) {
            return Ok(None);
        }
        let told_apart = told_apart(sites);
        let first_slot = sizes.slots.max(1) + sizes.families;
        let mut places = Values::take(object, "HITS")?;
        for (place, site) in (0..).zip(sites) {
            let Some(looked_at) = site.hit else {
                continue;
            };
            let rank = told_apart.iter().position(|slot| *slot == site.slot);
            let rank = rank.unwrap_or_default() as u32;
            let hit = Hit {
                by: looked_at.by.unwrap_or_default(),
                first_slot: first_slot + rank * VALUES,
                first_value: rank * VALUES,
                key: looked_at.key.unwrap_or_default(),
                parent: looked_at.parent.unwrap_or_default(),
                payload: looked_at.payload.unwrap_or_default(),
                role: looked_at.role as u32,
                padding: 0,
            };
            places.set(place, hit)?;
        }
        Ok(Some(Self {
            seen: Values::take(object, "VALUES_SEEN")?,
            counts: Values::take(object, "VALUE_COUNTS")?,
            losses: PerCpu::take(object, "HIT_LOSSES")?,
            spans: Table::take(object, "SPANS")?,
            parents: Table::take(object, "PARENTS")?,
            payloads: match sizes.payloads {
                true => Some(Ring::take(object, "PAYLOADS")?),
                false => None,
            },
            told_apart,
            first_slot,
        }))
    }

    /// The values that were given a slot of their own, by that slot.
    pub(super) fn values(&self) -> Result<Vec<(u32, Value)>, ReadError> {
        let mut values = Vec::new();
        for (rank, slot) in (0..).zip(&self.told_apart) {
            let count = self.counts.get(u32::from(*slot))?.min(u64::from(VALUES)) as u32;
            for place in rank * VALUES..rank * VALUES + count {
                values.push((self.first_slot + place, self.seen.get(place)?));
            }
        }
        Ok(values)
    }

    /// What value a slot is of.
    pub(super) fn value(&self, slot: u32) -> Option<Value> {
        let place = slot.checked_sub(self.first_slot)?;
        self.seen.get(place).ok()
    }

    /// How many values of an operation were given none.
    pub(super) fn folded(&self, slot: u32) -> Result<u64, ReadError> {
        let count = self.counts.get(slot)?;
        Ok(count.saturating_sub(u64::from(VALUES)))
    }

    /// Forgets of what began whatever is so, and what it began with.
    pub(super) fn forget(
        &mut self,
        is_so: impl Fn(&(CallKey, CallStart)) -> bool,
    ) -> Result<(), ReadError> {
        for (key, _) in self.spans.entries()?.into_iter().filter(is_so) {
            self.parents.remove(key)?;
            self.spans.remove(key)?;
        }
        Ok(())
    }

    /// Takes the texts that wait.
    pub(super) fn payloads(&mut self) -> Vec<SeenPayload> {
        let Some(ring) = &mut self.payloads else {
            return Vec::new();
        };
        let told = std::iter::from_fn(|| ring.next());
        let told = told.map(|(head, mut text)| {
            text.truncate(usize::try_from(head.length).unwrap_or(usize::MAX));
            SeenPayload { head, text }
        });
        told.collect()
    }

    /// What could not be told of an operation's hits.
    pub(super) fn losses(&self, slot: u32) -> Result<HitLosses, ReadError> {
        self.losses.sum(slot)
    }
}

/// The slots whose hits are told apart by the values of an argument.
pub(in super::super) fn told_apart(sites: &[Site]) -> Vec<u8> {
    let by = |site: &&Site| site.hit.is_some_and(|hit| hit.by.is_some());
    let mut slots: Vec<u8> = sites.iter().filter(by).map(|site| site.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}
