//! When a slice begins and ends.

use std::time::Duration;

use super::{Plan, Slices};

/// What to do with the sliced operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Attach them, then tell [`Cycle::opened`].
    Attach,
    /// Detach them, then tell [`Cycle::closed`].
    Detach,
}

/// Cuts time into cells with one slice in each, as the plan of the moment says. The first slice begins at once.
///
/// Of the plans made during a cell the most modest counts: the earliest slice, the shortest. A longer period does not
/// put a slice off: a period that grows because the target does less would outrun time, and nobody would see that it
/// does less.
///
/// Time is passed in, as the time since some fixed moment.
#[derive(Clone, Debug)]
pub struct Cycle {
    cell: Duration,
    random: f64,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The slice of this cell is to come: then at the latest, and for so long at most.
    Before { due: Duration, open: Duration },
    /// Attaching has begun and is not finished.
    Attaching { since: Duration, open: Duration },
    /// It measures, until then at the latest. So far it costs as much as having been attached for `attached`.
    Open {
        attached: Duration,
        opened: Duration,
        until: Duration,
    },
    /// Detaching has begun and is not finished.
    Detaching { attached: Duration, since: Duration },
    /// The first look.
    Looking { since: Duration },
    /// It cost as much as having been attached for so long. The cell ends then, at the latest.
    After { attached: Duration, end: Duration },
}

impl Cycle {
    /// The first cell begins now.
    pub fn new(now: Duration) -> Self {
        Self {
            cell: now,
            random: 0.0,
            stage: Stage::Before {
                due: now,
                open: Duration::MAX,
            },
        }
    }

    /// The first look, with everything attached, began then: it takes the place of the first slice, and
    /// [`Cycle::closed`] ends it.
    pub fn looking(since: Duration) -> Self {
        Self {
            stage: Stage::Looking { since },
            ..Self::new(since)
        }
    }

    /// When [`Cycle::step`] has something to do, if the plan stays.
    pub fn next(&self, plan: &Plan) -> Option<Duration> {
        match (self.stage, plan.slices) {
            (Stage::Before { due, .. }, Some(slices)) => {
                Some(due.min(self.cell + slices.start(self.random)))
            }
            (Stage::Open { opened, until, .. }, Some(slices)) => {
                Some(until.min(opened + slices.open))
            }
            (Stage::After { attached, end }, Some(slices)) => {
                Some(end.min(self.cell + length(slices, attached)))
            }
            (Stage::Before { .. } | Stage::Open { .. }, None) => Some(Duration::ZERO),
            (Stage::After { .. }, None) => None,
            (Stage::Attaching { .. } | Stage::Detaching { .. } | Stage::Looking { .. }, _) => None,
        }
    }

    /// What to do now, if anything. A cell that begins takes `random`, from [0, 1), for the place of its slice.
    pub fn step(&mut self, plan: &Plan, now: Duration, random: f64) -> Option<Switch> {
        if now < self.next(plan)? {
            return None;
        }
        match (self.stage, plan.slices) {
            (Stage::Before { open, .. }, Some(slices)) => {
                self.stage = Stage::Attaching {
                    since: now,
                    open: open.min(slices.open),
                };
                Some(Switch::Attach)
            }
            (
                Stage::Open {
                    attached, opened, ..
                },
                _,
            ) => {
                self.stage = Stage::Detaching {
                    attached: attached + now.saturating_sub(opened),
                    since: now,
                };
                Some(Switch::Detach)
            }
            (Stage::After { .. }, Some(slices)) => {
                self.cell = now;
                self.random = random;
                self.stage = Stage::Before {
                    due: now + slices.start(random),
                    open: slices.open,
                };
                None
            }
            (Stage::Before { .. }, None) => {
                self.stage = Stage::After {
                    attached: Duration::ZERO,
                    end: now,
                };
                None
            }
            _ => None,
        }
    }

    /// The slice measures from now on.
    pub fn opened(&mut self, now: Duration) {
        if let Stage::Attaching { since, open } = self.stage {
            self.stage = Stage::Open {
                attached: edge(since, now),
                opened: now,
                until: now + open,
            };
        }
    }

    /// The slice costs nothing any more. `plan` is made from what it saw: the cell lasts until that plan has paid for
    /// the time that the slice was attached.
    pub fn closed(&mut self, plan: &Plan, now: Duration) {
        let attached = match self.stage {
            Stage::Detaching { attached, since } => attached + edge(since, now),
            Stage::Looking { since } => now.saturating_sub(since),
            _ => return,
        };
        let length = plan.slices.map(|slices| length(slices, attached));
        self.stage = Stage::After {
            attached,
            end: self.cell + length.unwrap_or_default(),
        };
    }
}

/// What attaching or detaching costs, if it takes from `since` to `until`: sites come and go one after another.
fn edge(since: Duration, until: Duration) -> Duration {
    until.saturating_sub(since) / 2
}

/// How long a cell lasts whose slice was attached for so long: longer than planned is paid for.
fn length(slices: Slices, attached: Duration) -> Duration {
    let excess = attached.as_secs_f64() / slices.attached.as_secs_f64();
    slices.period.mul_f64(excess.max(1.0))
}
