//! `ground-truth`: a program that makes a known number of calls and measures each of them itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde::Deserialize;

use crate::fixtures;

/// A plan that calls each function, no two equally often.
pub const EVERY_FUNCTION: [&str; 32] = [
    "rocksdb_get_pinned_cf 20000 constant:1000",
    "rocksdb_get_pinned 601 constant:1000",
    "rocksdb_get 602 constant:1000",
    "rocksdb_get_cf 603 constant:1000",
    "rocksdb_transaction_get_pinned_cf 5000 uniform:500..5000",
    "rocksdb_transaction_get_for_update_cf 700 uniform:500..5000",
    "rocksdb_transaction_put_cf 3000 uniform:500..3000",
    "rocksdb_transaction_delete_cf 411 constant:1000",
    "rocksdb_transaction_commit 300 lognormal:200000,0.5",
    "rocksdb_write 123 constant:30000",
    "rocksdb_put 77 constant:1000",
    "rocksdb_put_cf 78 constant:1000",
    "rocksdb_delete 55 constant:1000",
    "rocksdb_delete_cf 56 constant:1000",
    "rocksdb_create_iterator 90 constant:1000",
    "rocksdb_create_iterator_cf 91 constant:1000",
    "rocksdb_transaction_create_iterator_cf 92 constant:1000",
    "rocksdb_multi_get_cf 33 constant:1000",
    "rocksdb_iter_seek 65 constant:1000",
    "rocksdb_iter_seek_for_prev 66 constant:1000",
    "rocksdb_iter_seek_to_first 67 constant:1000",
    "rocksdb_iter_seek_to_last 68 constant:1000",
    "rocksdb_iter_next 69 constant:1000",
    "rocksdb_iter_prev 70 constant:1000",
    "rocksdb::CompactionJob::Run 11 constant:1000",
    "rocksdb::FlushJob::Run 12 constant:1000",
    "rocksdb::DBImpl::SyncWAL 13 constant:1000",
    "rocksdb::WritableFileWriter::Sync 14 constant:1000",
    "rocksdb::DBImpl::DelayWrite 15 constant:1000",
    "rocksdb::CompactionJob::Run.cold 16 constant:1000",
    "rocksdb::CompactionJob::Run::lambda 17 constant:1000",
    "rocksdb::DBImplReadOnly::SyncWAL 18 constant:1000",
];

/// What the fixture says it did in a round. Times are of `CLOCK_MONOTONIC`.
#[derive(Debug, Deserialize)]
pub struct Truth {
    /// When the round began.
    pub began_ns: u64,
    /// How long it took.
    pub elapsed_ns: u64,
    /// By the function's name: its symbol, or the qualified name of a C++ function.
    pub functions: BTreeMap<String, FunctionTruth>,
    /// The calls of RocksDB's background work and stalls, in the order in which they returned.
    pub causes: Vec<Call>,
    /// The calls that took at least as long as the option `--slow` says, in the order in which they returned.
    pub slow_calls: Vec<SlowCall>,
}

/// The calls of one function, or those on one column family.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct FunctionTruth {
    /// How many calls there were.
    pub calls: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// How long each took, in nanoseconds, by the function's own clock readings.
    pub durations_ns: Vec<u64>,
    /// The same calls, in the same order, by their callers' clock readings. What a probe sees lies between the two,
    /// however busy the machine is.
    pub outer_durations_ns: Vec<u64>,
    /// Of those that pass a column family's handle, by its name.
    #[serde(default)]
    pub column_families: BTreeMap<String, FunctionTruth>,
    /// Of a column family: how many of its handles were passed.
    #[serde(default)]
    pub handles: u64,
}

/// One call.
#[derive(Clone, Debug, Deserialize)]
pub struct Call {
    /// The function's name.
    pub function: String,
    /// The name of the thread.
    pub thread_name: String,
    /// The thread's number in the fixture's own PID namespace.
    pub thread: u32,
    /// When it began.
    pub entered_ns: u64,
    /// How long it took.
    pub duration_ns: u64,
}

impl Call {
    /// When it ended.
    pub fn left_ns(&self) -> u64 {
        self.entered_ns + self.duration_ns
    }
}

/// One slow call.
#[derive(Clone, Debug, Deserialize)]
pub struct SlowCall {
    /// When, by whom.
    #[serde(flatten)]
    pub call: Call,
    /// Bytes of its keys.
    pub key_bytes: u64,
    /// Bytes of its values.
    pub value_bytes: u64,
    /// The column family whose handle it was passed.
    pub column_family: Option<String>,
    /// The functions of background work and stalls of which another call was under way at some time during this one.
    pub during: BTreeSet<String>,
}

impl Truth {
    /// How many calls there were of all functions.
    pub fn calls(&self) -> u64 {
        self.functions.values().map(|one| one.calls).sum()
    }
}

impl FunctionTruth {
    /// The smallest duration that at least `quantile` of all do not exceed.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self::quantile(&self.durations_ns, quantile)
    }

    /// The same for those that callers saw.
    pub fn outer_quantile(&self, quantile: f64) -> u64 {
        self::quantile(&self.outer_durations_ns, quantile)
    }
}

fn quantile(durations: &[u64], quantile: f64) -> u64 {
    let mut sorted = durations.to_vec();
    sorted.sort_unstable();
    let rank = ((quantile * sorted.len() as f64).ceil() as usize).max(1);
    sorted[rank - 1]
}

/// A running fixture. Dropping it ends it.
pub struct GroundTruth {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    result: PathBuf,
}

impl GroundTruth {
    /// Starts `ground-truth`, or a variant of it, and waits until it is ready.
    pub fn start(variant: &str, options: &[&str], plan: &[&str]) -> io::Result<Self> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let result = std::env::temp_dir().join(format!(
            "ckb-probe-truth-{}-{number}.json",
            std::process::id()
        ));
        let mut child = Command::new(fixtures().join(variant))
            .arg("--out")
            .arg(&result)
            .args(options)
            .args(plan)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let missing = || io::Error::other("the fixture has no pipe");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let mut fixture = Self {
            child,
            input,
            output,
            result,
        };
        fixture.expect("ready")?;
        Ok(fixture)
    }

    /// The process id of the fixture.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes the calls of the plan and returns what they were.
    pub fn go(&mut self) -> io::Result<Truth> {
        self.begin()?;
        self.finish()
    }

    /// The same for those of a phase of the plan.
    pub fn go_phase(&mut self, phase: &str) -> io::Result<Truth> {
        self.begin_phase(phase)?;
        self.finish()
    }

    /// Begins to make the calls.
    pub fn begin(&mut self) -> io::Result<()> {
        writeln!(self.input, "go")
    }

    /// Begins to make those of a phase of the plan.
    pub fn begin_phase(&mut self, phase: &str) -> io::Result<()> {
        writeln!(self.input, "go {phase}")
    }

    /// Waits until the calls are made and returns what they were.
    pub fn finish(&mut self) -> io::Result<Truth> {
        self.expect("done")?;
        Ok(serde_json::from_reader(BufReader::new(
            std::fs::File::open(&self.result)?,
        ))?)
    }

    fn expect(&mut self, word: &str) -> io::Result<()> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.split_whitespace().next() == Some(word) {
            Ok(())
        } else {
            Err(io::Error::other(format!(
                "the fixture said {line:?} instead of {word:?}"
            )))
        }
    }
}

impl Drop for GroundTruth {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.result);
    }
}
