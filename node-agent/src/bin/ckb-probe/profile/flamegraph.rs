//! `ckb-probe flamegraph`: a process is sampled and drawn in one; of a CkbProbe, its windows are.

use ckb_probe_agent::{host::find_process, mechanism::stacks::SamplerMode};
use ckb_probe_kubectl::{
    ClusterArguments, ProgressLine,
    flamegraph::{self, StacksArguments},
    flames::Named,
};
use ckb_probe_views::{
    document::StackProfile,
    windows::{Maker, Progress},
};
use clap::{Args, ValueEnum};

use super::{CliError, Outcome, nothing, pprof, sample, usual_frequency};

/// What is said of `flamegraph` at the end of `--help`.
pub const FLAMEGRAPH: &str = "Examples:\n  \
    ckb-probe flamegraph --executable ckb --open             half a minute of its CPU time, in a browser\n  \
    ckb-probe flamegraph --pid 1234 off-cpu -o off.svg       what its threads wait for\n  \
    ckb-probe flamegraph --pid 1234 memory --duration 10s    who touches memory for the first time: the largest functions\n  \
    ckb-probe flamegraph ckb ckb-0/cpu -n ckb -o cpu.html    of a CkbProbe, as kubectl ckbprobe flamegraph\n\n\
    Exit codes: 0 there is one; 1 there is none; 2 wrong arguments; 3 nothing was seen.";

#[derive(Args, Debug)]
pub struct FlamegraphArguments {
    /// The CkbProbe, of a cluster, and TARGET/MODE of it, such as ckb-0/cpu; of a process the mode alone: cpu, off-cpu, memory or
    /// allocations.
    #[arg(required_unless_present_any = ["pid", "executable"], num_args = 0..=2, value_names = ["NAME", "TARGET/MODE"])]
    names: Vec<String>,
    #[command(flatten)]
    cluster: ClusterArguments,
    #[command(flatten)]
    how: StacksArguments,
    /// On this host instead of a cluster: the process to sample, by its process id.
    #[arg(long, help_heading = "On this host")]
    pid: Option<u32>,
    /// The process to sample, by the base name of its executable.
    #[arg(long, conflicts_with = "pid", help_heading = "On this host")]
    executable: Option<String>,
    /// For how long it is sampled, or until Ctrl-C.
    #[arg(long, default_value = "30s", help_heading = "On this host")]
    duration: ckb_probe_crds::Duration,
}

/// A process's stacks for a while, drawn; or those of a CkbProbe.
pub async fn flamegraph(arguments: FlamegraphArguments) -> Result<Outcome, CliError> {
    let FlamegraphArguments {
        names,
        cluster,
        how,
        pid,
        executable,
        duration,
    } = arguments;
    let mut names = names.into_iter();
    if pid.is_none() && executable.is_none() {
        let name = names.next().unwrap_or_default();
        let which = names.next().map(|which| which.parse()).transpose();
        let which = which.map_err(CliError::Which)?;
        let shown = flamegraph::run(&name, which.as_ref(), &cluster, &how).await;
        return Ok(Outcome::from(shown.map_err(CliError::of_cluster)?));
    }
    let mode = names.next().unwrap_or_else(|| "cpu".to_owned());
    if let Some(more) = names.next() {
        return Err(CliError::Which(format!(
            "of a process one mode is sampled, and not {mode} and {more}: name one, and ask for the other afterwards"
        )));
    }
    let mode = SamplerMode::from_str(&mode, true).map_err(CliError::Which)?;
    let output = how.save.output()?;
    let process = find_process(pid, executable.as_deref().unwrap_or_default())?;
    let subject = format!("process {} ({})", process.id.pid, process.executable);
    let mut line = ProgressLine::default();
    let maker = Maker {
        probe: String::new(),
        mode: mode.into(),
        window: duration.get(),
        every: None,
    };
    let tell = |so_far| line.show(&maker.line(&subject, &Progress::Lasts(so_far)));
    let profile = sample(&process, mode, usual_frequency(mode), duration.get(), tell).await?;
    line.end();
    let profile = match mode {
        SamplerMode::OffCpu => profile.with_idle_folded(),
        _ => profile,
    };
    if profile.taken == 0 {
        return Ok(nothing(&profile));
    }
    let took = profile.took.as_millis();
    let of = Named::read(&subject, &pprof(&profile, mode, &process.executable))?;
    let whose = StackProfile {
        subject,
        milliseconds: u64::try_from(took).ok(),
        ..StackProfile::default()
    };
    Ok(Outcome::from(how.save.put(&of, whose, &output, None)?))
}
