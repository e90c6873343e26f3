//! `ckb-probe check`: can this host measure; and of a process, what is broken first.

use std::{
    io::{self, Write},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_agent::{
    host::{HostError, Session, find_process},
    kernel::CalibratedTier,
    kinds::instrumented,
    mechanism::calls::CallsConfig,
    observe::{Life, Process, SymbolCache, find_symbols},
    preflight::{Preflight, Unmeasurable, preflight},
};
use ckb_probe_crds::{Check, Descriptor, Overhead, Probe, Summary, display_nanos};
use ckb_probe_kubectl::Output;
use ckb_probe_views::{
    diagnosis::{
        Diagnosis,
        host::{Counted, Functions, HostSnapshot},
    },
    presets::{self, Preset},
    text::wrapped,
};
use clap::Args;
use serde_json::json;

use super::{CliError, Outcome, TierArgument, suspension};

/// A sampled row has its turn within that time, mostly.
const STEP: Duration = Duration::from_millis(20);

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe check                                   this host alone\n  \
    ckb-probe check --pid 1234                        what is broken first, on the way to figures of this process\n  \
    ckb-probe check --executable postgres --preset disk -o short\n  \
    ckb-probe check --pid 1234 -o json | jq .ok\n\n\
    Exit codes: 0 nothing is broken; 1 something is; 2 wrong arguments.")]
pub struct CheckArguments {
    #[command(flatten)]
    tier: TierArgument,
    /// Print each check of this host as a JSON line, as a NodeProbe has them, instead of the table.
    #[arg(long, conflicts_with_all = ["pid", "executable", "output"])]
    json: bool,
    /// Also look at this process, up to its figures.
    #[arg(long)]
    pid: Option<u32>,
    /// Also look at the process that runs an executable of this base name.
    #[arg(long, conflicts_with = "pid")]
    executable: Option<String>,
    /// What is asked of the process: storage, latency, network, disk, flames, blocks, fiber, light-client or everything.
    #[arg(long, default_value = "storage", value_parser = preset)]
    preset: Preset,
    /// Count for so many seconds.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// What is printed. Of this host alone, full is a table of each check.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
    /// Look again until nothing is broken, for so long.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    wait: ckb_probe_crds::Duration,
}

/// The question of this name.
pub fn preset(name: &str) -> Result<Preset, String> {
    let names = || presets::all().iter().map(|one| one.name.as_str());
    let found = presets::named(name).cloned();
    found.ok_or_else(|| format!("there are {}", names().collect::<Vec<_>>().join(", ")))
}

pub fn run(arguments: &CheckArguments) -> Result<Outcome, CliError> {
    let preflight = preflight(arguments.tier.tier);
    if arguments.pid.is_some() || arguments.executable.is_some() {
        return of_process(arguments, preflight);
    }
    if !arguments.json && arguments.output != Output::Full {
        return print(arguments, &host(&preflight).diagnose());
    }
    let Preflight { checks, means } = preflight;
    let mut out = io::stdout().lock();
    if arguments.json {
        for check in &checks {
            writeln!(out, "{}", json!(check))?;
        }
    } else {
        print_checks(&mut out, &checks)?;
        if let Ok(means) = &means {
            print_means(&mut out, means)?;
        }
    }
    out.flush()?;
    Ok(match means {
        Ok(_) => Outcome::Measured,
        Err(_) => Outcome::CannotMeasure,
    })
}

/// The places of a process, one after the other.
fn of_process(arguments: &CheckArguments, preflight: Preflight) -> Result<Outcome, CliError> {
    suspension::refuse()?;
    let end = Instant::now() + arguments.wait.get();
    let found = loop {
        let found = look(arguments, &preflight).diagnose();
        if found.ok || Instant::now() >= end {
            break found;
        }
        thread::sleep(Duration::from_secs(1));
    };
    print(arguments, &found)
}

fn print(arguments: &CheckArguments, found: &Diagnosis) -> Result<Outcome, CliError> {
    arguments.output.print(found)?;
    Ok(match found.ok {
        true => Outcome::Measured,
        false => Outcome::Said,
    })
}

/// What is known without a process.
fn host(preflight: &Preflight) -> HostSnapshot {
    let means = preflight.means.as_ref();
    HostSnapshot {
        checks: preflight.checks.clone(),
        means: Some(means.map(told).map_err(Unmeasurable::to_string)),
        ..HostSnapshot::default()
    }
}

/// Looks until something is in the way.
fn look(arguments: &CheckArguments, preflight: &Preflight) -> HostSnapshot {
    let means = preflight.means.clone();
    let mut found = host(preflight);
    let executable = arguments.executable.as_deref().unwrap_or_default();
    let process = find_process(arguments.pid, executable);
    let said = process.as_ref();
    found.process = Some(
        said.map(|one| format!("process {} ({})", one.id.pid, one.executable))
            .map_err(HostError::to_string),
    );
    let Some(process) = process.ok().filter(|_| means.is_ok()) else {
        return found;
    };
    let probes = &arguments.preset.probes;
    let functions = functions(&process, probes);
    let goes_on = functions
        .as_ref()
        .is_ok_and(|one| one.found > 0 || one.not_by_all);
    found.symbols = Some(functions);
    if !goes_on {
        return found;
    }
    let time = Duration::from_secs(arguments.seconds.into());
    let life = Life::of(process.id);
    let began = Session::attach_all(means, process, probes.clone(), Overhead::default(), time);
    match began {
        Err(HostError::Attach(refusal)) => {
            found.attached = Some(Err((refusal.reason, refusal.message)));
        }
        Err(error) => {
            let reason = ckb_probe_crds::Reason::AttachFailed;
            found.attached = Some(Err((reason, error.to_string())));
        }
        Ok(mut session) => {
            found.attached = Some(Ok(session.lacks_of_the_kernel()));
            let refused = session.refused().into_iter();
            found.refused = refused
                .map(|(name, refusal)| (name, refusal.reason, refusal.message))
                .collect();
            let life = life.ok();
            let is_over = || life.as_ref().is_none_or(Life::is_over);
            found.figures = Some(count(&mut session, probes, time, is_over));
            if is_over() {
                let ended = |name| Err::<String, _>(format!("{name} ended while it was counted"));
                found.process = found.process.map(|process| process.and_then(ended));
            }
        }
    }
    found
}

fn told(means: &CalibratedTier) -> String {
    format!(
        "attaches by {}, a probed call costs {}",
        means.tier.as_str(),
        display_nanos(means.calibration.cost_per_call_ns)
    )
}

/// Which of the functions are there that these look for by name.
fn functions(process: &Process, probes: &[Probe]) -> Result<Functions, String> {
    let mut names = std::collections::BTreeSet::new();
    let mut by_name = 0;
    for one in instrumented(probes) {
        if let Some(CallsConfig { sought, .. }) = one.instrument.config().of() {
            let listed = sought.listed().iter().flat_map(|one| &one.functions);
            let listed: Vec<_> = listed.map(|function| function.symbol).collect();
            by_name += usize::from(!listed.is_empty());
            names.extend(listed);
        }
    }
    let wanted = !names.is_empty();
    let not_by_all = by_name < probes.len();
    if !wanted {
        return Ok(Functions {
            not_by_all,
            ..Functions::default()
        });
    }
    let symbols = find_symbols(process.id, &names, &SymbolCache::default());
    let symbols = symbols.map_err(|error| error.to_string())?;
    Ok(Functions {
        found: symbols.found.len(),
        missing: symbols.missing.iter().map(ToString::to_string).collect(),
        stripped: symbols.stripped,
        wanted,
        not_by_all,
    })
}

/// Counts for this time, or until the process is over.
fn count(
    session: &mut Session,
    probes: &[Probe],
    time: Duration,
    is_over: impl Fn() -> bool,
) -> Counted {
    let end = Instant::now() + time;
    while Instant::now() < end && !is_over() {
        // What it says shows in what was counted.
        drop(session.step());
        session.drain();
        thread::sleep(STEP);
    }
    drop(session.close_interval());
    let report = session.instance().report(session.now());
    let rows = || report.probes.iter().flat_map(|probe| &probe.rows);
    let kinds = probes
        .iter()
        .filter_map(|probe| Some((probe, probe.kind_spec()?.kind().descriptor())));
    let headlines = kinds.clone().filter_map(|(probe, descriptor)| {
        let reported = report.probes.iter().find(|one| one.name == probe.name)?;
        let headline = headline(descriptor, &reported.rows);
        (!headline.is_empty()).then(|| match probes.len() {
            1 => headline,
            _ => format!("{} {headline}", probe.name),
        })
    });
    Counted {
        seconds: time.as_secs_f64(),
        any: rows().any(|row| !row.total.is_idle()),
        headline: headlines.collect::<Vec<_>>().join(" · "),
        quiet: kinds.clone().all(|(_, descriptor)| descriptor.quiet),
    }
}

fn headline(descriptor: &Descriptor, rows: &[ckb_probe_crds::RowReport]) -> String {
    let summary = |row: &ckb_probe_crds::RowReport| Summary::of(&row.total, &row.window, true);
    descriptor.headline_of(rows.iter().map(|row| (&*row.key, summary(row))))
}

fn print_checks(out: &mut impl Write, checks: &[Check]) -> io::Result<()> {
    writeln!(out, "{:<17}  OK   DETAIL", "CHECK")?;
    for check in checks {
        let ok = if check.passed { "ok" } else { "no" };
        let head = format!("{:<17}  {ok}   ", check.name);
        writeln!(out, "{}", wrapped(&check.detail, &head, &" ".repeat(24)))?;
    }
    writeln!(out)
}

fn print_means(out: &mut impl Write, means: &CalibratedTier) -> io::Result<()> {
    let calibration = means.calibration;
    writeln!(out, "attach tier      {}", means.tier.as_str())?;
    writeln!(
        out,
        "calls counted    {} of {}",
        calibration.counted, calibration.calls
    )?;
    writeln!(
        out,
        "cost of a call   {}",
        display_nanos(calibration.cost_per_call_ns)
    )?;
    writeln!(
        out,
        "  of which seen as the call's own time, and taken off: {}",
        display_nanos(calibration.trap_ns)
    )?;
    writeln!(
        out,
        "  single-stepped {}",
        display_nanos(calibration.single_step_cost_ns)
    )
}
