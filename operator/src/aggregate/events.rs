//! The weightiest events of a probe over all targets.

use std::cmp::Reverse;

use ckb_probe_crds::{EventReport, EventStatus, ProbeReport, report::MAX_EVENTS};

use super::targets::Target;

/// The weightiest of these reports' last intervals, the weightiest first.
pub fn weightiest<'a>(
    reports: impl Iterator<Item = (&'a Target<'a>, &'a ProbeReport)>,
) -> Vec<EventStatus> {
    let mut events: Vec<(&Target, &EventReport)> = reports
        .flat_map(|(target, report)| report.events.iter().map(move |event| (target, event)))
        .collect();
    // Equals in a lasting order, whatever the order of the reports.
    events.sort_by_key(|(target, event)| {
        let time = event.time.as_ref().map(|time| time.0);
        let place = (&target.pod.reference.name, target.container, &event.thread);
        let what = (&event.row, &event.part, &event.text, &event.details);
        (Reverse(event.weight), time, place, what)
    });
    let weightiest = events.into_iter().take(MAX_EVENTS);
    weightiest
        .map(|(target, event)| shown(target, event))
        .collect()
}

fn shown(target: &Target, event: &EventReport) -> EventStatus {
    let EventReport {
        time,
        row,
        part,
        thread,
        weight: _,
        text,
        details,
    } = event.clone();
    EventStatus {
        time,
        pod: target.pod.reference.name.clone(),
        container: target.container.unwrap_or_default().to_owned(),
        row,
        part,
        thread,
        text,
        details,
    }
}

#[cfg(test)]
mod tests;
