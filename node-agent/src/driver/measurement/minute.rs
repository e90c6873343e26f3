//! How much of its budget a target has paid in the last minute. No clock, no I/O.

use std::{collections::VecDeque, time::Duration};

use super::Total;

/// What a budget is kept over: a report interval may be a handful of slices, and one that is long is paid for by those after it.
const MINUTE: Duration = Duration::from_secs(60);

/// What a target had paid when the report intervals of the last minute ended.
#[derive(Clone, Debug, Default)]
pub struct Minute {
    ends: VecDeque<(Duration, Paid)>,
}

/// CPU-seconds since the measurement began.
#[derive(Clone, Copy, Debug, Default)]
struct Paid {
    cost: f64,
    own: f64,
    floor: f64,
}

impl Minute {
    /// An interval ends, `total` is what it has been by now, and `percent` of its own time is granted. What probing cost in the last minute, or since it
    /// began, or in this interval where that is longer, as a part of what was granted in it; None where that was nothing.
    pub fn used(&mut self, now: Duration, total: &Total, percent: f64) -> Option<f64> {
        let is_past = |(at, _): &(Duration, Paid)| *at + MINUTE <= now;
        while self.ends.get(1).is_some_and(is_past) {
            self.ends.pop_front();
        }
        let begin = self.ends.front().filter(|end| is_past(end));
        let begin = begin.map_or_else(Paid::default, |(_, paid)| *paid);
        let paid = Paid {
            cost: total.cost,
            own: total.own,
            floor: total.floor,
        };
        self.ends.push_back((now, paid));
        let granted = (paid.own - begin.own) * percent / 100.0 + paid.floor - begin.floor;
        (granted > 0.0).then(|| (paid.cost - begin.cost) / granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told at the ends of intervals of so many seconds, in each of which a target uses a second, of which 1 % and 5 ms are granted, and
    /// pays as much.
    fn told(seconds: u64, costs: &[f64]) -> Vec<f64> {
        let mut minute = Minute::default();
        let mut total = Total::default();
        let used = (1..).zip(costs).map(|(end, cost)| {
            total.own += 1.0;
            total.floor += 0.005;
            total.cost += cost;
            minute.used(Duration::from_secs(end * seconds), &total, 1.0)
        });
        used.map(|used| (used.unwrap() * 1e6).round() / 1e6)
            .collect()
    }

    #[test]
    fn it_is_of_a_minute_or_since_it_began_or_of_an_interval_that_is_longer() {
        // A slice that costs as much as four intervals may.
        let costs = [0.015, 0.06, 0.0, 0.0, 0.015, 0.015, 0.015, 0.015, 0.015];
        let of_ten_seconds = [1.0, 2.5, 1.666667, 1.25, 1.2, 1.166667, 1.166667, 0.666667];
        assert_eq!(told(10, &costs)[..8], of_ten_seconds);
        assert_eq!(told(10, &costs)[8], 0.833333);
        assert_eq!(told(60, &costs[..3]), [1.0, 4.0, 0.0]);
        assert_eq!(told(90, &costs[..3]), [1.0, 4.0, 0.0]);
    }

    #[test]
    fn it_keeps_no_more_than_a_minute() {
        let mut minute = Minute::default();
        for end in 0..10_000 {
            minute.used(Duration::from_secs(end), &Total::default(), 1.0);
        }
        assert_eq!(minute.ends.len(), 61);
        assert_eq!(
            minute.used(Duration::from_secs(10_000), &Total::default(), 1.0),
            None
        );
    }
}
