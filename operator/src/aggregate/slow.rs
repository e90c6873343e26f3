//! The slowest calls over all targets.

use std::cmp::Reverse;

use ckb_probe_crds::{InstanceState, SlowCallReport, SlowOperationStatus, display_nanos};

use super::targets::Target;

/// How many a status lists.
const MAX: usize = 10;

/// The slowest of the last windows of the targets that are attached now, the slowest first.
pub fn slowest(targets: &[Target]) -> Vec<SlowOperationStatus> {
    let mut calls: Vec<(&Target, &SlowCallReport)> = targets
        .iter()
        .filter(|target| target.state == InstanceState::Attached)
        .filter_map(|target| Some((target, target.report?)))
        .flat_map(|(target, report)| report.slow_calls.iter().map(move |call| (target, call)))
        .collect();
    // Equals in a lasting order, whatever the order of the reports.
    calls.sort_by_key(|(target, call)| {
        let time = call.time.as_ref().map(|time| time.0);
        let place = (&target.pod.reference.name, target.container, &call.thread);
        (
            Reverse(call.nanoseconds),
            time,
            place,
            (&call.probe, &call.operation),
        )
    });
    let slowest = calls.into_iter().take(MAX);
    slowest.map(|(target, call)| shown(target, call)).collect()
}

fn shown(target: &Target, call: &SlowCallReport) -> SlowOperationStatus {
    let SlowCallReport {
        time,
        probe,
        operation,
        column_family,
        thread,
        nanoseconds,
        bytes,
        during,
    } = call.clone();
    SlowOperationStatus {
        time,
        pod: target.pod.reference.name.clone(),
        container: target.container.unwrap_or_default().to_owned(),
        probe,
        operation,
        column_family,
        thread,
        duration: display_nanos(nanoseconds),
        bytes,
        during,
    }
}

#[cfg(test)]
mod tests;
