//! For how long a thread of the agent's does nothing: what it waits for does not answer, or it only gets no CPU.

use std::time::{Duration, Instant};

use super::OwnThread;

/// A thread that may stand still, as those see it who look now and then. One that ran since the last look does not, nor does one that would
/// run if there were a CPU for it: on a busy node that takes long, and nothing holds it up but others that run.
#[derive(Debug)]
pub struct Standstill {
    thread: OwnThread,
    seen: Seen,
}

#[derive(Debug)]
struct Seen {
    /// For how many nanoseconds it had run; None: nobody has looked, or the kernel does not say.
    ran: Option<u64>,
    /// Since when it has not run.
    since: Instant,
}

impl Standstill {
    /// Of a thread that begins something now. Nothing is asked of the kernel before somebody looks.
    pub fn of(thread: OwnThread) -> Self {
        Self {
            thread,
            seen: Seen {
                ran: None,
                since: Instant::now(),
            },
        }
    }

    /// Looks for how long it has stood still. Where the kernel does not say what a thread does, it stands still since it began.
    pub fn lasts(&mut self) -> Duration {
        self.seen.look(self.thread.scheduled(), Instant::now())
    }
}

impl Seen {
    fn look(&mut self, scheduled: Option<(u64, bool)>, now: Instant) -> Duration {
        let (ran, would_run) = scheduled.unzip();
        if ran != self.ran || would_run == Some(true) {
            (self.ran, self.since) = (ran, now);
        }
        now.saturating_duration_since(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What is told of a thread that was looked at once a second.
    fn told(scheduled: &[Option<(u64, bool)>]) -> Vec<u64> {
        let began = Instant::now();
        let mut seen = Seen {
            ran: None,
            since: began,
        };
        let looks = (1..).zip(scheduled);
        let lasts = |(second, of): (u32, &Option<_>)| seen.look(*of, began + second * SECOND);
        looks.map(lasts).map(|lasts| lasts.as_secs()).collect()
    }

    #[test]
    fn only_one_that_neither_ran_nor_would_run_stands_still() {
        let waits = Some((7, false));
        assert_eq!(told(&[waits; 4]), [0, 1, 2, 3]);
        // It gets no CPU, and then one.
        let would_run = Some((7, true));
        assert_eq!(told(&[would_run; 4]), [0, 0, 0, 0]);
        assert_eq!(
            told(&[waits, waits, would_run, waits, waits]),
            [0, 1, 0, 1, 2]
        );
        // It waits at each look, and ran between them.
        assert_eq!(
            told(&[waits, waits, Some((8, false)), Some((9, false))]),
            [0, 1, 0, 0]
        );
    }

    #[test]
    fn where_the_kernel_does_not_say_the_clock_does() {
        assert_eq!(told(&[None; 3]), [1, 2, 3]);
    }
}
