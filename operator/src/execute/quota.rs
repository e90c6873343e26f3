//! How many Events one object gets: what happens again and again is told of a few times, and then now and then. Its status tells
//! the same, and tells it once.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

/// So many at once.
const BURST: u32 = 25;
/// One more after each so long.
const EACH: Duration = Duration::from_secs(60);

/// What objects have had of late, by their uids.
#[derive(Debug, Default)]
pub struct Quota {
    /// Until when the last one counts: one more than [`BURST`] is too many, each counting [`EACH`].
    counted: BTreeMap<String, Instant>,
}

impl Quota {
    /// Whether an object may have one more, now. If so it has.
    pub fn take(&mut self, object: &str, now: Instant) -> bool {
        // Whoever has none that counts is as if it had never had any.
        self.counted.retain(|_, until| *until > now);
        let since = self.counted.get(object).copied().unwrap_or(now);
        let until = since + EACH;
        let allowed = until <= now + EACH * BURST;
        if allowed {
            self.counted.insert(object.to_owned(), until);
        }
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_again_and_again_is_told_now_and_then() {
        let (mut quota, start) = (Quota::default(), Instant::now());
        let told = (0..3_600).filter(|second| {
            let now = start + Duration::from_secs(*second);
            quota.take("flaps", now)
        });
        assert_eq!(told.count(), BURST as usize + 59);
        // Nobody pays for another.
        let now = start + Duration::from_secs(3_600);
        assert!(quota.take("calm", now));
        assert!(!quota.take("flaps", now - Duration::from_secs(1)));
        // After a while it is as it was at first, and nothing is kept of it.
        let later = now + EACH * (BURST + 1);
        assert!((0..BURST).all(|_| quota.take("flaps", later)));
        assert!(!quota.take("flaps", later));
        assert_eq!(quota.counted.len(), 1);
    }
}
