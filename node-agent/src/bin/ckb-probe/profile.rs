//! `ckb-probe profile` and `ckb-probe threads`: where the time goes, and what each thread does now.

mod flamegraph;
mod sampling;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ckb_probe_agent::{
    host::find_process,
    mechanism::{
        profile::categorized::CategorizedStacks,
        stacks::{
            Allocated, ONE_IN, Profile, Sample, SamplerMode, State, Threads, Touched, folded,
        },
    },
    observe::{Exit, Process, balances_nodes},
    text,
};
use ckb_probe_kubectl::{
    ClusterArguments,
    flamegraph::{StacksArguments, threads as threads_of_a_cluster},
    flames::Output,
};
use ckb_probe_views::{
    document::{Document, View},
    threads as views,
};
use clap::Args;
pub use flamegraph::{FLAMEGRAPH, FlamegraphArguments, flamegraph};
use sampling::Sampling;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::{Instant, sleep_until},
};

use super::{CliError, Outcome, ProcessArguments, suspension};

/// How often it is looked, in a second, where nobody says: a number that keeps no step with what runs by the clock.
const RUNNING_FREQUENCY: u32 = 99;
const WAITING_FREQUENCY: u32 = 19;

/// Nothing is looked at more often.
const MAX_FREQUENCY: i64 = 999;

/// How the name of a file ends that is to be gzipped pprof.
const PPROF: &str = ".pb.gz";

/// So many functions are listed.
const LISTED: usize = 10;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe profile --mode cpu --duration 30s -o cpu.pb.gz        where the CPU time goes\n  \
    ckb-probe profile --mode off-cpu --pid 1234 -o off.pb.gz        what threads wait for\n\n\
    A file that ends in .pb.gz is pprof; any other has one line for each stack, as flamegraph.pl reads it. [truncated] stands for \
    frames that are not known; names of functions of the kernel end in _[k].")]
pub struct ProfileArguments {
    #[command(flatten)]
    process: ProcessArguments,
    /// What to sample.
    #[arg(long, value_enum, default_value = "cpu")]
    mode: SamplerMode,
    /// Stop after this time, or at Ctrl-C.
    #[arg(long, default_value = "30s")]
    duration: ckb_probe_crds::Duration,
    /// How many samples to take per second: of each CPU, at most as many as the kernel has timer ticks, or of all threads.
    /// Unset: 99 for cpu, 19 for off-cpu.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=MAX_FREQUENCY))]
    frequency: Option<u32>,
    /// Show the stacks of threads that only wait for work, for off-cpu. Otherwise an idle pool is shown as one function.
    #[arg(long)]
    idle: bool,
    /// The file to write. Unset: standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Threads that do the same are listed together. No thread is stopped; threads that are running at the moment are listed \
    without their stacks. SINCE is the time since the thread last got a CPU."
)]
pub struct ThreadsArguments {
    /// Of a cluster: the CkbProbe, and a pod of it, or the pod and its container. Unset: a process of this host.
    #[arg(num_args = 0..=2, value_names = ["NAME", "TARGET"])]
    names: Vec<String>,
    #[command(flatten)]
    process: ProcessArguments,
    #[command(flatten, next_help_heading = "Of a cluster")]
    cluster: ClusterArguments,
    #[command(flatten)]
    how: StacksArguments,
}

pub async fn profile(arguments: &ProfileArguments) -> Result<Outcome, CliError> {
    let ProcessArguments { pid, executable } = &arguments.process;
    let process = find_process(*pid, executable)?;
    let mode = arguments.mode;
    let asked = arguments.frequency.unwrap_or(usual_frequency(mode));
    if let Some(path) = arguments.output.as_deref().filter(|path| is_other(path)) {
        let source = io::Error::new(
            io::ErrorKind::Unsupported,
            "only pprof and folded text are written: name a file that ends in .pb.gz or .folded",
        );
        return Err(CliError::Output(text::of_path(path), source));
    }
    // Before it is sampled: whoever cannot write there is told at once.
    let mut output: Box<dyn Write> = match &arguments.output {
        Some(path) => {
            let file = fs::File::create(path);
            Box::new(file.map_err(|source| CliError::Output(text::of_path(path), source))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    let time = arguments.duration.get();
    let mut profile = sample(&process, mode, asked, time, |_| {}).await?;
    if mode == SamplerMode::OffCpu && !arguments.idle {
        profile = profile.with_idle_folded();
    }
    let is_pprof =
        (arguments.output.as_deref()).is_some_and(|path| text::of_path(path).ends_with(PPROF));
    let written = match mode {
        _ if is_pprof => pprof(&profile, mode, &process.executable),
        SamplerMode::Cpu => folded(&profile.samples, |sample| sample.count).into_bytes(),
        SamplerMode::OffCpu => folded(&profile.samples, |sample| micros(sample.time)).into_bytes(),
        SamplerMode::Memory | SamplerMode::Allocations => {
            folded(&profile.samples, |sample| sample.memory).into_bytes()
        }
    };
    let written = output.write_all(&written).and_then(|()| output.flush());
    written.map_err(|source| match &arguments.output {
        Some(path) => CliError::Output(text::of_path(path), source),
        None => source.into(),
    })?;
    eprint!("{}", summary(&profile, mode, asked));
    Ok(match profile.taken {
        0 => nothing(&profile),
        _ => Outcome::Measured,
    })
}

/// What there is to say where no stack was taken: a process that ran now and then is none that did nothing.
fn nothing(profile: &Profile) -> Outcome {
    match &profile.on_cpu {
        Some(on_cpu) if !on_cpu.clock.is_zero() => Outcome::Nothing(format!(
            "it was on a CPU for {:.2} s of {:.1} s, and at none of the moments at which it was looked at: sample for longer, by --duration",
            on_cpu.clock.as_secs_f64(),
            profile.took.as_secs_f64(),
        )),
        _ => Outcome::NothingCalled,
    }
}

fn usual_frequency(mode: SamplerMode) -> u32 {
    match mode {
        SamplerMode::Cpu | SamplerMode::Memory | SamplerMode::Allocations => RUNNING_FREQUENCY,
        SamplerMode::OffCpu => WAITING_FREQUENCY,
    }
}

/// Samples for a time, or until the process ends or somebody interrupts; tells meanwhile for how long it has.
async fn sample(
    process: &Process,
    mode: SamplerMode,
    frequency: u32,
    time: Duration,
    mut tell: impl FnMut(Duration),
) -> Result<Profile, CliError> {
    suspension::refuse()?;
    let exit = Exit::of(process.id)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::Signal)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::Signal)?;
    let mut sampling = Sampling::begin(process.id, mode, frequency).await?;
    let start = Instant::now();
    let end = start + time;
    let mut next = start + sampling.pace;
    loop {
        tell(start.elapsed());
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            () = exit.wait() => break,
            () = sleep_until(next.min(end)) => {}
        }
        if Instant::now() >= end {
            break;
        }
        sampling.step().await?;
        // Steps that were missed are not made up for.
        next = (next + sampling.pace).max(Instant::now());
    }
    sampling.finish().await
}

/// As other programs read it.
fn pprof(profile: &Profile, mode: SamplerMode, executable: &str) -> Vec<u8> {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let began = since_1970.unwrap_or_default().saturating_sub(profile.took);
    CategorizedStacks::sampled(mode.into(), profile, began, executable)
        .profile
        .to_pprof()
}

/// Whether a file's name is that of another format.
fn is_other(path: &Path) -> bool {
    let name = text::of_path(path);
    [".pb", ".svg", ".html", ".json"]
        .iter()
        .any(|end| name.ends_with(end))
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What there is to say of a profile, for a person.
fn summary(profile: &Profile, mode: SamplerMode, asked: u32) -> String {
    let weight = |sample: &Sample| match mode {
        SamplerMode::Cpu | SamplerMode::OffCpu => micros(sample.time),
        SamplerMode::Memory | SamplerMode::Allocations => sample.memory,
    };
    let mut own: BTreeMap<&str, u64> = BTreeMap::new();
    for sample in &profile.samples {
        if let Some(call) = sample.calls.last() {
            *own.entry(&call.name).or_default() += weight(sample);
        }
    }
    let total: u64 = profile.samples.iter().map(weight).sum();
    let looked = |of| {
        let often = profile.frequency;
        format!("looked at {of} {often:.1} times a second (asked: {asked})")
    };
    let seconds = total as f64 / 1e6;
    let (looked, what) = match mode {
        SamplerMode::Cpu => (looked("each CPU"), format!("{seconds:.2} s on a CPU")),
        SamplerMode::OffCpu => (looked("all threads"), format!("{seconds:.2} s waiting")),
        SamplerMode::Memory => (
            format!("one for each {ONE_IN} page faults"),
            format!("{:.1} MB touched for the first time", total as f64 / 1e6),
        ),
        SamplerMode::Allocations => (
            match profile.allocated {
                Some(Allocated { said: true, .. }) => "as the process says it itself".to_owned(),
                _ => "one for each 64 KiB of a thread, and for each block of more than 32 KiB"
                    .to_owned(),
            },
            format!("{:.1} MB allocated", total as f64 / 1e6),
        ),
    };
    let by_samples = match profile.on_cpu {
        Some(on_cpu) => format!(
            " by its clock ({:.1} % of it by the samples themselves)",
            on_cpu.sampled_percent()
        ),
        None => String::new(),
    };
    let by_any_timer = match profile.by_any_timer {
        true => {
            "this kernel's tick was not found: it was looked whenever a timer expired, also one of the process, which is met in step with it\n"
        }
        false => "",
    };
    let guessed = match profile.guessed {
        0 => String::new(),
        guessed => format!(" ({guessed} with a caller that is a guess)"),
    };
    let left_out = match profile.left_out {
        0 => String::new(),
        left_out => format!(
            ", {left_out} left out by chance, for which the others stand, since they came faster than they are read"
        ),
    };
    let grown = profile.touched.as_ref().map(grown).unwrap_or_default();
    let allocated = profile
        .allocated
        .map(|allocated| balance(&allocated, profile.taken));
    let grown = allocated.unwrap_or(grown);
    let mut lines = format!(
        "{} stacks in {:.1} s, {:.1} % of them complete{guessed}, {} lost{left_out}; {looked}\n\
         {by_any_timer}{grown}{what}{by_samples}, by innermost function:\n",
        profile.taken,
        profile.took.as_secs_f64(),
        profile.complete_percent(),
        profile.lost,
    );
    let mut own: Vec<_> = own.into_iter().collect();
    own.sort_by(|one, other| other.1.cmp(&one.1).then(one.0.cmp(other.0)));
    for (name, weight) in own.into_iter().take(LISTED) {
        let share = 100.0 * weight as f64 / total.max(1) as f64;
        lines.push_str(&format!("{share:5.1} %  {name}\n"));
    }
    lines
}

/// What is to be said of what was allocated, beside who did: what it comes to, and where it may not be all.
fn balance(allocated: &Allocated, taken: u64) -> String {
    let Allocated {
        bytes,
        freed,
        in_step,
        ..
    } = *allocated;
    let mut lines = match freed {
        Some(freed) => format!(
            "freed meanwhile: {:.1} MB, so {:+.1} MB are held by whoever allocated them\n",
            freed as f64 / 1e6,
            (bytes as f64 - freed as f64) / 1e6
        ),
        None => "what was freed meanwhile is not known: the process does not say it, or was looked at in slices\n".to_owned(),
    };
    if in_step * 2 > taken {
        lines.push_str(&format!(
            "{:.0} % of the stacks came in step with the allocator, to the byte as the one before: callers that take turns with those that \
             are told may be missing, and theirs be counted as these\n",
            100.0 * in_step as f64 / taken.max(1) as f64
        ));
    }
    lines
}

/// What became of the memory that is there, beside what was touched of it.
fn grown(touched: &Touched) -> String {
    let megabytes = |bytes: i64| format!("{:+.1} MB", bytes as f64 / 1e6);
    let mut lines = match touched.growth() {
        Some((all, anonymous)) => format!(
            "resident memory: {}, of which {} of no file\n",
            megabytes(all),
            megabytes(anonymous)
        ),
        None => String::new(),
    };
    if touched.untouched() > 0 {
        lines.push_str(&format!(
            "at least {:.1} MB of it came without being touched: by MAP_POPULATE or mlock, around pages of files, or as huge pages\n",
            touched.untouched() as f64 / 1e6
        ));
    }
    if balances_nodes() {
        lines.push_str("NUMA balancing is on (kernel.numa_balancing): pages that it looks at count as touched again\n");
    }
    lines
}

pub async fn threads(arguments: ThreadsArguments) -> Result<Outcome, CliError> {
    let mut names = arguments.names.into_iter();
    if let Some(name) = names.next() {
        let target = names.next();
        let (cluster, how) = (&arguments.cluster, &arguments.how);
        return Ok(Outcome::from(
            threads_of_a_cluster(&name, target.as_deref(), cluster, how).await?,
        ));
    }
    let ProcessArguments { pid, executable } = &arguments.process;
    let output = arguments.how.save.output()?;
    if matches!(output, Output::File(..)) || arguments.how.save.is_opened() {
        return Err(CliError::Which(
            "threads of a process are printed, or with -o json told as a document: what they wait for is drawn by ckb-probe flamegraph --pid PID \
             off-cpu -o FILE"
                .to_owned(),
        ));
    }
    let process = find_process(*pid, executable)?;
    let Threads { states, left_out } = sampling::threads(process.id).await?;
    let subject = format!("process {} ({})", process.id.pid, process.executable);
    let mut out = io::stdout().lock();
    if output == Output::Json {
        let told = views::Threads {
            subject,
            threads: states.iter().map(told).collect(),
            left_out,
        };
        writeln!(out, "{}", Document::of(View::Threads(told)).line())?;
        out.flush()?;
        return Ok(match states.is_empty() {
            true => Outcome::NothingCalled,
            false => Outcome::Measured,
        });
    }
    writeln!(out, "{subject}: {} threads", states.len())?;
    if left_out > 0 {
        writeln!(out, "{left_out} more are left out")?;
    }
    out.write_all(listed(&states).as_bytes())?;
    out.flush()?;
    Ok(match states.is_empty() {
        true => Outcome::NothingCalled,
        false => Outcome::Measured,
    })
}

/// A thread in the form of `-o json`.
fn told(state: &State) -> views::Thread {
    let wait = state.wait.as_deref();
    let calls = state.calls.iter().map(|call| views::ThreadCall {
        name: call.name.to_string(),
        module: call.file.to_string(),
    });
    views::Thread {
        thread: state.thread,
        name: state.name.clone(),
        state: state.state.to_owned(),
        waits_for: wait.map(|wait| wait.trim_matches(['[', ']']).to_owned()),
        since_nanoseconds: (state.since)
            .map(|since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)),
        calls: calls.collect(),
    }
}

/// Threads that do the same, together; the most first.
fn listed(states: &[State]) -> String {
    let mut groups: BTreeMap<_, Vec<&State>> = BTreeMap::new();
    for state in states {
        let same = (state.state, &state.wait, &state.calls);
        groups.entry(same).or_default().push(state);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, states)| std::cmp::Reverse(states.len()));
    let mut text = String::new();
    for ((state, wait, calls), states) in groups {
        let plural = if states.len() == 1 { "" } else { "s" };
        let wait = wait.as_deref().map(|wait| wait.trim_matches(['[', ']']));
        let wait = wait.map(|wait| format!(", waits for {wait}"));
        text.push_str(&format!(
            "\n{} thread{plural} {state}{}{}\n  {}\n",
            states.len(),
            wait.unwrap_or_default(),
            since(&states),
            names(&states),
        ));
        for call in calls {
            let file = match &*call.file {
                "" => String::new(),
                file => format!("  ({file})"),
            };
            text.push_str(&format!("      {}{file}\n", call.name));
        }
    }
    text
}

fn since(states: &[&State]) -> String {
    let times = || states.iter().filter_map(|state| state.since);
    let told = |time: Duration| match time.as_secs() {
        0 => format!("{} ms", time.as_millis()),
        seconds => format!("{seconds} s"),
    };
    match (times().min(), times().max()) {
        (Some(least), Some(most)) if told(least) != told(most) => {
            format!(", since {} to {}", told(least), told(most))
        }
        (Some(least), _) => format!(", since {}", told(least)),
        _ => String::new(),
    }
}

fn names(states: &[&State]) -> String {
    let mut by_name: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for state in states {
        by_name.entry(&state.name).or_default().push(state.thread);
    }
    let told = by_name
        .into_iter()
        .map(|(name, threads)| match threads[..] {
            [thread] => format!("{name} ({thread})"),
            _ => format!("{name} ({} of them)", threads.len()),
        });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
