//! What a terminal asks for at Ctrl-Z, and is refused: a program that is stopped keeps nothing that it has attached within its budget, and
//! the target would pay for that until somebody remembers it.

use std::sync::Once;

use rustix::process;
use tokio::{
    signal::unix::{SignalKind, signal},
    task::spawn_blocking,
};

use super::CliError;

const SUSPEND: SignalKind = SignalKind::from_raw(process::Signal::TSTP.as_raw());

const REFUSED: &str = "ckb-probe: not suspended: what is attached would stay so, with nobody to keep it within the budget. Ctrl-C ends this; \
                       with & behind it, a command runs in the background";

/// From here on, until this program ends. To be called within a runtime, before anything is attached.
pub fn refuse() -> Result<(), CliError> {
    static ONCE: Once = Once::new();
    if ONCE.is_completed() {
        return Ok(());
    }
    let mut asked = signal(SUSPEND).map_err(CliError::Signal)?;
    ONCE.call_once(|| {
        tokio::spawn(async move {
            while asked.recv().await.is_some() {
                // A terminal that takes nothing holds up neither the budget nor whatever else is to be done.
                drop(spawn_blocking(|| eprintln!("{REFUSED}")).await);
            }
        });
    });
    Ok(())
}
