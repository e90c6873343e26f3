//! The intervals of a session: it is kept within its budget and drained meanwhile, and whoever shows or writes what came of one is told when
//! it is over, and when all of it is.

use std::{
    fmt,
    io::{Write as _, stdout},
    time::Duration,
};

use ckb_probe_agent::{
    alarm::Alarm,
    host::Session,
    observe::{Exit, ProcessId},
};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::spawn_blocking,
    time::{Instant, sleep_until},
};

use super::{CliError, suspension::Suspensions};

/// How often the ring buffers of slow calls are emptied, as in an agent.
const DRAIN: Duration = Duration::from_millis(250);

/// The shortest interval: figures of less time say little, and reading them that often would cost more than what is measured.
const SHORTEST: Duration = Duration::from_millis(100);

/// One that is not shorter than that, as an argument.
pub fn interval(text: &str) -> Result<ckb_probe_crds::Duration, String> {
    not_shorter(text, "interval")
}

/// A time of something that is no shorter than an interval.
pub fn not_shorter(text: &str, what: &str) -> Result<ckb_probe_crds::Duration, String> {
    let time: ckb_probe_crds::Duration = text.parse()?;
    match time.get() < SHORTEST {
        true => Err(format!("the shortest {what} is 100ms")),
        false => Ok(time),
    }
}

/// So long whoever reads is waited for, once it was said that this is to end.
const LAST: Duration = Duration::from_secs(1);

/// By what measuring ends.
pub struct Ends {
    exit: Exit,
    interrupt: Signal,
    terminate: Signal,
    /// By what it is suspended for a while.
    pub suspensions: Suspensions,
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
    /// Why it is over, once it is.
    over: Option<Over>,
    /// Whether something that was begun has not ended in time: nothing else is begun.
    hangs: bool,
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
            suspensions: Suspensions::new()?,
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
            over: None,
            hangs: false,
        })
    }
}

impl Intervals {
    /// From now on each time that the ring buffers were emptied is waited for as well: what happened is there to be told, and need not
    /// pile up until an interval is over, which may last for hours.
    pub fn tell_drains(&mut self) {
        self.tells_drains = true;
    }

    /// There will be no other interval, for this. The session is finished by it, once, whatever was waited for meanwhile.
    fn ends_by(&mut self, over: Over, session: &mut Session) {
        if self.over.replace(over).is_none() {
            session.finish();
        }
    }

    /// Waits until the interval is over, or all is. Whoever stops waiting may wait again.
    pub async fn next(&mut self, session: &mut Session) -> Result<Waited, CliError> {
        loop {
            if self.over.is_some() {
                return Ok(Waited {
                    is_whole: false,
                    over: self.over,
                });
            }
            let window = self.end.map_or(self.next, |end| end.min(self.next));
            let step = self.alarm.at(session.next_step());
            let mut is_drained = false;
            let over = tokio::select! {
                _ = self.ends.interrupt.recv() => Some(Over::Interrupted),
                _ = self.ends.terminate.recv() => Some(Over::Told),
                () = self.ends.exit.wait() => Some(Over::ProcessEnded),
                asked = self.ends.suspensions.next() => {
                    asked.take(Some(session))?;
                    None
                }
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
            if let Some(over) = over {
                self.ends_by(over, session);
            }
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

    /// Does what others may hold up, such as writing to a pipe that nobody reads, on a thread of its own: the session is kept within its
    /// budget meanwhile, and what happens stays in its ring buffers, as far as there is room. None if somebody ended it before that was
    /// done: whatever it is that holds it up is not waited for any longer.
    pub async fn meanwhile<T: Send + 'static>(
        &mut self,
        session: &mut Session,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Option<T>, CliError> {
        if self.hangs {
            return Ok(None);
        }
        let mut work = spawn_blocking(work);
        let is_told = matches!(self.over, Some(Over::Interrupted | Over::Told));
        let mut last = is_told.then(|| Instant::now() + LAST);
        let mut is_there = self.over != Some(Over::ProcessEnded);
        loop {
            let step = self.alarm.at(session.next_step().filter(|_| is_there));
            let told = tokio::select! {
                done = &mut work => return Ok(Some(done.map_err(std::io::Error::other)?)),
                _ = self.ends.interrupt.recv() => Over::Interrupted,
                _ = self.ends.terminate.recv() => Over::Told,
                () = self.ends.exit.wait(), if is_there => {
                    is_there = false;
                    continue;
                }
                asked = self.ends.suspensions.next() => {
                    // Whatever is over would be attached again to go on, for no more than what is left to say.
                    if self.over.is_some() {
                        asked.refuse();
                    } else {
                        asked.take(Some(session))?;
                    }
                    continue;
                }
                woken = step => {
                    woken.map_err(CliError::Alarm)?;
                    session.step()?;
                    continue;
                }
                () = sleep_until(last.unwrap_or_else(Instant::now)), if last.is_some() => {
                    self.hangs = true;
                    return Ok(None);
                }
            };
            self.ends_by(told, session);
            // Whoever says so twice does not want to wait.
            let wait = if last.is_some() { Duration::ZERO } else { LAST };
            last = Some(Instant::now() + wait);
        }
    }

    /// What there is to say where somebody ended it while nobody read.
    pub fn unread(&self) -> Option<&'static str> {
        self.hangs
            .then_some("nobody read what was printed last: what is not listed of it is in no count of what was lost")
    }

    /// Prints all of it, now, likewise.
    pub async fn print(
        &mut self,
        session: &mut Session,
        text: impl Into<Vec<u8>>,
    ) -> Result<(), CliError> {
        let text = text.into();
        if text.is_empty() {
            return Ok(());
        }
        let print = move || {
            let mut out = stdout().lock();
            out.write_all(&text)?;
            out.flush()
        };
        let printed = self.meanwhile(session, print).await?;
        Ok(printed.unwrap_or(Ok(()))?)
    }
}
