//! What a terminal asks for at Ctrl-Z. A program that is stopped keeps nothing that it has attached within its budget, and the target would pay
//! for that until somebody remembers it: all of it is taken off before, and attached again as it goes on.

use std::{future::pending, sync::Once};

use ckb_probe_agent::host::Session;
use ckb_probe_kubectl::is_resumable;
use rustix::process;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{mpsc, oneshot},
    task::spawn_blocking,
};

use super::CliError;

const SUSPEND: SignalKind = SignalKind::from_raw(process::Signal::TSTP.as_raw());

const REFUSED: &str = "ckb-probe: not suspended: what is attached would stay so, with nobody to keep it within the budget. Ctrl-C ends this; \
                       with & behind it, a command runs in the background";

const SUSPENDED: &str = "ckb-probe: suspended, with nothing attached: fg goes on with it, and what is called until then is in no count";

/// Whoever draws on a terminal, and has given it back, asks by this to be suspended, and takes it again once that is over.
pub type Ask = oneshot::Sender<()>;

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
    is_silent: bool,
    over: Option<Ask>,
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
        let over = match &mut self.by {
            By::Signal(signal) => signal.recv().await.map(|()| None),
            By::Screen(asked) => asked.recv().await.map(Some),
        };
        match over {
            Some(over) => Suspension {
                is_silent: over.is_some(),
                over,
            },
            None => pending().await,
        }
    }
}

impl Suspension {
    /// Takes all off, stops this program until somebody has it go on, and attaches all of it again. False where it was not stopped, which is
    /// said.
    pub fn take(self, session: Option<&mut Session>) -> Result<bool, CliError> {
        let is_stopped = is_resumable() && stop(session)?;
        match is_stopped {
            true => self.answer(),
            false => self.refuse(),
        }
        Ok(is_stopped)
    }

    /// Goes on as if it were not asked for, which is said.
    pub fn refuse(self) {
        if !self.is_silent {
            refused();
        }
        self.answer();
    }

    fn answer(self) {
        if let Some(over) = self.over {
            // Who asked may be gone.
            over.send(()).unwrap_or_default();
        }
    }
}

fn stop(mut session: Option<&mut Session>) -> Result<bool, CliError> {
    if let Some(session) = &mut session
        && !session.suspend()?
    {
        return Ok(false);
    }
    // A terminal that takes nothing holds nobody up: nothing is attached.
    eprintln!("{SUSPENDED}");
    ckb_probe_kubectl::stop();
    if let Some(session) = session {
        session.resume()?;
    }
    Ok(true)
}

fn refused() {
    // A terminal that takes nothing holds up neither the budget nor whatever else is to be done.
    drop(spawn_blocking(|| eprintln!("{REFUSED}")));
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
