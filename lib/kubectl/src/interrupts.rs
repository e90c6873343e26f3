//! All by which somebody says that it is enough: Ctrl-C, kill, and a terminal that is closed.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// From when it is made on.
pub(crate) struct Interrupts([Signal; 3]);

impl Interrupts {
    /// To be called within a runtime.
    pub(crate) fn new() -> io::Result<Self> {
        let kinds = [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ];
        let [a, b, c] = kinds.map(signal);
        Ok(Self([a?, b?, c?]))
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        let [a, b, c] = &mut self.0;
        tokio::select! {
            _ = a.recv() => {}
            _ = b.recv() => {}
            _ = c.recv() => {}
        }
    }
}
