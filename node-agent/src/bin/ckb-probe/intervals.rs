//! The intervals of a session: it is kept within its budget and drained meanwhile, and whoever shows or writes what came of one is told when
//! it is over, and when all of it is.

use std::{fmt, time::Duration};

use ckb_probe_agent::{
    alarm::Alarm,
    host::Session,
    observe::{Exit, ProcessId},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};

use super::CliError;

/// How often the ring buffers of slow calls are emptied, as in an agent.
const DRAIN: Duration = Duration::from_millis(250);

/// The shortest interval: figures of less time say little, and reading them that often would cost more than what is measured.
const SHORTEST: Duration = Duration::from_millis(100);

/// One that is not shorter than that, as an argument.
pub fn interval(text: &str) -> Result<ckb_probe_crds::Duration, String> {
    let interval: ckb_probe_crds::Duration = text.parse()?;
    match interval.get() < SHORTEST {
        true => Err("the shortest interval is 100ms".to_string()),
        false => Ok(interval),
    }
}

/// By what measuring ends.
pub struct Ends {
    exit: Exit,
    interrupt: Signal,
    terminate: Signal,
}

/// Why measuring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Somebody interrupted it.
    Interrupted,
    /// It was told to end.
    Told,
    /// The process ended.
    ProcessEnded,
    /// It was to last no longer.
    TimeUp,
}

/// Since a session was attached.
pub struct Intervals {
    ends: Ends,
    alarm: Alarm,
    interval: Duration,
    next: Instant,
    drain: Instant,
    end: Option<Instant>,
    /// Whether whoever waits is told of each time that it was drained, too.
    tells_drains: bool,
}

/// What was waited for.
pub struct Waited {
    /// Whether all of the interval has passed: what is over may be over in the middle of one.
    pub is_whole: bool,
    /// Why there will be no other.
    pub over: Option<Over>,
}

impl Waited {
    /// Whether an interval ends here, whole or not: else it was drained, and nothing more.
    pub fn ends_interval(&self) -> bool {
        self.is_whole || self.over.is_some()
    }
}

impl fmt::Display for Over {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Interrupted => "Ctrl-C",
            Self::Told => "it was told to end",
            Self::ProcessEnded => "the process ended",
            Self::TimeUp => "the time was up",
        })
    }
}

impl Ends {
    /// From here on, and not only while they are waited for: a signal that comes between two waits is not lost.
    pub fn of(process: ProcessId) -> Result<Self, CliError> {
        Ok(Self {
            exit: Exit::of(process)?,
            interrupt: signal(SignalKind::interrupt()).map_err(CliError::Signal)?,
            terminate: signal(SignalKind::terminate()).map_err(CliError::Signal)?,
        })
    }

    /// The first interval begins now. It lasts no longer than this, if that is said.
    pub fn intervals(
        self,
        interval: Duration,
        time: Option<Duration>,
    ) -> Result<Intervals, CliError> {
        let start = Instant::now();
        Ok(Intervals {
            ends: self,
            alarm: Alarm::new().map_err(CliError::Alarm)?,
            interval,
            next: start + interval,
            drain: start + DRAIN,
            end: time.map(|time| start + time),
            tells_drains: false,
        })
    }
}

impl Intervals {
    /// From now on each time that the ring buffers were emptied is waited for as well: what happened is there to be told, and need not
    /// pile up until an interval is over, which may last for hours.
    pub fn tell_drains(&mut self) {
        self.tells_drains = true;
    }

    /// Waits until the interval is over, or all is. Whoever stops waiting may wait again.
    pub async fn next(&mut self, session: &mut Session) -> Result<Waited, CliError> {
        loop {
            let window = self.end.map_or(self.next, |end| end.min(self.next));
            let step = self.alarm.at(session.next_step());
            let mut is_drained = false;
            let over = tokio::select! {
                _ = self.ends.interrupt.recv() => Some(Over::Interrupted),
                _ = self.ends.terminate.recv() => Some(Over::Told),
                () = self.ends.exit.wait() => Some(Over::ProcessEnded),
                woken = step => {
                    woken.map_err(CliError::Alarm)?;
                    session.step()?;
                    None
                }
                () = sleep_until(self.drain), if self.drain < window => {
                    session.drain();
                    self.drain = Instant::now() + DRAIN;
                    is_drained = self.tells_drains;
                    None
                }
                () = sleep_until(window) => None,
            };
            let now = Instant::now();
            let is_up = || self.end.is_some_and(|end| now >= end);
            let over = over.or_else(|| is_up().then_some(Over::TimeUp));
            let is_whole = now >= self.next;
            if is_whole {
                // An interval that was missed, since this program was stopped, is one long one.
                self.next = (self.next + self.interval).max(now);
            }
            let waited = Waited { is_whole, over };
            if waited.ends_interval() || is_drained {
                return Ok(waited);
            }
        }
    }
}
