//! Room for stacks on the agent's account: how many there are, and how deep, the target says.

use crate::kernel::memory::{self, Reservation};

/// What a stack takes besides its frames: a key in a table that doubles as it grows, two shared lists, and a sample once it is told.
const OF_A_STACK: u64 = 384;

/// What a frame takes: its number or address, and a call by name once it is told.
const OF_A_FRAME: u64 = 64;

/// Room is taken by so much.
const STEP: u64 = 256 << 10;

/// What is taken, beyond what was taken in advance.
#[derive(Debug)]
pub(super) struct StackRoom {
    reservation: Reservation,
    taken: u64,
    in_advance: u64,
}

impl StackRoom {
    /// On the account of this process, where so many bytes were taken for it before.
    pub(super) fn with(in_advance: u64) -> Self {
        Self::of(memory::budget().empty(), in_advance)
    }

    fn of(reservation: Reservation, in_advance: u64) -> Self {
        Self {
            reservation,
            taken: 0,
            in_advance,
        }
    }

    /// Takes room for a stack of so many frames; false where there is none.
    pub(super) fn take(&mut self, frames: usize) -> bool {
        let taken = self.taken + bytes(frames);
        let needed = taken.saturating_sub(self.in_advance).next_multiple_of(STEP);
        let fits = needed <= self.reservation.bytes() || self.reservation.set(needed);
        if fits {
            self.taken = taken;
        }
        fits
    }

    /// Has room for other stacks where one of so many frames was.
    pub(super) fn give_back(&mut self, frames: usize) {
        self.taken = self.taken.saturating_sub(bytes(frames));
    }
}

fn bytes(frames: usize) -> u64 {
    OF_A_STACK + frames as u64 * OF_A_FRAME
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernel::memory::MemoryBudget;

    /// Room for so many bytes and no more.
    pub(in super::super) fn of_bytes(bytes: u64) -> StackRoom {
        let account: &'static MemoryBudget = Box::leak(Box::default());
        // Half of what there is beside what the agent takes for itself is one target's.
        account.limit((48 << 20) + 2 * bytes);
        StackRoom::of(account.empty(), 0)
    }

    #[test]
    fn there_is_room_for_so_many_stacks_and_for_others_once_they_are_gone() {
        let mut room = of_bytes(4 * STEP);
        let stacks = std::iter::from_fn(|| room.take(100).then_some(())).count() as u64;
        assert_eq!(stacks, 4 * STEP / (384 + 6400));
        assert!(!room.take(100));
        room.give_back(100);
        assert!(room.take(100));
        // What was taken in advance costs nothing.
        let mut ahead = StackRoom {
            in_advance: 1 << 20,
            ..of_bytes(0)
        };
        let stacks = std::iter::from_fn(|| ahead.take(100).then_some(())).count() as u64;
        assert_eq!(stacks, (1 << 20) / (384 + 6400));
    }
}
