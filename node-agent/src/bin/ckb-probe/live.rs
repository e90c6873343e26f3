//! The verbs `top`, `slow`, `heatmap` and `histogram` of a process on this host; of a cluster without one.

pub mod blocks;

use std::{
    io::{self, Write as _},
    ops::ControlFlow,
    time::Duration,
};

use ckb_probe_agent::{
    host::{Session, find_process},
    mechanism::Event as Happened,
    preflight::preflight,
};
use ckb_probe_crds::{EventStatus, InstanceReport, Probe};
use ckb_probe_kubectl::{VerbError, heatmap, histogram, slow, top};
use ckb_probe_views::{
    document::Event,
    heatmap::{Heatmap, told_by},
    histogram::{of_reports, others as rows_of},
    presets::Preset,
    top as moments,
    unlisted::Sampled,
};
use clap::Args;
use serde_json::Value;
use tokio::{
    runtime::Handle,
    sync::{mpsc::channel, oneshot},
    task::spawn_blocking,
    time::{Instant, timeout},
};

use super::{
    BudgetArguments, CliError, Outcome, TierArgument,
    check::preset,
    intervals::{Ends, Intervals, Over, Waited, interval},
    measure::say_renewals,
    suspension::NOT_SUSPENDED,
};

/// So long a terminal is waited for that is to be given back.
const LAST_PICTURE: Duration = Duration::from_secs(1);

/// A process of this host, and how it is measured.
#[derive(Args, Debug)]
#[command(next_help_heading = "On this host")]
pub struct TargetArguments {
    /// On this host instead of a cluster: the process to measure, by its process id.
    #[arg(long)]
    pid: Option<u32>,
    /// The process to measure, by the base name of its executable.
    #[arg(long, conflicts_with = "pid")]
    executable: Option<String>,
    /// How long an interval is, 100ms at the least.
    #[arg(long, default_value = "1s", value_parser = interval)]
    interval: ckb_probe_crds::Duration,
    #[command(flatten)]
    tier: TierArgument,
    #[command(flatten)]
    budget: BudgetArguments,
}

impl TargetArguments {
    /// Whether a process is named.
    pub fn is_asked(&self) -> bool {
        self.pid.is_some() || self.executable.is_some()
    }
}

/// The same, and what is asked of it.
#[derive(Args, Debug)]
#[command(next_help_heading = "On this host")]
pub struct LocalArguments {
    #[command(flatten)]
    target: TargetArguments,
    /// What is asked of it: storage, latency, network, disk, flames, blocks, fiber, light-client or everything.
    #[arg(long, default_value = "storage", value_parser = preset)]
    preset: Preset,
}

impl LocalArguments {
    fn is_asked(&self) -> bool {
        self.target.is_asked()
    }
}

#[derive(Args, Debug)]
pub struct HostTopArguments {
    #[command(flatten)]
    cluster: top::TopArguments,
    #[command(flatten)]
    local: LocalArguments,
}

#[derive(Args, Debug)]
pub struct SlowArguments {
    /// The CkbProbe, of a cluster. Unset: all of the namespace.
    name: Option<String>,
    #[command(flatten)]
    cluster: ckb_probe_kubectl::ClusterArguments,
    #[command(flatten)]
    how: slow::ListArguments,
    /// What takes so long, or longer, is listed, of each kind that the preset asks for. Unset: as the preset says.
    #[arg(long, value_name = "DURATION", help_heading = "On this host")]
    threshold: Option<ckb_probe_crds::Duration>,
    #[command(flatten)]
    local: LocalArguments,
}

#[derive(Args, Debug)]
pub struct HistogramArguments {
    /// The CkbProbe, of a cluster.
    #[arg(required_unless_present_any = ["pid", "executable"])]
    name: Option<String>,
    #[command(flatten)]
    cluster: ckb_probe_kubectl::ClusterArguments,
    #[command(flatten)]
    how: histogram::HowArguments,
    #[command(flatten)]
    local: LocalArguments,
}

#[derive(Args, Debug)]
pub struct HeatmapArguments {
    /// The CkbProbe, of a cluster, and the row of it, such as Get; of a process the row alone. Unset: the busiest row.
    #[arg(required_unless_present_any = ["pid", "executable"], num_args = 0..=2, value_names = ["NAME", "ROW"])]
    names: Vec<String>,
    #[command(flatten)]
    cluster: ckb_probe_kubectl::ClusterArguments,
    #[command(flatten)]
    how: heatmap::DrawArguments,
    #[command(flatten)]
    local: LocalArguments,
}

/// What is said of hosts at the end of `--help`.
pub const TOP: &str = "Examples:\n  \
    ckb-probe top --pid 1234                      a process of this host, live\n  \
    ckb-probe top --executable ckb --preset latency --interval 5s\n  \
    ckb-probe top --executable ckb --once         one picture, after one interval\n  \
    ckb-probe top -n ckb                          a cluster, as kubectl ckbprobe top\n\n\
    Keys: q quits, ? tells the others. Exit codes: 0 something is measured; 1 nothing is; 2 wrong arguments.";
pub const SLOW: &str = "Examples:\n  \
    ckb-probe slow --executable ckb                   slow calls of RocksDB, until Ctrl-C\n  \
    ckb-probe slow --pid 1234 --threshold 5ms --for 10m\n  \
    ckb-probe slow --pid 1234 --preset disk -o json   of disks and system calls, as kubectl ckbprobe slow -o json prints them\n  \
    ckb-probe slow ckb -n ckb                         a cluster, as kubectl ckbprobe slow\n\n\
    ckb-probe rocksdb --events prints the same with all that is known of each, in the form of the agent's log.";
pub const HISTOGRAM: &str = "Examples:\n  \
    ckb-probe histogram --pid 1234 --row Get --interval 10s\n  \
    ckb-probe histogram --executable ckb --preset disk --probe calls\n  \
    ckb-probe histogram ckb -n ckb --row Get      a cluster, as kubectl ckbprobe histogram\n\n\
    Exit codes: 0 there are some; 1 there is none; 2 wrong arguments.";
pub const HEATMAP: &str = "Examples:\n  \
    ckb-probe heatmap --pid 1234                  the busiest row, for five minutes or until Ctrl-C\n  \
    ckb-probe heatmap --executable ckb TxnCommit --interval 5s --for 10m\n  \
    ckb-probe heatmap ckb Get -n ckb              a cluster, as kubectl ckbprobe heatmap\n\n\
    Exit codes: 0 there are some; 1 there is none; 2 wrong arguments.";

pub async fn top(arguments: HostTopArguments) -> Result<Outcome, CliError> {
    let HostTopArguments { cluster, local } = arguments;
    if !local.is_asked() {
        let shown = top::run(&cluster).await;
        return Ok(Outcome::from(shown.map_err(CliError::of_cluster)?));
    }
    let picture = cluster.picture;
    if !picture.is_asked() {
        // Before anything is attached.
        ckb_probe_kubectl::check_terminal().map_err(VerbError::from)?;
    }
    let mut session = Local::attach(&local.target, &local.preset.probes)?;
    let title = format!("ckb-probe top  {}", session.subject);
    let name = session.subject.clone();
    let began = Instant::now();
    if picture.is_asked() {
        let mut outcome = Outcome::Said;
        let over = session
            .intervals(None, |report, stamp| {
                let moment =
                    moments::of_reports(&name, &report.probes, report.overhead_millipercent, stamp);
                outcome = super::Outcome::from(top::outcome(&moment));
                Ok(ControlFlow::Break(picture.text(&title, &moment)))
            })
            .await?;
        say_unfinished(over);
        return Ok(outcome);
    }
    // Whoever draws gives the terminal back before all of this is suspended, and takes it again after it.
    let suspensions = session
        .ends
        .as_mut()
        .map(|ends| ends.suspensions.of_screen());
    let suspend = async move || -> Option<String> {
        let (over, is_over) = oneshot::channel();
        suspensions.as_ref()?.send(over).await.ok()?;
        // Where nobody answers any more, all of it is over.
        let is_suspended = is_over.await.unwrap_or(true);
        (!is_suspended).then(|| NOT_SUSPENDED.to_owned())
    };
    // What the terminal has no time for, it is told of together with what comes next: a picture is of now.
    let (told, tells) = channel(16);
    let says = told.clone();
    session.on_screen = Some(Box::new(move |said| {
        drop(says.try_send(top::said_of(said)));
    }));
    let measured = session.intervals(None, |report, stamp| {
        let moment =
            moments::of_reports(&name, &report.probes, report.overhead_millipercent, stamp);
        drop(told.try_send(top::told_of(moment, began.elapsed())));
        Ok(ControlFlow::Continue(String::new()))
    });
    // A terminal that takes nothing holds up whoever draws, and not whoever keeps within the budget.
    let runtime = Handle::current();
    let show = move || runtime.block_on(ckb_probe_kubectl::show_on_terminal(title, tells, suspend));
    let mut shown = spawn_blocking(show);
    tokio::select! {
        shown = &mut shown => shown.map_err(io::Error::other)?.map_err(VerbError::from)?,
        ended = measured => {
            // It was told of by what is gone now, and gives the terminal back.
            drop(timeout(LAST_PICTURE, shown).await);
            if let Some(said) = ended? {
                eprintln!("ckb-probe: {said}");
            }
        }
    }
    Ok(Outcome::Measured)
}

pub async fn slow(arguments: SlowArguments) -> Result<Outcome, CliError> {
    let SlowArguments {
        name,
        cluster,
        how,
        threshold,
        mut local,
    } = arguments;
    if !local.is_asked() {
        let shown = slow::run(name.as_deref(), &cluster, &how).await;
        return Ok(Outcome::from(shown.map_err(CliError::of_cluster)?));
    }
    if let Some(threshold) = threshold {
        local.preset.probes.iter_mut().for_each(|probe| {
            lists_from(probe, threshold);
        });
    }
    let mut measured = Local::attach(&local.target, &local.preset.probes)?;
    let Local { subject, .. } = &measured;
    let (subject, executable) = (subject.clone(), measured.session.process.executable.clone());
    let time = how.time.map(ckb_probe_crds::Duration::get);
    let probes = local.preset.probes;
    let said = measured
        .events(time, |events| {
            let named = events.iter();
            let told = named.map(|(event, line)| Event {
                subject: subject.clone(),
                probe: line["probe"].as_str().unwrap_or_default().to_owned(),
                event: shown(event, line, &probes, &executable),
            });
            how.text(told.collect())
        })
        .await?;
    if let Some(unlisted) = measured.sampled.told() {
        eprintln!("ckb-probe: {unlisted}");
    }
    eprintln!("ckb-probe: {said}");
    Ok(Outcome::Measured)
}

/// Has what takes so long listed, where the kind has a threshold.
fn lists_from(probe: &mut Probe, threshold: ckb_probe_crds::Duration) {
    if let Some(of) = &mut probe.rocksdb {
        of.slow_threshold = threshold;
    }
    if let Some(of) = &mut probe.syscalls {
        of.slow_threshold = threshold;
    }
    if let Some(of) = &mut probe.block_io {
        of.slow_threshold = threshold;
    }
    if let Some(of) = &mut probe.chain {
        of.threshold = threshold;
    }
    if let Some(of) = &mut probe.functions {
        of.threshold = Some(threshold);
    }
    if let Some(of) = &mut probe.kernel_functions {
        of.threshold = Some(threshold);
    }
    let between = probe.usdt.iter_mut().flat_map(|of| &mut of.between);
    for of in between {
        of.threshold = Some(threshold);
    }
}

/// As a status has it; what happened is of a process in place of a pod.
fn shown(event: &Happened, line: &Value, probes: &[Probe], executable: &str) -> EventStatus {
    let text = |name: &str| line[name].as_str();
    let mut named = probes.iter();
    let probe = named.find(|probe| text("probe") == Some(&*probe.name));
    let kind = probe.and_then(Probe::kind_spec).map(|asked| asked.kind());
    let descriptor = kind.map(ckb_probe_crds::Kind::descriptor);
    let row = descriptor.and_then(|of| text(of.row)).unwrap_or_default();
    let part = descriptor.and_then(|of| of.part).and_then(text);
    let report = event.report(row, part);
    report.told_of(executable.to_owned(), String::new())
}

pub async fn histogram(arguments: HistogramArguments) -> Result<Outcome, CliError> {
    let HistogramArguments {
        name,
        cluster,
        how,
        local,
    } = arguments;
    if let Some(name) = name.filter(|_| !local.is_asked()) {
        let shown = histogram::run(&name, &cluster, &how).await;
        return Ok(Outcome::from(shown.map_err(CliError::of_cluster)?));
    }
    let mut session = Local::attach(&local.target, &local.preset.probes)?;
    let subject = session.subject.clone();
    let probes = local.preset.probes.clone();
    let mut is_found = None;
    let mut others = String::new();
    let over = session
        .intervals(None, |report, _| {
            let found = of_reports(&subject, &probes, &report.probes, how.which());
            is_found = Some(!found.is_empty());
            let of_any_row = how.which().of_any_row();
            others = rows_of(&of_reports(&subject, &probes, &report.probes, of_any_row));
            Ok(ControlFlow::Break(how.text(&found)))
        })
        .await?;
    if is_found == Some(false) {
        eprintln!("ckb-probe: nothing was measured of that within the interval{others}");
    }
    say_unfinished(over);
    Ok(match is_found {
        Some(true) => Outcome::Measured,
        _ => Outcome::Said,
    })
}

/// Why there is nothing to show of an interval, where it was not over.
fn say_unfinished(over: Option<String>) {
    if let Some(why) = over {
        eprintln!("ckb-probe: {why} before the interval was over: there is nothing to show");
    }
}

pub async fn heatmap(arguments: HeatmapArguments) -> Result<Outcome, CliError> {
    let HeatmapArguments {
        names,
        cluster,
        how,
        local,
    } = arguments;
    let mut names = names.into_iter();
    if !local.is_asked() {
        let name = names.next().unwrap_or_default();
        let row = names.next();
        let shown = heatmap::run(&name, row.as_deref(), &cluster, &how).await;
        return Ok(Outcome::from(shown.map_err(CliError::of_cluster)?));
    }
    let row = names.next();
    if let (Some(row), Some(more)) = (&row, names.next()) {
        return Err(CliError::Which(format!(
            "of a process one row is drawn, and not {row} and {more}: name one"
        )));
    }
    let which = how.which(row.as_deref());
    let mut session = Local::attach(&local.target, &local.preset.probes)?;
    let heatmap = Heatmap::of(&session.subject, &local.preset.probes, which);
    let mut heatmap = heatmap.ok_or_else(|| VerbError::NoDistribution(session.subject.clone()))?;
    let mut canvas = how.canvas();
    let began = Instant::now();
    let time = Some(how.time.get());
    let probes = local.preset.probes.clone();
    let subject = session.subject.clone();
    let over = session
        .intervals(time, |report, stamp| {
            heatmap.choose(|| {
                let each = of_reports(&subject, &probes, &report.probes, which);
                each.into_iter().next().map(|one| one.row)
            });
            let told = told_by(&report.probes, stamp, heatmap.which());
            let complete = heatmap.take(&told, began.elapsed(), &top::clock());
            Ok(ControlFlow::Continue(canvas.draw(&heatmap, &complete)))
        })
        .await?;
    drop(session);
    let mut out = io::stdout().lock();
    out.write_all(canvas.end(&mut heatmap).as_bytes())?;
    out.flush()?;
    if let Some(why) = over {
        eprintln!("ckb-probe: {why}");
    }
    if heatmap.is_empty() {
        eprintln!("ckb-probe: nothing was measured of that within a whole interval");
    }
    Ok(Outcome::from(heatmap::outcome(&heatmap)))
}

/// A process that is measured.
struct Local {
    session: Session,
    /// Until it is waited for.
    ends: Option<Ends>,
    subject: String,
    interval: Duration,
    sampled: Sampled,
    /// What is done with what there is to say while a screen is drawn, over which nothing else may be printed; None where there is none.
    on_screen: Option<Box<dyn FnMut(String)>>,
}

impl Local {
    fn attach(arguments: &TargetArguments, probes: &[Probe]) -> Result<Self, CliError> {
        let executable = arguments.executable.as_deref().unwrap_or_default();
        let process = find_process(arguments.pid, executable)?;
        let ends = Ends::of(process.id)?;
        let means = preflight(arguments.tier.tier).means;
        let subject = format!("process {} ({})", process.id.pid, process.executable);
        let interval = arguments.interval.get();
        let overhead = arguments.budget.overhead();
        let session = Session::attach_all(means, process, probes.to_vec(), overhead, interval)?;
        let lacks = session.lacks();
        if !lacks.is_empty() {
            eprintln!("ckb-probe: attached{lacks}");
        }
        Ok(Self {
            session,
            ends: Some(ends),
            subject,
            interval,
            sampled: Sampled::default(),
            on_screen: None,
        })
    }

    fn begin(&mut self, time: Option<Duration>) -> Result<Intervals, CliError> {
        let ends = match self.ends.take() {
            Some(ends) => ends,
            None => Ends::of(self.session.process.id)?,
        };
        ends.intervals(self.interval, time)
    }

    /// Until the time is up, the process ends, or somebody interrupts: what was listed since it was told before, also of an interval
    /// that is not whole. Returns why it is over.
    async fn events(
        &mut self,
        time: Option<Duration>,
        mut told: impl FnMut(Vec<(Happened, Value)>) -> String,
    ) -> Result<String, CliError> {
        let mut intervals = self.begin(time)?;
        let session = &mut self.session;
        loop {
            let Waited { over, .. } = intervals.next(session).await?;
            session.close_interval()?;
            say_renewals(session);
            self.sampled.add(&session.instance().report(session.now()));
            let text = told(session.told_events());
            intervals.print(session, text).await?;
            if let Some(message) = session.instance().must_detach() {
                return Ok(message);
            }
            if let Some(over) = over {
                return Ok(over.to_string());
            }
        }
    }

    /// Until the time is up, the process ends, somebody interrupts, or it is enough: prints what is made of what each interval came to, and of
    /// its number. Returns why it is over before that.
    async fn intervals(
        &mut self,
        time: Option<Duration>,
        mut told: impl FnMut(&InstanceReport, u64) -> Result<ControlFlow<String, String>, CliError>,
    ) -> Result<Option<String>, CliError> {
        let mut intervals = self.begin(time)?;
        let session = &mut self.session;
        let mut stamp = 0;
        loop {
            let Waited { is_whole, over } = intervals.next(session).await?;
            if is_whole {
                session.close_interval()?;
                match &mut self.on_screen {
                    Some(show) => session.told_renewals().into_iter().for_each(show),
                    None => say_renewals(session),
                }
                // They are others' to show, and take room.
                drop(session.told_events());
                stamp += 1;
                let report = session.instance().report(session.now());
                let (text, is_enough) = match told(&report, stamp)? {
                    ControlFlow::Break(text) => (text, true),
                    ControlFlow::Continue(text) => (text, false),
                };
                intervals.print(session, text).await?;
                if is_enough {
                    return Ok(None);
                }
                if let Some(message) = session.instance().must_detach() {
                    return Ok(Some(message));
                }
            }
            if let Some(over) = over {
                return Ok((over != Over::TimeUp).then(|| over.to_string()));
            }
        }
    }
}
