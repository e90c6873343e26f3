//! What a process's container waits for: the files that tell are opened where nobody waits for it, and read at the end of each interval.

use std::sync::Arc;

use ckb_probe_core::contention::Accounts;

use super::super::workers::{Errand, Outcome, Workers};
use crate::observe::{ContentionFiles, ProcessId};

/// The files.
#[derive(Default)]
pub enum AccountFiles {
    /// Nobody has asked for them.
    #[default]
    Closed,
    /// They are being opened.
    Opening(Errand<ContentionFiles>),
    /// They are open, as far as there are any.
    Open(ContentionFiles),
}

impl AccountFiles {
    /// Opens them in place of those that were open: a process may have been moved. Where they are being opened already they are waited for.
    pub fn open(&mut self, workers: &Workers, namespace: &Arc<str>, process: ProcessId) {
        if let Self::Closed | Self::Open(_) = self {
            let open = move || ContentionFiles::open(process);
            *self = Self::Opening(workers.start_for(namespace, open));
        }
    }

    /// What they say now; None where they are not open yet.
    pub fn read(&mut self) -> Option<Accounts> {
        if let Self::Opening(errand) = self {
            match errand.outcome() {
                Outcome::UnderWay => return None,
                Outcome::Done(files) => *self = Self::Open(files),
                Outcome::Lost => *self = Self::Closed,
            }
        }
        match self {
            Self::Open(files) => Some(files.read()),
            Self::Closed | Self::Opening(_) => None,
        }
    }
}
