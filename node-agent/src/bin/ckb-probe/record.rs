//! `ckb-probe record`: what is measured, written down for `ckb-probe report`.

pub mod folder;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ckb_probe_agent::{
    host::{Session, find_process},
    observe::kernel_release,
    preflight::preflight,
    text,
};
use ckb_probe_crds::{Breach, Probe};
use ckb_probe_profiles::{Profile, ProfileMode};
use ckb_probe_report::{Asked, End, Header, Interval, SCHEMA};
use ckb_probe_views::presets::Preset;
use clap::Args;
use nix::time::ClockId;
use tokio::time::Instant;

use self::folder::{FolderError, Writer};
use super::{
    BudgetArguments, CliError, Outcome, ProcessArguments, TierArgument, check,
    intervals::{Ends, interval},
    measure::wait_for_process,
};

/// What the stacks of one sort may take of memory, and of a file.
const STACK_BYTES: usize = 4 << 20;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe record --executable ckb -o ckb.record --for 10m\n  \
    ckb-probe record --preset everything -o ckb.record --for 48h\n  \
    ckb-probe record --probe probes.yaml -o ckb.record    what a CkbProbe has under spec.probes\n  \
    ckb-probe report ckb.record -o report.html            also while it is recorded\n\n\
    A record that is there is gone on with. It never grows beyond --max-mebibytes: of the oldest part only minutes stay, and in the end nothing.\n\
    Exit codes: 0 recorded; 1 could not; 2 wrong arguments.")]
pub struct RecordArguments {
    #[command(flatten)]
    process: ProcessArguments,
    #[command(flatten)]
    tier: TierArgument,
    /// What is asked: storage, latency, network, disk, flames, blocks, fiber, light-client or everything.
    #[arg(long, default_value = "storage", value_parser = check::preset, conflicts_with = "probe")]
    preset: Preset,
    /// What is asked instead: a file of YAML or JSON with probes, as a CkbProbe has them under spec.probes.
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
    /// The folder of the record. It is made where there is none.
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Stop after this time. Unset: at Ctrl-C, or when the process ends.
    #[arg(long = "for", value_name = "DURATION")]
    duration: Option<ckb_probe_crds::Duration>,
    /// How long an interval is, 100ms at the least.
    #[arg(long, default_value = "5s", value_parser = interval)]
    interval: ckb_probe_crds::Duration,
    /// How many bytes the record may have, in MiB. 256 hold two days of a busy node.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    max_mebibytes: u64,
    #[command(flatten)]
    budget: BudgetArguments,
    /// Wait for the process if it does not run yet.
    #[arg(long, conflicts_with = "pid")]
    wait: bool,
}

/// Why what is asked cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot read {0}: {1}")]
    Probes(String, #[source] std::io::Error),
    #[error("{0} has no probes as a CkbProbe has them under spec.probes: {1}")]
    NoProbes(String, #[source] serde_yaml::Error),
    #[error("{0} has a probe {1:?} that asks nothing: give it a kind, such as rocksdb: {{}}")]
    NoKind(String, String),
    #[error(
        "{0} has a probe named {1:?}: a probe's name must be a label, at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"
    )]
    NoLabel(String, String),
    #[error(
        "{0} has two probes named {1:?}: give each a name of its own, by which its figures are told"
    )]
    Twice(String, String),
    #[error("{0} does not answer: the last interval may not be recorded")]
    Hangs(String),
}

/// Records until the time is up.
pub async fn run(arguments: &RecordArguments) -> Result<Outcome, CliError> {
    let probes = probes(arguments)?;
    let means = preflight(arguments.tier.tier).means;
    let process = match arguments.wait {
        true => wait_for_process(&arguments.process.executable).await?,
        false => find_process(arguments.process.pid, &arguments.process.executable)?,
    };
    let ends = Ends::of(process.id)?;
    let interval = arguments.interval.get();
    let overhead = arguments.budget.overhead();
    let mut header = Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        run: now(),
        target: format!("process {} ({})", process.id.pid, process.executable),
        kernel: kernel_release(),
        interval_milliseconds: milliseconds(interval),
        budget: format!(
            "{} % of its CPU time, and {} % of a core; beyond it {}",
            overhead.max_percent,
            overhead.floor,
            match overhead.on_breach {
                Breach::Sample => "calls are sampled",
                Breach::Detach => "it is detached",
                Breach::Report => "it is only reported",
            }
        ),
        budget_millipercent: (overhead.max_percent * 1000.0) as u64,
        probes: probes.iter().filter_map(asked).collect(),
        ..Header::default()
    };
    if let Ok(means) = &means {
        header.tier = means.tier.as_str().to_owned();
        header.cost_per_call_ns = means.calibration.cost_per_call_ns;
    }
    let mut session = Session::attach_with_stacks(means, process, (probes, overhead), interval)?;
    header.lacks = session.lacks();
    if !header.lacks.is_empty() {
        eprintln!("ckb-probe: attached{}", header.lacks);
    }
    let folder = &arguments.output;
    let hangs = || RecordError::Hangs(text::of_path(folder));
    let time = arguments.duration.map(ckb_probe_crds::Duration::get);
    let mut intervals = ends.intervals(interval, time)?;
    let (to, most) = (folder.clone(), arguments.max_mebibytes << 20);
    let begin = move || Writer::begin(&to, header, most).map_err(RecordError::from);
    let begun = intervals.meanwhile(&mut session, begin).await?;
    let mut writer = begun.ok_or_else(hangs)??;
    eprintln!(
        "ckb-probe: records in {}; `ckb-probe report {0} -o report.html` draws it at any time",
        text::of_path(folder)
    );
    let mut stacks = StackFiles::default();
    let mut closed = (Instant::now(), own_cpu());
    let mut over = None;
    while over.is_none() {
        over = intervals
            .next(&mut session)
            .await?
            .over
            .map(|over| over.to_string());
        session.close_interval()?;
        let (at, cpu) = (Instant::now(), own_cpu());
        let report = session.instance().report(session.now());
        let lasted = milliseconds(at.saturating_duration_since(closed.0));
        let mut told = Interval::of(report, now(), lasted);
        let renewals = session.told_renewals();
        for said in &renewals {
            eprintln!("ckb-probe: {said}");
        }
        told.renewed = renewals.len() as u64;
        told.own_cpu = milliseconds(cpu.saturating_sub(closed.1));
        closed = (at, cpu);
        // Events are in the report; nobody else takes them here.
        drop(session.told_events());
        for (probe, finished) in session.stacks() {
            if let Ok(profile) = &finished.stacks {
                stacks.add(&probe, finished.mode, profile);
            }
        }
        let folder = folder.clone();
        let write = move || {
            let written = writer.write(told).map_err(RecordError::from);
            let written = written.and_then(|()| stacks.write(&folder));
            written.map(|()| (writer, stacks))
        };
        let written = intervals.meanwhile(&mut session, write).await?;
        (writer, stacks) = written.ok_or_else(hangs)??;
        over = over.or_else(|| session.instance().must_detach());
    }
    // Whoever takes the end of the record may take their time.
    drop(session);
    let reason = over.unwrap_or_default();
    let ended = writer.end(End { at: now(), reason });
    ended.map_err(RecordError::from)?;
    Ok(Outcome::Measured)
}

fn probes(arguments: &RecordArguments) -> Result<Vec<Probe>, RecordError> {
    let Some(file) = &arguments.probe else {
        return Ok(arguments.preset.probes.clone());
    };
    let name = text::of_path(file);
    let written =
        std::fs::read_to_string(file).map_err(|error| RecordError::Probes(name.clone(), error))?;
    let probes: Vec<Probe> = serde_yaml::from_str(&written)
        .map_err(|error| RecordError::NoProbes(name.clone(), error))?;
    let mut seen = BTreeSet::new();
    for probe in &probes {
        let own = probe.name.clone();
        if !is_label(&own) {
            return Err(RecordError::NoLabel(name, own));
        }
        if probe.kind_spec().is_none() {
            return Err(RecordError::NoKind(name, own));
        }
        if !seen.insert(own.clone()) {
            return Err(RecordError::Twice(name, own));
        }
    }
    Ok(probes)
}

/// As the API server asks of a CkbProbe. Files of stacks are named by it, so it must lead nowhere else.
fn is_label(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.bytes().all(|byte| inner(byte) || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn asked(probe: &Probe) -> Option<Asked> {
    Some(Asked {
        name: probe.name.clone(),
        kind: probe.kind_spec()?.kind().as_str().to_owned(),
    })
}

/// Milliseconds since 1970.
fn now() -> u64 {
    milliseconds(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What this program has used of CPUs.
fn own_cpu() -> Duration {
    let time = ClockId::CLOCK_PROCESS_CPUTIME_ID.now();
    time.map(Duration::from).unwrap_or_default()
}

/// Stacks of a record, one file for each probe and what they are weighted by.
#[derive(Default)]
struct StackFiles(BTreeMap<(String, ProfileMode), (Profile, bool)>);

impl StackFiles {
    fn add(&mut self, probe: &str, mode: ProfileMode, profile: &Profile) {
        let key = (probe.to_owned(), mode);
        let (held, news) = self
            .0
            .entry(key)
            .or_insert_with(|| (Profile::of(mode), false));
        // Of another sort they cannot be: they are of this mode.
        *news |= held.merge(profile).is_ok();
        if held.stacks.bytes() > STACK_BYTES {
            held.lighten_to(STACK_BYTES / 2);
        }
    }

    /// Writes those that have grown.
    fn write(&mut self, to: &Path) -> Result<(), RecordError> {
        for ((probe, mode), (profile, news)) in &mut self.0 {
            if std::mem::take(news) {
                let name = format!("stacks.{probe}.{}.pb.gz", mode.as_str());
                let written = folder::replace(to, &name, &profile.to_pprof());
                written.map_err(|error| FolderError::Write(text::of_path(to), error))?;
            }
        }
        Ok(())
    }
}
