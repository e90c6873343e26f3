//! A slice that is open, and how the target fares meanwhile.

use std::time::Duration;

use super::observer_effect::Use;
use crate::{mechanism::GroupIds, observe::CpuTime};

/// A slice that is open.
pub struct Slice {
    /// The groups that are attached in the slice.
    pub groups: GroupIds,
    /// Since when its time is not booked yet; at first, when it was opened.
    pub opened: Duration,
    /// How long it took to attach.
    pub attaching: Duration,
    /// When it was opened.
    pub since: Moment,
    /// What had been counted by then.
    pub hits: Vec<u64>,
    /// How the target fared between the last slice and this one.
    pub apart: Use,
}

/// A time, and what the target had used by then.
#[derive(Clone, Copy)]
pub struct Moment {
    /// Of the driver's clock.
    pub time: Duration,
    /// User and system.
    pub cpu: CpuTime,
}

impl Slice {
    /// How long it was open since this was asked last.
    pub fn book(&mut self, now: Duration) -> Duration {
        let open = now.saturating_sub(self.opened);
        self.opened = now;
        open
    }
}

impl Moment {
    /// How the target fared since an earlier one.
    pub fn since(&self, earlier: &Self) -> Use {
        Use {
            time: self.time.saturating_sub(earlier.time),
            cpu: self.cpu.saturating_sub(earlier.cpu),
        }
    }
}
