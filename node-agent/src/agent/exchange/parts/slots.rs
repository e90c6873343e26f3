//! The names that a node's parts have, in turn. A name is free again when the operator has taken the part of that name away: an
//! agent cannot ask, it can only try.

use std::time::Duration;

use ckb_probe_crds::PART_SLOTS;
use tokio::time::Instant;

/// The operator drops a part that has waited for ten minutes. One that is there for longer tells that no operator is, or that it
/// lacks the right to delete: until it is gone, nothing more is written.
pub const UNREAD: Duration = Duration::from_secs(11 * 60);

/// What this agent knows of its slots.
#[derive(Debug)]
pub struct Slots {
    /// When a part was written to each, or found there first.
    since: [Option<Instant>; PART_SLOTS as usize],
    next: u8,
}

impl Slots {
    /// Of an agent that was restarted the last ones may still be there: those of another turn are more likely free.
    pub fn from(first: u8) -> Self {
        Self {
            since: [None; PART_SLOTS as usize],
            next: first % PART_SLOTS,
        }
    }

    /// The slot to try now.
    pub fn choose(&self, now: Instant) -> u8 {
        self.unread(now).unwrap_or(self.next)
    }

    /// A part was written to this slot.
    pub fn written(&mut self, slot: u8, now: Instant) {
        self.note(slot, Some(now));
        self.next = (slot + 1) % PART_SLOTS;
    }

    /// There is a part in this slot. Returns whether it has been there for so long that nobody takes parts away.
    pub fn taken(&mut self, slot: u8, now: Instant) -> bool {
        let since = self.since.get(usize::from(slot)).copied().flatten();
        self.note(slot, since.or(Some(now)));
        self.next = (slot + 1) % PART_SLOTS;
        self.unread(now).is_some()
    }

    /// The slot whose part is the oldest, if nobody has taken it away in time.
    fn unread(&self, now: Instant) -> Option<u8> {
        let known = (0..PART_SLOTS).zip(self.since);
        let known = known.filter_map(|(slot, since)| Some((since?, slot)));
        let (since, slot) = known.min()?;
        (now.duration_since(since) >= UNREAD).then_some(slot)
    }

    fn note(&mut self, slot: u8, since: Option<Instant>) {
        if let Some(known) = self.since.get_mut(usize::from(slot)) {
            *known = since;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_tried_in_turn_and_those_of_before_are_passed_by() {
        let now = Instant::now();
        let mut slots = Slots::from(14 + PART_SLOTS);
        let mut tried = Vec::new();
        for _ in 0..4 {
            let slot = slots.choose(now);
            tried.push(slot);
            match slot {
                15 => assert!(!slots.taken(slot, now)),
                _ => slots.written(slot, now),
            }
        }
        assert_eq!(tried, [14, 15, 0, 1]);
    }

    #[test]
    fn while_nobody_takes_parts_away_the_oldest_is_tried_and_nothing_else_is_written() {
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let mut slots = Slots::from(3);
        for at in 0..3 {
            let now = start + second * at;
            let slot = slots.choose(now);
            slots.written(slot, now);
        }
        let later = start + UNREAD - second;
        assert_eq!(slots.choose(later), 6, "it may just be slow");
        assert_eq!(slots.choose(start + UNREAD), 3);
        for hour in 1..10 {
            let now = start + UNREAD + second * 3600 * hour;
            assert_eq!(slots.choose(now), 3);
            assert!(slots.taken(3, now));
        }
        // Somebody has taken all away: the others are tried first, lest they are as old.
        let now = start + second * 90_000;
        let mut written = Vec::new();
        for _ in 0..5 {
            let slot = slots.choose(now);
            slots.written(slot, now);
            written.push(slot);
        }
        assert_eq!(written, [3, 4, 5, 6, 7]);
    }
}
