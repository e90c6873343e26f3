//! What was found in a file, kept for the next process that runs it.

use std::{
    collections::BTreeSet,
    fs::Metadata,
    os::unix::fs::MetadataExt,
    time::{Duration, SystemTime},
};

use super::{elf::Table, name::SymbolName};

/// A container restarts its executable with the same libraries: two processes with all the libraries that are ever searched.
const ENTRY_LIMIT: usize = 128;

/// A file system's clock may stand still for so long while a file is written to.
const CLOCK_STEP: Duration = Duration::from_secs(2);

/// A file and its state. Whoever writes to a file changes the last of these, and cannot set it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified_ns: i128,
    changed_ns: i128,
}

impl FileState {
    pub fn of(metadata: &Metadata) -> Self {
        let nanos = |seconds, nanos| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_ns: nanos(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: nanos(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether another change would show: not while the file's clock may not have moved on since the last one.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let now = now
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        self.changed_ns + (CLOCK_STEP.as_nanos() as i128) < now.as_nanos() as i128
    }
}

/// What the searches of the latest files found, so that a restarted container needs no second search of a table of many
/// megabytes. It holds offsets and verdicts, nothing of the files themselves.
#[derive(Debug, Default)]
pub struct SymbolCache {
    /// The one that was used last is last.
    entries: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    state: FileState,
    names: BTreeSet<SymbolName>,
    table: Table,
}

impl SymbolCache {
    /// What a search of this file for these names found.
    pub(super) fn get(&mut self, state: FileState, names: &BTreeSet<SymbolName>) -> Option<Table> {
        let is_it = |entry: &Entry| entry.state == state && entry.names == *names;
        let entry = self.entries.iter().position(is_it)?;
        self.entries[entry..].rotate_left(1);
        self.entries.last().map(|entry| entry.table.clone())
    }

    /// Keeps what a search found. What was not used for longest goes.
    pub(super) fn insert(&mut self, state: FileState, names: BTreeSet<SymbolName>, table: Table) {
        if self.entries.len() == ENTRY_LIMIT {
            self.entries.remove(0);
        }
        self.entries.push(Entry {
            state,
            names,
            table,
        });
    }
}

#[cfg(test)]
mod tests;
