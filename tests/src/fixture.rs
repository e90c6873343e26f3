//! `ground-truth`: a program that makes a known number of calls and measures each of them itself.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::OnceLock,
};

use serde::Deserialize;

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The folder with the compiled fixtures; compiles them first where a source is newer.
///
/// # Panics
/// When they do not compile: no test can go on.
pub fn fixtures() -> &'static Path {
    static FIXTURES: OnceLock<PathBuf> = OnceLock::new();
    FIXTURES.get_or_init(|| {
        let folder = repository().join("target/fixtures");
        let status = Command::new(repository().join("tests/fixtures/build.sh"))
            .arg(&folder)
            .status()
            .expect("tests/fixtures/build.sh can be started");
        assert!(status.success(), "the fixtures do not compile: see above");
        folder
    })
}

/// What the fixture says it did, by function.
#[derive(Debug, Deserialize)]
pub struct Truth {
    /// By the function's name.
    pub functions: BTreeMap<String, FunctionTruth>,
}

/// The calls of one function.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct FunctionTruth {
    /// How many.
    pub calls: u64,
    /// Bytes of their keys.
    pub key_bytes: u64,
    /// Bytes of their values.
    pub value_bytes: u64,
    /// How long each took, in nanoseconds, by the function's own clock readings.
    pub durations_ns: Vec<u64>,
}

impl FunctionTruth {
    /// The smallest duration that at least `quantile` of all do not exceed.
    pub fn quantile(&self, quantile: f64) -> u64 {
        let mut sorted = self.durations_ns.clone();
        sorted.sort_unstable();
        let rank = ((quantile * sorted.len() as f64).ceil() as usize).max(1);
        sorted[rank - 1]
    }
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

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Makes the calls of the plan and returns what they were.
    pub fn go(&mut self) -> io::Result<Truth> {
        self.begin()?;
        self.finish()
    }

    /// Begins to make the calls.
    pub fn begin(&mut self) -> io::Result<()> {
        writeln!(self.input, "go")
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
