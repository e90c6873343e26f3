//! A slice that is attached.

use std::time::Duration;

use super::Total;
use crate::mechanism::GroupIds;

/// A slice that is attached.
pub struct Slice {
    /// The groups that are attached in the slice.
    pub groups: GroupIds,
    /// Since when it has been attached, and its time is not booked yet.
    pub opened: Duration,
    /// How long it took to attach.
    pub attaching: Duration,
    /// Since when what is counted counts.
    pub counting: Option<Duration>,
    /// What probing had cost by then.
    pub before: Total,
}

impl Slice {
    /// How long it was attached since this was asked last.
    pub fn book(&mut self, now: Duration) -> Duration {
        let open = now.saturating_sub(self.opened);
        self.opened = now;
        open
    }
}
