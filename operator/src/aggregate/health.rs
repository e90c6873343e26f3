//! How a target is, and each of its probes by itself: a busy one does not hide a dead one beside it.

use ckb_probe_crds::{CkbProbeSpec, InstanceReport, InstanceState, Probe, ProbeReport, Reason};

/// Reasons that a person must look at, from the gravest on.
pub const ORDER: [Reason; 19] = [
    Reason::AgentUnavailable,
    Reason::AgentSilent,
    Reason::ReportRefused,
    Reason::PreflightFailed,
    Reason::KindNotAdmitted,
    Reason::ExporterNotAdmitted,
    Reason::LimitExceeded,
    Reason::TargetDied,
    Reason::MemoryLimit,
    Reason::AttachFailed,
    Reason::UnsupportedByKernel,
    Reason::ExecutableNotFound,
    Reason::TooManyMatches,
    Reason::SymbolNotFound,
    Reason::SingleStepped,
    Reason::EntryOnly,
    Reason::ReportTruncated,
    Reason::OverBudget,
    Reason::Silent,
];

/// Why a target, or some of its probes, is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub reason: Reason,
    /// What happened. Names the probes that it is about, unless it is about all of them.
    pub message: String,
    pub prognosis: Prognosis,
    /// Whether what it is about fires all the same.
    pub firing: bool,
}

/// What will become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prognosis {
    /// It will not pass by itself, for this reason.
    Lasting(Reason),
    /// It is on its way, by itself.
    Passing,
    /// It is as the spec wants it.
    Intended,
    /// It is as the node's kernel has it, and the rest of the target is measured: see [`super::support`].
    Unsupported,
}

impl Prognosis {
    /// That of a target or a probe; `found` when its process is known.
    pub fn of(state: InstanceState, reason: Reason, found: bool) -> Self {
        match (state, reason) {
            (InstanceState::Attached, Reason::OverBudget | Reason::Silent) => Self::Lasting(reason),
            (InstanceState::Attached, Reason::Attaching) => Self::Passing,
            (InstanceState::Attached, _) => Self::Intended,
            (
                InstanceState::Failed,
                Reason::ExecutableNotFound
                | Reason::SymbolNotFound
                | Reason::TooManyMatches
                | Reason::SingleStepped
                | Reason::UnsupportedByKernel
                | Reason::PreflightFailed
                | Reason::KindNotAdmitted
                | Reason::ExporterNotAdmitted
                | Reason::LimitExceeded
                | Reason::ReportRefused
                | Reason::ReportTruncated
                | Reason::MemoryLimit
                | Reason::AgentUnavailable
                | Reason::AgentSilent,
            ) => Self::Lasting(reason),
            (InstanceState::Failed, _) => Self::Lasting(Reason::AttachFailed),
            (InstanceState::Detached, Reason::OverBudget | Reason::TargetDied) => {
                Self::Lasting(reason)
            }
            (InstanceState::Detached, _) => Self::Intended,
            // A process that is known is between two lives, which passes; one that is not may never come.
            (InstanceState::Waiting, Reason::ExecutableNotFound) if !found => Self::Lasting(reason),
            (InstanceState::Waiting, _) => Self::Passing,
        }
    }
}

impl Problem {
    /// That of a whole target; `found` when its process is known.
    pub fn of_whole(state: InstanceState, reason: Reason, message: String, found: bool) -> Self {
        Self {
            reason,
            message,
            prognosis: Prognosis::of(state, reason, found),
            firing: false,
        }
    }

    /// Whether a person must look at it, for this reason.
    pub fn stays(&self, reason: Reason) -> bool {
        self.prognosis == Prognosis::Lasting(reason)
    }

    /// The gravest has the least.
    pub fn gravity(&self) -> usize {
        match self.prognosis {
            Prognosis::Lasting(reason) => place(reason),
            Prognosis::Passing => ORDER.len() + 1,
            Prognosis::Intended => ORDER.len() + 2,
            Prognosis::Unsupported => ORDER.len() + 3,
        }
    }

    /// Whether the target counts as firing in spite of it.
    pub fn lets_fire(&self) -> bool {
        self.firing || self.prognosis == Prognosis::Unsupported
    }
}

fn place(reason: Reason) -> usize {
    ORDER
        .iter()
        .position(|known| *known == reason)
        .unwrap_or(ORDER.len())
}

/// What is reported of a probe of the spec.
pub fn reported<'a>(report: &'a InstanceReport, probe: &Probe) -> Option<&'a ProbeReport> {
    let kind = probe.kind_spec()?.kind();
    let mut probes = report.probes.iter();
    probes.find(|reported| reported.name == probe.name && reported.kind == kind.as_str())
}

/// What is wrong with a target, by its agent's word: with some of its probes, or with all of it.
pub fn of_target(spec: &CkbProbeSpec, report: &InstanceReport) -> Vec<Problem> {
    let attached = report.state == InstanceState::Attached;
    let reason = report.reason.unwrap_or(match attached {
        true if report.firing => Reason::Firing,
        _ => Reason::Attaching,
    });
    let found = report.container.is_some();
    let whole = Problem {
        firing: attached && report.firing,
        ..Problem::of_whole(report.state, reason, report.message.clone(), found)
    };
    let probes = match report.probes.is_empty() {
        true => Vec::new(),
        false => of_probes(spec, report),
    };
    match report.state {
        // What it costs is a matter of the whole target, whose probes may all be well.
        InstanceState::Attached if reason == Reason::OverBudget && !report.probes.is_empty() => {
            let whole = Problem {
                firing: true,
                ..whole
            };
            probes.into_iter().chain([whole]).collect()
        }
        InstanceState::Attached if !report.probes.is_empty() => probes,
        InstanceState::Attached if whole.firing && reason == Reason::Firing => Vec::new(),
        InstanceState::Failed if probes.len() > 1 => probes,
        _ => vec![whole],
    }
}

/// Whether it is not measured since nothing is unusual.
pub fn waits(report: &InstanceReport, probe: &Probe) -> bool {
    probe.capture().is_some() && reported(report, probe).is_none()
}

/// Whether the node's kernel, or what the agent may do there, rules the probe out.
pub fn is_unsupported(report: &ProbeReport) -> bool {
    report.state == InstanceState::Failed && report.reason == Some(Reason::UnsupportedByKernel)
}

/// The probes of a target that are not well, those together that have the same to say. What the kernel rules out is a trouble only
/// where it rules out all of them: else the target is measured as far as it can be.
fn of_probes(spec: &CkbProbeSpec, report: &InstanceReport) -> Vec<Problem> {
    let mut asked = spec.probes.iter().filter(|probe| !waits(report, probe));
    let ruled_out = |probe| reported(report, probe).is_some_and(is_unsupported);
    let measurable = !asked.all(ruled_out);
    let asked = spec.probes.iter().filter(|probe| !waits(report, probe));
    let each = asked.filter_map(|probe| {
        let problem = match reported(report, probe) {
            Some(reported) if measurable && is_unsupported(reported) => Problem {
                prognosis: Prognosis::Unsupported,
                ..problem(reported, is_quiet(probe))?
            },
            Some(reported) => problem(reported, is_quiet(probe))?,
            None => Problem {
                reason: Reason::Attaching,
                message: "the agent has yet to take it up".to_owned(),
                prognosis: Prognosis::Passing,
                firing: false,
            },
        };
        // It comes and goes with what is not as usual, and the target is no less well for that.
        let passes = probe.capture().is_some() && problem.prognosis == Prognosis::Passing;
        (!passes).then_some((probe.name.as_str(), problem))
    });
    let mut problems: Vec<(Vec<&str>, Problem)> = Vec::new();
    for (name, problem) in each {
        match problems.iter_mut().find(|(_, known)| *known == problem) {
            Some((names, _)) => names.push(name),
            None => problems.push((vec![name], problem)),
        }
    }
    problems
        .into_iter()
        .map(|(names, problem)| Problem {
            message: named(spec, &names, problem.message),
            ..problem
        })
        .collect()
}

/// What is wrong with a probe by itself. One that is attached is well when it fires, or is of a quiet kind.
pub fn problem(report: &ProbeReport, quiet: bool) -> Option<Problem> {
    let attached = report.state == InstanceState::Attached;
    if attached && (report.firing || quiet) {
        return None;
    }
    let usual = match report.state {
        InstanceState::Failed => Reason::AttachFailed,
        InstanceState::Waiting | InstanceState::Detached | InstanceState::Attached => {
            Reason::Attaching
        }
    };
    let reason = match report.reason {
        Some(Reason::Firing) | None => usual,
        Some(reason) => reason,
    };
    Some(Problem {
        reason,
        message: match report.message.is_empty() {
            true => reason.to_string(),
            false => report.message.clone(),
        },
        prognosis: Prognosis::of(report.state, reason, true),
        firing: false,
    })
}

/// What probes of an attached target are measured without, for this reason, though they are well otherwise.
pub fn lacking(spec: &CkbProbeSpec, report: &InstanceReport, reason: Reason) -> Vec<String> {
    let each = spec.probes.iter().filter_map(|probe| {
        let reported = reported(report, probe)?;
        let attached = reported.state == InstanceState::Attached;
        let lacks = attached && reported.lacks(reason) && !stays(reported, probe);
        lacks.then(|| (probe, lack(reported).unwrap_or_default()))
    });
    told(spec, each)
}

/// The messages about some probes, each with their names, those together that have the same to say.
pub fn told<'a>(
    spec: &CkbProbeSpec,
    each: impl Iterator<Item = (&'a Probe, String)>,
) -> Vec<String> {
    let mut told: Vec<(Vec<&str>, String)> = Vec::new();
    for (probe, message) in each {
        match told.iter_mut().find(|(_, known)| *known == message) {
            Some((names, _)) => names.push(&probe.name),
            None => told.push((vec![&probe.name], message)),
        }
    }
    told.into_iter()
        .map(|(names, message)| named(spec, &names, message))
        .collect()
}

/// What is not measured of a probe as it was asked for, or why it is not measured at all.
pub fn complaint(reported: &ProbeReport, probe: &Probe) -> Option<String> {
    let problem = problem(reported, is_quiet(probe));
    let grave = problem.filter(|problem| matches!(problem.prognosis, Prognosis::Lasting(_)));
    grave
        .map(|problem| problem.message)
        .or_else(|| lack(reported))
}

fn lack(reported: &ProbeReport) -> Option<String> {
    let lack = reported.lacks.first()?;
    Some(match reported.message.is_empty() {
        true => format!("{}: {}", lack.reason, lack.items.join(", ")),
        false => reported.message.clone(),
    })
}

fn stays(reported: &ProbeReport, probe: &Probe) -> bool {
    problem(reported, is_quiet(probe))
        .is_some_and(|problem| matches!(problem.prognosis, Prognosis::Lasting(_)))
}

fn is_quiet(probe: &Probe) -> bool {
    let question = probe.kind_spec();
    question.is_some_and(|question| question.kind().descriptor().quiet)
}

/// The message with the probes that it is about, unless those are all.
fn named(spec: &CkbProbeSpec, names: &[&str], message: String) -> String {
    match names {
        names if names.len() == spec.probes.len() => message,
        [name] => format!("probe {name}: {message}"),
        names => format!("probes {}: {message}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests;
