//! What page faults bring in: a page that was not there, or a copy of one that was; and what else became of the process's memory
//! meanwhile.

use std::time::{Duration, Instant};

use crate::{
    kernel::stacks::Head,
    observe::{Mappings, ProcessId, Resident},
};

/// What a process has mapped is read again so often, and sooner where something was written that is in none of it.
const READ_AGAIN: Duration = Duration::from_secs(1);
const UNKNOWN_AGAIN: Duration = Duration::from_millis(100);

/// What was touched for the first time, and what became of the memory that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Pages that were touched for the first time, or copied, in bytes.
    pub bytes: u64,
    /// What was there as it began.
    pub before: Option<Resident>,
    /// And as it ended; None where the process has ended.
    pub after: Option<Resident>,
}

impl Touched {
    /// By how many bytes all memory and that of no file has grown; less than 0 where it has shrunk.
    pub fn growth(&self) -> Option<(i64, i64)> {
        let (before, after) = self.before.zip(self.after)?;
        let growth = |before: u64, after: u64| after.cast_signed() - before.cast_signed();
        Some((
            growth(before.all, after.all),
            growth(before.anonymous, after.anonymous),
        ))
    }

    /// So many bytes came in at least that nobody touched for the first time.
    pub fn untouched(&self) -> u64 {
        let grown = self
            .growth()
            .map_or(0, |(all, _)| all.max(0).cast_unsigned());
        grown.saturating_sub(self.bytes)
    }
}

/// Pages that were there and were written to for the first time since something has made them not to be written: the process's own
/// are copied, and of those that it shares the kernel only notes that they were written.
#[derive(Default)]
pub(super) struct Writes {
    mappings: Option<(Mappings, Instant)>,
    /// How many of those that were sampled were there in all, and how many are copies.
    all: u64,
    copies: u64,
}

impl Writes {
    /// Whether it is a copy.
    pub(super) fn copies(&mut self, head: &Head, process: ProcessId) -> bool {
        let known = |mappings: &Option<(Mappings, Instant)>| {
            let (mappings, read) = mappings.as_ref()?;
            Some((mappings.is_private(head.written), read.elapsed()))
        };
        let is_known = match known(&self.mappings) {
            None => false,
            Some((Some(_), age)) => age < READ_AGAIN,
            Some((None, age)) => age < UNKNOWN_AGAIN,
        };
        if !is_known && let Ok(mappings) = Mappings::of(process) {
            self.mappings = Some((mappings, Instant::now()));
        }
        let is_copy = known(&self.mappings).is_some_and(|(private, _)| private == Some(true));
        self.count(head.stands_for, is_copy);
        is_copy
    }

    fn count(&mut self, stands_for: u32, is_copy: bool) {
        self.all += u64::from(stands_for);
        self.copies += if is_copy { stands_for.into() } else { 0 };
    }

    /// How many of so many are copies, by those that were sampled.
    pub(super) fn copied(&self, written: u64) -> f64 {
        written as f64 * self.copies as f64 / self.all.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resident(all: u64, anonymous: u64) -> Option<Resident> {
        Some(Resident { all, anonymous })
    }

    #[test]
    fn what_came_in_untouched_is_what_grew_and_was_not_touched() {
        let touched = Touched {
            bytes: 10,
            before: resident(100, 50),
            after: resident(180, 120),
        };
        assert_eq!(touched.growth(), Some((80, 70)));
        assert_eq!(touched.untouched(), 70);
        // What was given back meanwhile may hide some.
        let less = Touched {
            after: resident(60, 40),
            ..touched
        };
        assert_eq!((less.growth(), less.untouched()), (Some((-40, -10)), 0));
        let ended = Touched {
            after: None,
            ..touched
        };
        assert_eq!((ended.growth(), ended.untouched()), (None, 0));
    }

    #[test]
    fn of_what_was_written_as_much_is_copied_as_of_what_was_sampled_of_it() {
        let mut writes = Writes::default();
        assert_eq!(writes.copied(5), 0.0, "of which nothing was seen");
        writes.count(16, true);
        writes.count(48, false);
        assert_eq!(writes.copied(1_000), 250.0);
    }
}
