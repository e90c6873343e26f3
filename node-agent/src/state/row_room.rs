//! Room in the agent's memory for rows that come by: how many there are, and of how many distributions, the target says.

use ckb_probe_crds::Figures;

use super::{ROW_BYTES, Subscription, bytes};
use crate::kernel::memory::{self, MemoryBudget};

/// What a row, or a part of one, takes besides its distributions: names, sums, maxima, and where they stand.
const OF_A_ROW: u64 = 1 << 10;

/// What the rows of a group have taken, of what was taken in advance and then of what is left.
#[derive(Clone, Copy, Debug)]
pub struct RowRoom {
    account: &'static MemoryBudget,
    taken: u64,
    in_advance: u64,
}

impl Default for RowRoom {
    fn default() -> Self {
        Self {
            account: memory::budget(),
            taken: 0,
            in_advance: 0,
        }
    }
}

impl RowRoom {
    /// Of a group for which room was taken in advance as [`bytes`] says. Where its one row is known, that is all it takes.
    pub fn of(subscription: &Subscription) -> Self {
        let in_advance = match subscription.row {
            Some(_) => u64::MAX,
            None => bytes([subscription]),
        };
        Self {
            in_advance,
            ..Self::default()
        }
    }

    /// Takes room for a row, or a part of one, with such figures; false where there is none.
    pub fn take(&mut self, figures: &Figures) -> bool {
        let distributions = figures.distributions.len() as u64;
        let taken = self.taken + OF_A_ROW + distributions * ROW_BYTES;
        let more = taken.saturating_sub(self.in_advance) - self.beyond();
        let fits = more == 0 || self.account.take_books(more);
        if fits {
            self.taken = taken;
        }
        fits
    }

    /// What it has taken beyond what was taken in advance.
    pub fn beyond(&self) -> u64 {
        self.taken.saturating_sub(self.in_advance)
    }

    /// The same, on another account.
    #[cfg(test)]
    pub fn on(self, account: &'static MemoryBudget) -> Self {
        Self { account, ..self }
    }
}
