//! Cells under way: which groups they are of, and that they begin and end.

use std::time::Duration;

use ckb_probe_crds::SliceShape;

use super::{Due, planned};
use crate::{
    driver::measurement::{Measurement, MeasurementError},
    governor::{self, Attachment, Cycle, Turn},
    mechanism::GroupIds,
    state::Fact,
};

/// Two cells in a row, which are of one length: of groups that take turns, one half is attached in the slice of the first, and the
/// other half in that of the second, and both are the cell of either.
pub(super) struct Pair {
    /// The groups that are attached in both slices.
    every: GroupIds,
    /// Those that are attached in one of them.
    turns: [GroupIds; 2],
}

impl Pair {
    pub(super) fn of(plan: &governor::Plan, costs: &[Option<Duration>]) -> Self {
        let of = |wanted: &[Turn]| {
            planned(plan, costs, |attachment, turn| {
                attachment == Attachment::Sliced && wanted.contains(&turn)
            })
        };
        Self {
            every: of(&[Turn::Every]),
            turns: [of(&[Turn::Even]), of(&[Turn::Odd])],
        }
    }

    /// Those that are attached in the slice of this cell.
    pub(super) fn of_slice(&self, cycle: &Cycle) -> GroupIds {
        let turn = &self.turns[usize::from(cycle.takes(Turn::Odd))];
        self.every.union(turn).copied().collect()
    }

    fn by_turns(&self) -> GroupIds {
        self.turns.iter().flatten().copied().collect()
    }
}

impl Measurement {
    /// What is not always attached any more joins the cell under way: to cut that off for what its slice may have seen would bias it.
    pub(super) fn join_cell(&mut self, groups: GroupIds, at: Duration) {
        let time = self.meter.time();
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        if let (Some(pair), Some(slice)) = (&mut sampler.cells, sampler.cycle.slice()) {
            pair.every.extend(&groups);
            let slice = slice.shape();
            self.note_cell_of(groups, slice, at, time);
        }
    }

    /// Begins with what there is to slice.
    pub(super) fn begin_cells(&mut self, at: Duration) {
        let time = self.meter.time();
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        let slices = sampler.plan.as_ref().and_then(|plan| plan.slices);
        let lead = sampler.lead();
        sampler.cycle.restart(slices, lead, time, fastrand::f64);
        self.note_cell(at, time);
    }

    /// A cell is over: what comes is as the plan of the moment says.
    pub(super) fn end_cell(&mut self, now: &impl Fn() -> Duration) -> Result<(), MeasurementError> {
        let at = now();
        let time = self.meter.time();
        let Some(sampler) = &mut self.sampler else {
            return Ok(());
        };
        let lead = sampler.lead();
        // Its slice may have lasted longer than it, and the next cell begins where this one ended.
        let over = sampler.cycle.bounds().map_or(time, |cell| cell.end);
        let (Some(plan), Some(pair)) = (&sampler.plan, &mut sampler.cells) else {
            sampler.cycle = Cycle::default();
            return Ok(());
        };
        if !sampler.cycle.is_second() {
            let every = pair.every.clone();
            sampler
                .cycle
                .next_cell(plan.slices, lead, time, fastrand::f64);
            let slice = sampler.cycle.slice().map(|slice| slice.shape());
            let groups = every.clone();
            self.note(at, Fact::CellEnded { groups, time: over });
            if let Some(slice) = slice {
                self.note_cell_of(every, slice, at, over);
            }
            return Ok(());
        }
        let always = planned(plan, &self.costs, |attachment, _| {
            attachment == Attachment::Always
        });
        if always == self.attached.always {
            sampler
                .cycle
                .next_cell(plan.slices, lead, time, fastrand::f64);
        } else {
            // It begins anew with what is left to be sliced.
            sampler.cycle = Cycle::default();
            self.due = Some(Due::Always(always));
        }
        self.note_end_of_cells(at, over);
        self.note_cell(at, over);
        Ok(())
    }

    /// Says that a pair of cells begins, if one does.
    fn note_cell(&mut self, at: Duration, time: Duration) {
        let Some(sampler) = &mut self.sampler else {
            return;
        };
        let (Some(plan), Some(slice)) = (&sampler.plan, sampler.cycle.slice()) else {
            return;
        };
        let pair = Pair::of(plan, &self.costs);
        let (every, by_turns) = (pair.every.clone(), pair.by_turns());
        sampler.cells = Some(pair);
        for (groups, slice) in [(every, slice.shape()), (by_turns, slice.shape_of_two())] {
            self.note_cell_of(groups, slice, at, time);
        }
    }

    /// Says that a cell of these groups begins.
    fn note_cell_of(&mut self, groups: GroupIds, slice: SliceShape, at: Duration, time: Duration) {
        let began = Fact::CellBegan {
            groups,
            slice,
            time,
        };
        self.note(at, began);
    }

    /// Says that the cells under way are over, if any are.
    pub(in crate::driver::measurement) fn note_end_of_cells(
        &mut self,
        at: Duration,
        time: Duration,
    ) {
        let cells = self.sampler.as_mut().and_then(|one| one.cells.take());
        if let Some(pair) = cells {
            let groups = pair.every.union(&pair.by_turns()).copied().collect();
            self.note(at, Fact::CellEnded { groups, time });
        }
    }
}
