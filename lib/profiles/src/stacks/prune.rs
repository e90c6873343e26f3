//! A profile that fits.

use super::{Frame, Profile, Stack, Stacks};
use crate::categories::category;

/// The function that stands for stacks for which there was no room.
pub const PRUNED: &str = "[pruned]";

/// How often a number of stacks is tried, each of which writes the profile once.
const TRIES: usize = 8;

/// A profile that fits, and what had to go.
#[derive(Clone, Debug, PartialEq)]
pub struct Pruned {
    /// The profile as gzipped pprof.
    pub bytes: Vec<u8>,
    /// What is in them.
    pub profile: Profile,
    /// How many stacks were folded.
    pub folded: usize,
}

impl Profile {
    /// The profile in no more than so many bytes of gzipped pprof, or in as few as there can be.
    ///
    /// The lightest stacks are folded into one for each target and category, of the two frames [`PRUNED`] and the category: so
    /// totals, also those by target and by category, are what they were. Where even those are too many, into a single one.
    pub fn prune(&self, limit: usize) -> Pruned {
        let whole = self.keeping(usize::MAX, true);
        if whole.bytes.len() <= limit {
            return whole;
        }
        let stacks = self.stacks.len();
        // So many fit, and so many do not.
        let mut fits = self.keeping(0, true);
        if fits.bytes.len() > limit {
            return self.keeping(0, false);
        }
        let (mut least, mut most, mut size) = (0, stacks, whole.bytes.len());
        for _ in 0..TRIES {
            // In proportion, a little less: what is lighter is rarer too, and so compresses worse.
            let floor = fits.bytes.len();
            let share = (limit - floor) as f64 / (size - floor).max(1) as f64;
            let between = least + ((most - least) as f64 * share * 0.98) as usize;
            let tried = between.clamp(least + 1, most.saturating_sub(1).max(least + 1));
            if tried >= most {
                break;
            }
            let kept = self.keeping(tried, true);
            if kept.bytes.len() <= limit {
                (fits, least) = (kept, tried);
                if fits.bytes.len() >= limit - limit / 20 {
                    break;
                }
            } else {
                (most, size) = (tried, kept.bytes.len());
            }
        }
        fits
    }

    /// With so many of the heaviest stacks.
    fn keeping(&self, count: usize, by_heading: bool) -> Pruned {
        let mut stacks = Stacks::new(self.stacks.types.clone(), self.stacks.shown);
        let mut folded = 0;
        for (place, stack) in self.stacks.sorted().iter().enumerate() {
            let is_folded = stack
                .frames
                .first()
                .is_some_and(|frame| frame.name == PRUNED);
            if place < count || (is_folded && by_heading) {
                stacks.add(stack);
                continue;
            }
            folded += 1;
            let mut frames = vec![Frame::user(PRUNED, "")];
            let mut target = "";
            if by_heading {
                frames.push(Frame::user(category(stack).as_str(), ""));
                target = stack.target;
            }
            stacks.add(&Stack {
                frames,
                target,
                weights: stack.weights,
                ..Stack::default()
            });
        }
        let profile = Self { stacks, ..*self };
        Pruned {
            bytes: profile.to_pprof(),
            profile,
            folded,
        }
    }
}
