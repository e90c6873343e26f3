//! Slow calls with who called them: the slowest of an interval below its table, and all of them as a profile weighted by their time.

use std::{
    cmp::Reverse,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use ckb_probe_agent::{
    mechanism::{Event, profile::nanos},
    state::{
        instance::Instance,
        slow_calls::{Weights, add},
    },
    text,
};
use ckb_probe_profiles::{Profile, ProfileMode, Window};
use serde_json::Value;

use super::CliError;

/// So many calls are shown below a table.
const SHOWN: usize = 5;

/// How the name of the file ends.
const PPROF: &str = ".pb.gz";

/// The stacks of slow calls, for a file.
pub struct Flames {
    path: PathBuf,
    file: fs::File,
    profile: Profile,
    weights: Weights,
    begun: (SystemTime, Instant),
}

impl Flames {
    /// Makes the file: whoever cannot write there is told before anything is measured.
    pub fn to(path: &Path) -> Result<Self, CliError> {
        let failed = |source| CliError::Output(text::of_path(path), source);
        if !text::of_path(path).ends_with(PPROF) {
            return Err(failed(io::Error::new(
                io::ErrorKind::Unsupported,
                "slow calls are written as pprof: name a file that ends in .pb.gz",
            )));
        }
        Ok(Self {
            file: fs::File::create(path).map_err(failed)?,
            path: path.to_owned(),
            profile: Profile::of(ProfileMode::SlowCalls),
            weights: Weights::default(),
            begun: (SystemTime::now(), Instant::now()),
        })
    }

    /// Adds the calls whose callers are known, of a program of this name, as they are weighed by these books.
    pub fn add(
        &mut self,
        events: &[(Event, Value)],
        row: &str,
        executable: &str,
        books: &Instance,
    ) {
        for (event, line) in events {
            if let Some(name) = line[row].as_str()
                && event.callers().is_some()
            {
                let weights = self.weights.of(event, books.weight(event));
                add(&mut self.profile, event, (name, executable), weights);
            }
        }
    }

    /// Writes them.
    pub fn write(mut self) -> Result<(), CliError> {
        let (began, since) = self.begun;
        self.profile.window = Window {
            start_ns: nanos(began.duration_since(UNIX_EPOCH).unwrap_or_default()),
            duration_ns: nanos(since.elapsed()),
        };
        let written = self.file.write_all(&self.profile.to_pprof());
        written.map_err(|source| CliError::Output(text::of_path(&self.path), source))
    }
}

/// The slowest of those whose callers are known.
pub fn print(out: &mut impl Write, events: &[(Event, Value)], row: &str) -> io::Result<()> {
    let known = events.iter().filter(|(event, _)| event.callers().is_some());
    let mut known: Vec<&(Event, Value)> = known.collect();
    if known.is_empty() {
        return Ok(());
    }
    known.sort_by_key(|(event, _)| Reverse(event.weight));
    for (event, line) in known.into_iter().take(SHOWN) {
        let name = line[row].as_str().unwrap_or_default();
        writeln!(out, "slow: {name}: {}", event.report(name, None).text)?;
    }
    writeln!(out)
}
