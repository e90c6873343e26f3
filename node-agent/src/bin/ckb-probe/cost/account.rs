//! What a process does in a window, as it is seen without probes.

use std::{
    collections::BTreeMap,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use ckb_probe_agent::observe::{self, ObserveError, ProcessId};
use ckb_probe_symbols::text;
use strum::{EnumIter, IntoStaticStr};

/// Between two requests, so that they are no load.
const PAUSE: Duration = Duration::from_millis(50);

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, EnumIter, IntoStaticStr)]
pub enum Measure {
    /// CPU time that the process used, in nanoseconds a second.
    #[strum(serialize = "CPU time a second")]
    Cpu,
    /// Bytes that it read and wrote by system calls, a second.
    #[strum(serialize = "bytes read and written a second")]
    Bytes,
    /// CPU time for each of those, in nanoseconds.
    #[strum(serialize = "CPU time of a byte")]
    CpuOfByte,
    /// What its counter grew by, a second.
    #[strum(serialize = "counter, a second")]
    Counter,
    /// CPU time for each of that, in nanoseconds.
    #[strum(serialize = "CPU time of a count")]
    CpuOfCount,
    /// How long the request took, in nanoseconds: the median.
    #[strum(serialize = "request, median")]
    Request,
}

/// Of a window, as far as it is known.
pub type Account = BTreeMap<Measure, f64>;

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error(transparent)]
    Observe(#[from] ObserveError),
    #[error("cannot run the command of --{option}: {source}")]
    Run {
        option: &'static str,
        source: std::io::Error,
    },
    #[error("the command of --{option} failed ({status}): {said}")]
    Failed {
        option: &'static str,
        status: std::process::ExitStatus,
        said: String,
    },
    #[error("the command of --counter printed {0:?}, and not a number")]
    NoNumber(String),
    #[error("the command of --request did not end once in a window: choose a longer --window")]
    NoAnswer,
}

/// Where it is to be had from.
pub struct Source<'a> {
    pub process: ProcessId,
    pub counter: Option<&'a str>,
    pub request: Option<&'a str>,
}

/// What had been done by then.
pub struct Look {
    at: Instant,
    cpu: Duration,
    /// None where this program may not know.
    bytes: Option<u64>,
    counter: Option<f64>,
}

impl Source<'_> {
    pub fn look(&self) -> Result<Look, AccountError> {
        let counter = self.counter.map(count).transpose()?;
        Ok(Look {
            at: Instant::now(),
            cpu: observe::cpu_time(self.process)?,
            bytes: observe::bytes_moved(self.process),
            counter,
        })
    }

    /// What was done since that look.
    pub fn since(
        &self,
        before: &Look,
        requests: Option<Requests>,
    ) -> Result<Account, AccountError> {
        let request = requests.map(Requests::end).transpose()?;
        let now = self.look()?;
        let seconds = (now.at - before.at).as_secs_f64();
        let cpu = now.cpu.saturating_sub(before.cpu).as_nanos() as f64;
        let more = |now: Option<f64>, before: Option<f64>| Some(now? - before?);
        let bytes = now.bytes.zip(before.bytes);
        let bytes = bytes.map(|(now, before)| now.saturating_sub(before) as f64);
        let counted = more(now.counter, before.counter);
        let all = [
            (Measure::Cpu, Some(cpu / seconds)),
            (Measure::Bytes, bytes.map(|bytes| bytes / seconds)),
            (Measure::CpuOfByte, bytes.map(|bytes| cpu / bytes)),
            (Measure::Counter, counted.map(|counted| counted / seconds)),
            (Measure::CpuOfCount, counted.map(|counted| cpu / counted)),
            (Measure::Request, request),
        ];
        let known = all
            .into_iter()
            .filter_map(|(measure, value)| Some((measure, value?)));
        Ok(known.filter(|(_, value)| value.is_finite()).collect())
    }
}

/// What the command prints.
fn count(command: &str) -> Result<f64, AccountError> {
    let printed = said_by(command, "counter")?;
    let number = printed.parse();
    number.map_err(|_| AccountError::NoNumber(printed.chars().take(100).collect()))
}

/// Runs a command of the shell to its end.
fn said_by(command: &str, option: &'static str) -> Result<String, AccountError> {
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| AccountError::Run { option, source })?;
    if output.status.success() {
        return Ok(text::of(output.stdout.trim_ascii()));
    }
    Err(AccountError::Failed {
        option,
        status: output.status,
        said: text::of(output.stderr.trim_ascii())
            .chars()
            .take(200)
            .collect(),
    })
}

/// Requests that are made one after the other, until nobody wants to know of them any more.
pub struct Requests {
    took: mpsc::Receiver<Result<Duration, AccountError>>,
}

impl Requests {
    pub fn begin(command: &str) -> Self {
        let (tell, took) = mpsc::channel();
        let command = command.to_string();
        thread::spawn(move || {
            loop {
                let begin = Instant::now();
                let answer = said_by(&command, "request").map(|_| begin.elapsed());
                let over = answer.is_err();
                if tell.send(answer).is_err() || over {
                    break;
                }
                thread::sleep(PAUSE);
            }
        });
        Self { took }
    }

    /// How long they took, in nanoseconds: the median. The one that is under way does not count.
    fn end(self) -> Result<f64, AccountError> {
        let mut took: Vec<Duration> = self.took.try_iter().collect::<Result<_, _>>()?;
        took.sort_unstable();
        let median = took.get(took.len() / 2).ok_or(AccountError::NoAnswer)?;
        Ok(median.as_nanos() as f64)
    }
}
