//! What a terminal asks for at Ctrl-Z. A program that is stopped keeps nothing that it has attached within its budget, and the target would pay
//! for that until somebody remembers it: all of it is taken off before, and attached again as it goes on.

use std::{
    future::pending,
    io::{Write as _, stderr},
    sync::{
        Once,
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use ckb_probe_agent::host::Session;
use ckb_probe_kubectl::is_resumable;
use rustix::process;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
};

use super::CliError;

const SUSPEND: SignalKind = SignalKind::from_raw(process::Signal::TSTP.as_raw());

/// Why it is not suspended.
pub const NOT_SUSPENDED: &str =
    "not suspended: what is attached would stay so, with nobody to keep it within the budget";

/// And what there is in place of that, for what may run in the background.
const INSTEAD: &str = "Ctrl-C ends this; with & behind it, a command runs in the background";

const SUSPENDED: &str = "ckb-probe: suspended, with nothing attached: fg goes on with it, and what is called until then is in no count";

/// So long whoever reads is waited for, before all of this stops.
const READ: Duration = Duration::from_millis(250);

/// Whoever draws on a terminal, and has given it back, asks by this to be suspended, and takes it again once that is over: it is told whether it was.
pub type Ask = oneshot::Sender<bool>;

/// By what somebody says that it is to be suspended.
pub struct Suspensions {
    by: By,
}

enum By {
    /// By the signal.
    Signal(Signal),
    /// By whoever draws, who takes the signal.
    Screen(mpsc::Receiver<Ask>),
}

/// One that was asked for.
pub struct Suspension {
    /// Whoever draws, if somebody does.
    asker: Option<Ask>,
}

/// What became of one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Became {
    /// Nothing was taken off.
    Nothing,
    /// It was given up: what was taken off by then is attached again.
    GivenUp,
    /// All was taken off, and this program stopped until somebody had it go on.
    Suspended,
}

impl Suspensions {
    /// From here on, and not only while they are waited for. To be called within a runtime, before anything is attached.
    pub fn new() -> Result<Self, CliError> {
        let by = By::Signal(signal(SUSPEND).map_err(CliError::Signal)?);
        Ok(Self { by })
    }

    /// From now on it is whoever draws that asks.
    pub fn of_screen(&mut self) -> mpsc::Sender<Ask> {
        let (sender, asked) = mpsc::channel(1);
        self.by = By::Screen(asked);
        sender
    }

    /// Waits for the next.
    pub async fn next(&mut self) -> Suspension {
        let asker = match &mut self.by {
            By::Signal(signal) => signal.recv().await.map(|()| None),
            By::Screen(asked) => asked.recv().await.map(Some),
        };
        match asker {
            Some(asker) => Suspension { asker },
            None => pending().await,
        }
    }
}

impl Suspension {
    /// Takes all off, stops this program until somebody has it go on, and attaches all of it again. That it was not stopped is said, or
    /// shown by whoever draws. False where all went on as it was.
    pub fn take(self, session: Option<&mut Session>) -> Result<bool, CliError> {
        let became = match is_resumable() {
            true => stop(session, self.asker.is_some())?,
            false => Became::Nothing,
        };
        match became {
            Became::Suspended => self.answer(true),
            _ => self.refuse(),
        }
        Ok(became != Became::Nothing)
    }

    /// Goes on as if it were not asked for, which is said, or shown by whoever draws.
    pub fn refuse(self) {
        if self.asker.is_none() {
            refused();
        }
        self.answer(false);
    }

    fn answer(self, is_suspended: bool) {
        if let Some(asker) = self.asker {
            // Who asked may be gone.
            asker.send(is_suspended).unwrap_or_default();
        }
    }
}

fn stop(mut session: Option<&mut Session>, draws: bool) -> Result<Became, CliError> {
    if let Some(session) = &mut session
        && !session.suspend()?
    {
        return Ok(Became::GivenUp);
    }
    let is_read = say(SUSPENDED.to_owned());
    is_read.recv_timeout(READ).unwrap_or_default();
    match draws {
        true => ckb_probe_kubectl::stop_until_it_may_draw(),
        false => ckb_probe_kubectl::stop(),
    };
    if let Some(session) = session {
        session.resume()?;
    }
    Ok(Became::Suspended)
}

fn refused() {
    drop(say(format!("ckb-probe: {NOT_SUSPENDED}. {INSTEAD}")));
}

/// Says this on a thread of its own, and tells once that is done: a pipe or a terminal that takes nothing holds up neither the budget nor whatever else
/// is to be done.
fn say(text: String) -> Receiver<()> {
    let (said, is_said) = channel();
    let write = move || {
        writeln!(stderr(), "{text}").unwrap_or_default();
        // It may not be waited for any more.
        said.send(()).unwrap_or_default();
    };
    // Where there is no thread, it is not said.
    drop(thread::Builder::new().spawn(write));
    is_said
}

/// Nothing is suspended from here on, until this program ends: what looks for a moment only. To be called within a runtime, before anything is
/// attached.
pub fn refuse() -> Result<(), CliError> {
    static ONCE: Once = Once::new();
    if ONCE.is_completed() {
        return Ok(());
    }
    let mut asked = signal(SUSPEND).map_err(CliError::Signal)?;
    ONCE.call_once(|| {
        tokio::spawn(async move {
            while asked.recv().await.is_some() {
                refused();
            }
        });
    });
    Ok(())
}
