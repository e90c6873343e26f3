//! What was found in a file, kept for the next process that runs it.

use std::{
    collections::BTreeSet,
    fs::Metadata,
    os::unix::fs::MetadataExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use ckb_probe_symbols::{
    SymbolName,
    elf::{Functions, SearchError, Table, UsdtProbes},
};

/// A container restarts its executable with the same libraries: two processes with all the libraries that are ever searched.
const ENTRY_LIMIT: usize = 128;

/// A search for functions by a pattern is of one file, and may find hundreds.
const FUNCTIONS_LIMIT: usize = 16;

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
pub type SymbolCache = Cache<BTreeSet<SymbolName>, Table, ENTRY_LIMIT>;

/// The same for searches by a pattern, which is remembered with how many functions were to be listed. Here names are kept.
pub type FunctionCache = Cache<(String, usize), Functions, FUNCTIONS_LIMIT>;

/// The same for all USDT probes of a file.
pub type UsdtCache = Cache<(), Arc<UsdtProbes>, ENTRY_LIMIT>;

/// The latest answers to questions about files. Nobody holds it while a file is read: that may take for ever.
#[derive(Debug)]
pub struct Cache<KindSpec, Answer, const LIMIT: usize> {
    /// The one that was used last is last.
    entries: Mutex<Vec<Entry<KindSpec, Answer>>>,
}

#[derive(Debug)]
struct Entry<KindSpec, Answer> {
    state: FileState,
    question: KindSpec,
    answer: Known<Answer>,
}

/// What a search found, or why it cannot find anything in this file as it is.
pub(super) type Known<Answer> = Result<Answer, Arc<SearchError>>;

impl<KindSpec, Answer, const LIMIT: usize> Default for Cache<KindSpec, Answer, LIMIT> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

impl<KindSpec: PartialEq, Answer: Clone, const LIMIT: usize> Cache<KindSpec, Answer, LIMIT> {
    /// What a search of this file for this found.
    pub(super) fn get(&self, state: FileState, question: &KindSpec) -> Option<Known<Answer>> {
        let is_it = |entry: &Entry<_, _>| entry.state == state && entry.question == *question;
        let mut entries = self.entries();
        let entry = entries.iter().position(is_it)?;
        entries[entry..].rotate_left(1);
        entries.last().map(|entry| entry.answer.clone())
    }

    /// Keeps what a search found. What was not used for longest goes.
    pub(super) fn insert(&self, state: FileState, question: KindSpec, answer: Known<Answer>) {
        let mut entries = self.entries();
        if entries.len() == LIMIT {
            entries.remove(0);
        }
        entries.push(Entry {
            state,
            question,
            answer,
        });
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry<KindSpec, Answer>>> {
        // What it holds is right at any time.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
