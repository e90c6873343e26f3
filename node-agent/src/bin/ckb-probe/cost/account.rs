//! What a process does in a window, as it is seen without probes.

use std::time::{Duration, Instant};

use ckb_probe_agent::observe::{self, ObserveError, ProcessId};
use ckb_probe_kubectl::commands::{CommandArguments, CommandError, Requests};
use ckb_probe_views::cost::{Account, Measure};

#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    #[error(transparent)]
    Observe(#[from] ObserveError),
    #[error(transparent)]
    Command(#[from] CommandError),
}

/// Where it is to be had from.
pub struct Source<'a> {
    pub process: ProcessId,
    pub commands: &'a CommandArguments,
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
        let counter = self.commands.count()?;
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
