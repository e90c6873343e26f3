//! How long to wait before the next attempt.

use std::time::Duration;

/// After the first failure.
const FIRST: Duration = Duration::from_secs(1);

/// And after many.
const LONGEST: Duration = Duration::from_secs(30);

/// What a receiver asks for is heeded up to this: one that asks for a day would be none.
const MOST_ASKED: Duration = Duration::from_secs(600);

/// The time to wait after so many failures in a row: doubling each time, a random part of it so that not all come back at once (`chance`
/// is from 0 to 1), and no less than the receiver asks for.
pub fn wait(failures: u32, asked: Option<Duration>, chance: f64) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    let full = FIRST.saturating_mul(1 << doublings).min(LONGEST);
    let random = full.mul_f64(0.5 + 0.5 * chance.clamp(0.0, 1.0));
    random.max(asked.unwrap_or_default().min(MOST_ASKED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_half_a_minute_and_heeds_what_is_asked() {
        let seconds = |failures, asked, chance| wait(failures, asked, chance).as_secs_f64();
        assert_eq!(seconds(1, None, 1.0), 1.0);
        assert_eq!(seconds(1, None, 0.0), 0.5);
        assert_eq!(seconds(3, None, 1.0), 4.0);
        assert_eq!(seconds(6, None, 1.0), 30.0);
        assert_eq!(seconds(u32::MAX, None, 0.0), 15.0);
        assert_eq!(seconds(1, Some(Duration::from_secs(7)), 0.3), 7.0);
        assert_eq!(seconds(6, Some(Duration::from_secs(7)), 1.0), 30.0);
        assert_eq!(seconds(1, Some(Duration::MAX), 0.3), 600.0);
    }
}
