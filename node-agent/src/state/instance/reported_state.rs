//! How a target stands, in its report.

use std::time::Duration;

use ckb_probe_crds::{InstanceReport, InstanceState, Reason};

use super::{super::probe::ProbeState, Instance, SILENT_AFTER, Stage};

/// A part of a whole, in thousandths of a percent.
fn millipercent(ratio: f64) -> u64 {
    (ratio * 100_000.0).round() as u64
}

/// How a target stands, as far as a change of it is worth a report before the next one is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedState {
    state: InstanceState,
    reason: Reason,
    /// Whether there are figures of an interval.
    figures: bool,
}

impl Instance {
    /// How it stands.
    pub fn stands(&self, now: Duration) -> ReportedState {
        let (state, reason, _) = self.standing(now);
        ReportedState {
            state,
            reason,
            figures: self.overhead_ratio.is_some(),
        }
    }

    /// The instance as it stands in a NodeProbe's status.
    pub fn report(&self, now: Duration) -> InstanceReport {
        let (state, reason, message) = self.standing(now);
        let pid = match self.stage {
            Stage::Attached { process, .. } => Some(process.pid),
            _ => None,
        };
        let standing = (state, reason, message.as_str());
        let probes = self.probes.iter();
        let probes = probes
            .map(|probe| probe.report(standing, now, self.patience()))
            .collect();
        InstanceReport {
            probe: self.key.probe.clone(),
            asks: String::new(),
            pod: self.key.pod.clone(),
            container: Some(self.key.container.clone()),
            pid,
            state,
            reason: Some(reason),
            message,
            firing: self.is_firing(now),
            reattaches: self.reattaches,
            // Rounded up: what is told to be none is none.
            gap_milliseconds: (self.gap + self.open_gap(now))
                .as_nanos()
                .div_ceil(1_000_000) as u64,
            overhead_millipercent: self.overhead_ratio.map(millipercent),
            own_overhead_millipercent: self.own_ratio.map(millipercent),
            budget_millipercent: self
                .overhead_ratio
                .map(|_| millipercent(self.budget_percent / 100.0)),
            floor_millipercent: self.floor_ratio.map(millipercent),
            budget_used_millipercent: self.overhead_ratio.and(self.budget_used).map(millipercent),
            contention: self.contention,
            // Whoever exports knows.
            spans: None,
            probes,
        }
    }

    fn standing(&self, now: Duration) -> (InstanceState, Reason, String) {
        match &self.stage {
            Stage::Attached { process, note, .. } => {
                let (reason, message) = self.attached(process.pid, now);
                let lacking = self.probes.iter().filter_map(ProbeState::coverage);
                let mut lacking: Vec<&str> = lacking.map(|one| one.sentence.as_str()).collect();
                lacking.dedup();
                (
                    InstanceState::Attached,
                    reason,
                    format!("{message}{note}{}", lacking.concat()),
                )
            }
            Stage::New => (
                InstanceState::Waiting,
                Reason::Attaching,
                format!(
                    "the process in container {} was found, and is about to be measured",
                    self.key.container
                ),
            ),
            Stage::Waiting => (
                InstanceState::Waiting,
                Reason::ExecutableNotFound,
                format!(
                    "the process in container {} ended; probing resumes when it runs again",
                    self.key.container
                ),
            ),
            Stage::Failed { reason, message } => (InstanceState::Failed, *reason, message.clone()),
            Stage::Detached { reason, message } => {
                (InstanceState::Detached, *reason, message.clone())
            }
        }
    }

    /// The worst of its probes speaks for it; one that the kernel does not support only where all is well with the others.
    fn attached<'a>(&'a self, pid: u32, now: Duration) -> (Reason, String) {
        let without = |probe: &ProbeState, message: &str| {
            format!("the probe {}: {message}", probe.probe.name)
        };
        let failed = |probe: &'a ProbeState| {
            let refused = probe.refusal().map(|one| (one.reason, &one.message));
            let blind = || probe.blind().map(|one| (one.reason, &one.why));
            Some((probe, refused.or_else(blind)?))
        };
        if let Some((probe, (reason, message))) = self.supported().find_map(failed) {
            let without = without(probe, message);
            return (
                reason,
                format!("measuring process {pid}, but for {without}"),
            );
        }
        if self.is_firing(now) {
            let probes = self.probes.iter();
            let unsupported =
                probes.filter_map(|probe| Some(without(probe, &probe.unsupported()?.message)));
            let unsupported: Vec<String> = unsupported.collect();
            let message = match unsupported.is_empty() {
                true => format!("measuring process {pid}"),
                false => format!(
                    "measuring process {pid}, but for {}",
                    unsupported.join("; ")
                ),
            };
            return (Reason::Firing, message);
        }
        let patience = self.patience();
        let silent = |probe: &ProbeState| probe.is_silent(now, patience);
        let unwatched = |probe: &ProbeState| silent(probe) && probe.watched() <= 0.0;
        if let Some(unwatched) = self.those(" by ", unwatched) {
            let message = format!(
                "attached to process {pid} in slices, which are too few to see whether anything that is measured{unwatched} \
                 happens"
            );
            return (Reason::Silent, message);
        }
        if let Some(those) = self.those(" by ", silent) {
            let sampled = |probe: &ProbeState| silent(probe) && probe.watched() < 1.0;
            let what = match self.supported().any(sampled) {
                true => "was seen",
                false => "happened",
            };
            let message = format!(
                "attached to process {pid}, but nothing that is measured{those} {what} for {SILENT_AFTER} report intervals"
            );
            return (Reason::Silent, message);
        }
        let idle = self.those(" for ", |probe| !probe.is_well(now, patience));
        (
            Reason::Attaching,
            format!(
                "attached to process {pid}, nothing counted yet{}",
                idle.unwrap_or_default()
            ),
        )
    }

    /// The supported probes of which that is so, after a word, or nothing where it is so of all of them; None where it is of none.
    fn those(&self, word: &str, so: impl Fn(&ProbeState) -> bool) -> Option<String> {
        let those = self.supported().filter(|probe| so(probe));
        let names: Vec<&str> = those.map(|probe| probe.probe.name.as_str()).collect();
        match names.len() {
            0 => None,
            all if all == self.probes.len() => Some(String::new()),
            _ => Some(format!("{word}{}", names.join(", "))),
        }
    }
}
