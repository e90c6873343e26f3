//! What measuring costs a process: windows without and with probes by turns, and whether they differ by more than noise.

mod account;
mod lines;

use std::{io::Write, time::Duration};

use ckb_probe_agent::{
    alarm::Alarm,
    host::{HostError, Session, find_process},
    kernel::CalibratedTier,
    observe::{Exit, Process, Program},
    preflight::{Unmeasurable, preflight},
};
use ckb_probe_crds::{KindSpec, Overhead, Turns};
use ckb_probe_kubectl::commands::CommandArguments;
use ckb_probe_views::{
    cost::{self, Cost, Window},
    document::{Document, View},
};
use clap::Args;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};

pub use self::account::AccountError;
use self::account::Source;
use super::{
    BudgetArguments, CliError, Outcome, ProcessArguments, TierArgument,
    intervals::{Over, not_shorter},
    suspension::Suspensions,
};

/// So long a process may take to end, of which something went wrong.
const LAST_MOMENTS: Duration = Duration::from_secs(3);

/// Of which kind, and how.
#[derive(Args, Debug)]
pub struct CostArguments<What: Args> {
    #[command(flatten)]
    pub what: What,
    #[command(flatten)]
    pub how: HowArguments,
}

#[derive(Args, Debug)]
pub struct HowArguments {
    #[command(flatten)]
    process: ProcessArguments,
    #[command(flatten)]
    tier: TierArgument,
    #[command(flatten)]
    budget: BudgetArguments,
    /// How long to measure in all. The longer, the smaller an effect that is told from noise.
    #[arg(long, default_value = "10m")]
    duration: ckb_probe_crds::Duration,
    /// How long each window lasts that is measured, 100ms at the least. There are two in a pair, and six pairs at least are compared. A
    /// kind may take windows of its own, by --window.
    #[arg(
        id = "each",
        long = "each",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = window
    )]
    window: ckb_probe_crds::Duration,
    /// How long to wait before each, for what attaching and detaching cost to be over and the budget to be as it stays.
    #[arg(long, default_value = "5s")]
    settle: ckb_probe_crds::Duration,
    #[command(flatten)]
    commands: CommandArguments,
    /// Print each window and each effect as a JSON line instead of the table.
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Print all of it as a line of JSON, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

/// The shortest window, as an argument: of less an account of CPU time, which is kept by ticks, says nothing.
fn window(text: &str) -> Result<ckb_probe_crds::Duration, String> {
    not_shorter(text, "window")
}

/// What is compared by turns.
struct Comparison<'a> {
    means: Result<CalibratedTier, Unmeasurable>,
    process: Process,
    /// What it executes, where that may be known.
    program: Option<Program>,
    question: &'a KindSpec,
    overhead: Overhead,
    source: Source<'a>,
    settle: Duration,
    window: Duration,
    waiting: Waiting,
}

/// Until when it is gone on with.
struct Waiting {
    alarm: Alarm,
    exit: Exit,
    interrupt: Signal,
    terminate: Signal,
    suspensions: Suspensions,
    /// Whether anything was taken off in the pair that is measured, for it to be suspended.
    suspended: bool,
}

/// Compares, and says what came of it.
pub async fn run(how: &HowArguments, question: &KindSpec) -> Result<Outcome, CliError> {
    let [duration, window, settle] = [how.duration, how.window, how.settle].map(|time| time.get());
    let suspensions = Suspensions::new()?;
    let process = find_process(how.process.pid, &how.process.executable)?;
    let mut comparison = Comparison {
        means: preflight(how.tier.tier).means,
        question,
        overhead: how.budget.overhead(),
        source: Source {
            process: process.id,
            commands: &how.commands,
        },
        settle,
        window,
        waiting: Waiting {
            alarm: Alarm::new().map_err(CliError::Alarm)?,
            exit: Exit::of(process.id)?,
            interrupt: signal(SignalKind::interrupt()).map_err(CliError::Signal)?,
            terminate: signal(SignalKind::terminate()).map_err(CliError::Signal)?,
            suspensions,
            suspended: false,
        },
        program: Program::of(process.id),
        process,
    };
    let mut end = Instant::now() + duration;
    let mut windows = Vec::new();
    let seed = fastrand::u32(..);
    let mut turns = Turns::of(seed);
    let mut pair = 0;
    let mut again = None;
    let mut ended = None;
    while Instant::now() + (comparison.settle + comparison.window) * 2 <= end + comparison.settle {
        let began = Instant::now();
        let turn = again.take().or_else(|| turns.next());
        let probed_first = turn.unwrap_or_default();
        let first = match comparison.window(pair, probed_first).await? {
            Ok(window) => window,
            Err(over) => {
                ended = Some(over.to_string());
                break;
            }
        };
        let second = match comparison.window(pair, !probed_first).await? {
            Ok(window) => window,
            Err(over) => {
                ended = Some(over.to_string());
                break;
            }
        };
        if std::mem::take(&mut comparison.waiting.suspended) {
            // In one window or between the two, what passed meanwhile would count as an effect.
            eprintln!(
                "ckb-probe: the pair of windows in which it was suspended, or was to be, is measured anew"
            );
            again = Some(probed_first);
            end += began.elapsed();
            continue;
        }
        windows.extend([first, second]);
        pair += 1;
        let left = end.saturating_duration_since(Instant::now());
        eprintln!("ckb-probe: {}", cost::progress(pair, &windows, left));
    }
    let title = comparison.title();
    let cost = Cost {
        subject: format!(
            "process {} ({}) {}",
            comparison.process.id.pid,
            comparison.process.executable,
            question.kind().as_str()
        ),
        seed,
        window: how.window.to_string(),
        settle: how.settle.to_string(),
        ended,
        compared: cost::compare(&windows),
        estimated_percent: cost::estimate(&windows),
        windows,
    };
    let mut out = std::io::stdout().lock();
    if how.output.is_some() {
        let is_empty = cost.compared.is_empty();
        writeln!(out, "{}", Document::of(View::Cost(cost)).line())?;
        out.flush()?;
        return Ok(match is_empty {
            true => Outcome::Said,
            false => Outcome::Measured,
        });
    }
    if how.json {
        lines::print(&mut out, &cost.windows, &cost.compared)?;
    } else {
        write!(out, "{}", cost::table(&cost.windows, &title))?;
        if let Some(ended) = &cost.ended {
            writeln!(out, "it ended before its time: {ended}")?;
        }
    }
    out.flush()?;
    Ok(match cost.compared.is_empty() {
        true => Outcome::Said,
        false => Outcome::Measured,
    })
}

impl Comparison<'_> {
    fn title(&self) -> String {
        let (window, settle) = (
            ckb_probe_crds::Duration::from(self.window),
            ckb_probe_crds::Duration::from(self.settle),
        );
        format!(
            "{} of process {}: windows of {window}, {settle} after each change",
            self.question.kind().as_str(),
            self.process.id.pid
        )
    }

    /// A window; or why that broke off.
    async fn window(
        &mut self,
        pair: usize,
        probed: bool,
    ) -> Result<Result<Window, Over>, CliError> {
        match self.measured(pair, probed).await {
            // Its threads do not end at once, nor is its memory given back at once: meanwhile it is there, and nothing can be attached to it or asked
            // of it. What was compared before is not lost by that.
            Err(_) if self.waiting.exit.comes_within(LAST_MOMENTS).await => {
                Ok(Err(Over::ProcessEnded))
            }
            window => window,
        }
    }

    async fn measured(
        &mut self,
        pair: usize,
        probed: bool,
    ) -> Result<Result<Window, Over>, CliError> {
        let mut executed = self.executes_another();
        let mut session = None;
        if probed {
            session = Some(Session::attach(
                self.means.clone(),
                self.process.clone(),
                self.question.clone(),
                self.overhead.clone(),
                self.window,
            )?);
        }
        if let Some(over) = self.waiting.pass(self.settle, session.as_mut()).await? {
            return Ok(Err(over));
        }
        if let Some(session) = &mut session {
            session.close_interval()?;
        }
        let before = self.source.look()?;
        let requests = self.source.commands.requests();
        if let Some(over) = self.waiting.pass(self.window, session.as_mut()).await? {
            return Ok(Err(over));
        }
        let account = self.source.since(&before, requests)?;
        executed |= self.executes_another();
        let mut estimated_percent = None;
        if let Some(session) = &mut session {
            session.close_interval()?;
            let report = session.instance().report(session.now());
            estimated_percent = report.overhead_millipercent.map(|one| one as f64 / 1000.0);
        }
        Ok(Ok(Window {
            pair,
            probed,
            account,
            estimated_percent,
            readings: Vec::new(),
            executed,
        }))
    }

    /// Whether it executes another program than the last time, which is said.
    fn executes_another(&mut self) -> bool {
        let before = self.program;
        self.program = Program::of(self.process.id).or(before);
        let another = before.is_some() && before != self.program;
        if another {
            eprintln!(
                "ckb-probe: process {} executes another program by now: windows before it and after it are of two programs, and the one in \
                 which it did is of both",
                self.process.id.pid
            );
        }
        another
    }
}

impl Waiting {
    /// Lets so much time pass, keeping to the budget where something is attached; or says why that was broken off.
    async fn pass(
        &mut self,
        time: Duration,
        mut session: Option<&mut Session>,
    ) -> Result<Option<Over>, CliError> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let step = session.as_ref().and_then(|session| session.next_step());
            tokio::select! {
                _ = self.interrupt.recv() => return Ok(Some(Over::Interrupted)),
                _ = self.terminate.recv() => return Ok(Some(Over::Told)),
                () = self.exit.wait() => return Ok(Some(Over::ProcessEnded)),
                asked = self.suspensions.next() => {
                    self.suspended |= asked.take(session.as_deref_mut())?;
                }
                woken = self.alarm.at(step) => {
                    woken.map_err(CliError::Alarm)?;
                    if let Some(session) = &mut session {
                        session.step()?;
                    }
                }
                () = sleep_until(end) => {}
            }
        }
        Ok(None)
    }
}

impl From<AccountError> for CliError {
    fn from(error: AccountError) -> Self {
        match error {
            AccountError::Observe(error) => HostError::from(error).into(),
            other => Self::Account(other),
        }
    }
}
