//! The books: what was measured of each target, made of facts that the driver notes as they happen. No clock, no I/O, so that
//! any history can be replayed.

pub mod accumulator;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod instance;
pub mod probe;
mod row_room;
pub mod series;
pub mod slow_calls;

use std::time::Duration;

use ckb_probe_crds::{Passed, SliceShape, report::MAX_PARTS};

use crate::mechanism::{Breakdown, GroupIds, Reading, Subscription};

/// What the books take of memory for each distribution of a row, or of a part of one, whose calls are of all sorts of lengths: a total, an interval
/// that runs, the one that ended, what is yet to be entered, and as much again where it is reported. Measured: 19 kB, of calls
/// of all lengths.
const ROW_BYTES: u64 = 24 << 10;

/// As many rows as come by, as a rule.
const USUAL_ROWS: u64 = 32;

/// As many parts as mechanisms tell apart of one process, however many rows have them.
const MOST_PARTS: u64 = 160;

/// About what the books of these groups take of memory, as a rule: what they take beyond that, as rows come by, is taken [as it
/// comes](row_room).
pub fn bytes<'a>(subscriptions: impl IntoIterator<Item = &'a Subscription>) -> u64 {
    let (mut rows, mut parts, mut stacks) = (0, 0, 0);
    for subscription in subscriptions {
        if subscription.reports_stacks {
            stacks = slow_calls::BYTES;
        }
        rows += if subscription.row.is_some() {
            1
        } else {
            USUAL_ROWS
        };
        parts += match subscription.parts {
            Breakdown::All => MAX_PARTS as u64,
            // Of those little is counted.
            Breakdown::None | Breakdown::Some => 0,
        };
    }
    (rows + parts.min(MOST_PARTS)) * ROW_BYTES + stacks
}

/// A fact about the measurement of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// This was counted by then.
    Read(Reading),
    /// These groups are not attached all the time any more. All that was counted up to then was read.
    Paused(GroupIds),
    /// They are, from then on.
    Resumed(GroupIds),
    /// A cell of these groups begins, with a slice to come.
    CellBegan {
        /// The groups that are attached in its slice.
        groups: GroupIds,
        /// As it was drawn.
        slice: SliceShape,
        /// The process's own time.
        time: Duration,
    },
    /// What is counted of them from then on counts; what was counted since their cell began does not.
    SliceBegan {
        /// The groups of the slice.
        groups: GroupIds,
        /// The process's own time.
        time: Duration,
        /// What passed since the slice before, of whichever groups, without the time in which its probes went and those of this one came.
        before: Passed,
    },
    /// It does not any more. All that was counted up to then was read.
    SliceEnded {
        /// The groups of the slice.
        groups: GroupIds,
        /// The process's own time.
        time: Duration,
        /// What probes are believed to have taken since it began, as a part of that time.
        probing: f64,
    },
    /// The cell is over, at its end or before its time: what its slice counted, if there was one, stands for it.
    CellEnded {
        /// The groups of the cell.
        groups: GroupIds,
        /// The process's own time.
        time: Duration,
    },
}

/// A fact, and when it was so, as the time since the agent's start.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedFact {
    /// When it was so.
    pub at: Duration,
    /// What the process had used of its own time by then, since it is measured, as far as anybody asked.
    pub time: Duration,
    /// The fact.
    pub fact: Fact,
}
