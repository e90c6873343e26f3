//! Wakes whoever waits at a time, and only then.
//!
//! Tokio's timers are kept in a wheel of milliseconds. Whoever waits 50 ms by them is woken twice (64 ms are a turn of the lowest wheel),
//! and each time that a shorter wait begins the runtime wakes itself once more. A program that looks at something twenty times a second
//! and sleeps in between pays for little but for being woken.

use std::{
    cell::Cell,
    future::pending,
    io,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::{Interest, unix::AsyncFd};

/// A timer of the kernel's.
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
    /// What it is set to, if it has not gone off.
    set: Cell<Option<Instant>>,
}

impl Alarm {
    /// One that is not set. To be called within a tokio runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        #[expect(
            deprecated,
            reason = "an OwnedFd keeps the promise that its successor is unsafe for"
        )]
        let timer = AsyncFd::with_interest(timer, Interest::READABLE)?;
        let set = Cell::new(None);
        Ok(Self { timer, set })
    }

    /// Waits until then; for ever, if that is never. Whoever stops waiting may wait for another time.
    pub async fn at(&self, time: Option<Instant>) -> io::Result<()> {
        let Some(time) = time else {
            return pending().await;
        };
        while !self.is_past(time)? {
            let mut gone_off = self.timer.readable().await?;
            let read = gone_off.try_io(|timer| {
                rustix::io::read(timer, &mut [0; 8])?;
                Ok(())
            });
            if let Ok(read) = read {
                read?;
                self.set.set(None);
            }
        }
        Ok(())
    }

    /// Whether it is that time; else it is set to it.
    fn is_past(&self, time: Instant) -> io::Result<bool> {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        if self.set.get() != Some(time) {
            self.set.set(None);
            timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once(left))?;
            self.set.set(Some(time));
        }
        Ok(false)
    }
}

fn once(after: Duration) -> Itimerspec {
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    Itimerspec {
        it_interval: zero,
        it_value: Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::time::{sleep, timeout};

    use super::*;

    const SOON: Duration = Duration::from_millis(5);
    const NEVER_IN_A_TEST: Duration = Duration::from_secs(3600);

    fn after(time: Duration) -> Option<Instant> {
        Some(Instant::now() + time)
    }

    #[tokio::test]
    async fn it_wakes_then_and_not_before() {
        let alarm = Alarm::new().unwrap();
        for _ in 0..5 {
            let time = after(SOON);
            alarm.at(time).await.unwrap();
            assert!(Instant::now() >= time.unwrap());
        }
        // What is past is not waited for, and never is never.
        alarm.at(Some(Instant::now())).await.unwrap();
        assert!(timeout(SOON, alarm.at(None)).await.is_err());
    }

    #[tokio::test]
    async fn whoever_stops_waiting_may_wait_for_another_time() {
        let alarm = Alarm::new().unwrap();
        let waited = alarm.at(after(NEVER_IN_A_TEST)).now_or_never();
        assert!(waited.is_none());
        // Set to a sooner time it wakes then.
        alarm.at(after(SOON)).await.unwrap();
        // It goes off while nobody waits, which says nothing of a later time.
        let _ = alarm.at(after(SOON)).now_or_never();
        sleep(4 * SOON).await;
        let time = after(4 * SOON);
        alarm.at(time).await.unwrap();
        assert!(Instant::now() >= time.unwrap());
    }
}
