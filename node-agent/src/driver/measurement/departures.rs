//! Links on their way out: the kernel takes its time to remove them, and what they cost meanwhile is booked once they are gone.

use std::time::Duration;

use super::DropHandle;
use crate::mechanism::GroupIds;

/// Links that the kernel is still removing: on some tiers for longer than slices last.
pub struct PendingDetaches {
    leaving: Vec<Detaching>,
    one_by_one: bool,
}

/// What is being removed.
pub struct Detaching {
    /// Of which groups.
    pub groups: GroupIds,
    /// When they began to go.
    pub since: Duration,
    /// Tells when it is gone.
    pub receipt: DropHandle,
    /// How long it took to attach as many.
    pub attaching: Duration,
    /// Whether these are the links of the slice that has just ended.
    pub of_slice: bool,
}

/// What was removed.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone {
    /// Of which groups.
    pub groups: GroupIds,
    /// How long its sites took to go, one after another: on the average, each of them cost for half as long.
    pub lasted: Duration,
    /// What that means for the slice whose links these were.
    pub slice: Option<EndOfSlice>,
}

/// A slice that costs nothing any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfSlice {
    /// When the last of its links was gone.
    pub gone: Duration,
    /// As what time of being attached it cost that its links came and went.
    pub edge: Duration,
}

impl PendingDetaches {
    /// `one_by_one`: whether the kernel waits for each site before it goes on to the next.
    pub fn new(one_by_one: bool) -> Self {
        Self {
            leaving: Vec::new(),
            one_by_one,
        }
    }

    /// Something has begun to go.
    pub fn add(&mut self, leaving: Detaching) {
        self.leaving.push(leaving);
    }

    /// Whether the last slice's links are still there.
    pub fn has_slice(&self) -> bool {
        self.leaving.iter().any(|links| links.of_slice)
    }

    /// Takes what has gone since the last time.
    pub fn gone(&mut self) -> Vec<Gone> {
        let one_by_one = self.one_by_one;
        let mut all = Vec::new();
        self.leaving.retain(|links| match links.gone(one_by_one) {
            Some(gone) => {
                all.push(gone);
                false
            }
            None => true,
        });
        all
    }
}

impl Detaching {
    fn gone(&self, one_by_one: bool) -> Option<Gone> {
        let took = self.receipt.took()?;
        let lasted = if one_by_one {
            took
        } else {
            // As long as they took to come; the rest of it the kernel waits for who is in a program still.
            took.min(self.attaching)
        };
        Some(Gone {
            groups: self.groups.clone(),
            lasted,
            slice: self.of_slice.then(|| EndOfSlice {
                gone: self.since + lasted,
                edge: (self.attaching + lasted) / 2,
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanism::GroupId;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Links that took 6 ms to attach, and are being removed since the first second.
    fn leaving(group: u16, of_slice: bool) -> Detaching {
        Detaching {
            groups: GroupIds::from([GroupId(group)]),
            since: ms(1_000),
            receipt: DropHandle::default(),
            attaching: ms(6),
            of_slice,
        }
    }

    #[test]
    fn what_goes_at_once_costs_as_long_as_it_took_to_come_and_no_longer() {
        for (took, lasted) in [(50, 6), (4, 4)] {
            let mut departures = PendingDetaches::new(false);
            let slice = leaving(3, true);
            let receipt = slice.receipt.clone();
            departures.add(slice);
            receipt.sign(ms(took));
            let gone = Gone {
                groups: GroupIds::from([GroupId(3)]),
                lasted: ms(lasted),
                slice: Some(EndOfSlice {
                    gone: ms(1_000 + lasted),
                    edge: ms(6 + lasted) / 2,
                }),
            };
            assert_eq!(departures.gone(), [gone]);
        }
    }

    #[test]
    fn what_goes_one_by_one_costs_for_as_long_as_that_takes() {
        let mut departures = PendingDetaches::new(true);
        let slice = leaving(3, true);
        let receipt = slice.receipt.clone();
        departures.add(slice);
        receipt.sign(ms(600));
        let gone = departures.gone();
        assert_eq!(gone[0].lasted, ms(600));
        let end = EndOfSlice {
            gone: ms(1_600),
            edge: ms(303),
        };
        assert_eq!(gone[0].slice, Some(end));
    }

    #[test]
    fn each_is_told_once_and_not_before_it_is_gone() {
        let mut departures = PendingDetaches::new(true);
        let (slice, others) = (leaving(1, true), leaving(2, false));
        let receipts = [slice.receipt.clone(), others.receipt.clone()];
        departures.add(slice);
        departures.add(others);
        assert_eq!((departures.gone(), departures.has_slice()), (vec![], true));
        receipts[1].sign(ms(20));
        let gone = departures.gone();
        assert_eq!((gone.len(), gone[0].slice), (1, None));
        assert_eq!(gone[0].groups, GroupIds::from([GroupId(2)]));
        assert!(departures.has_slice());
        receipts[0].sign(ms(30));
        assert_eq!(departures.gone()[0].groups, GroupIds::from([GroupId(1)]));
        assert_eq!((departures.gone(), departures.has_slice()), (vec![], false));
    }
}
