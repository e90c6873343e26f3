//! The weightiest events of a probe over all targets.

use std::{cmp::Reverse, collections::BTreeMap};

use ckb_probe_crds::{
    EventReport, EventStatus, ProbeReport,
    report::{MAX_EVENTS, NOTABLE},
};

use super::{probes::is_live, targets::Target};

/// The weightiest of these reports' last intervals, the weightiest first. Of a target that is not measured any more, only what is
/// notable: why it is not may be among that.
pub fn weightiest<'a>(
    reports: impl Iterator<Item = (&'a Target<'a>, &'a ProbeReport)>,
) -> Vec<EventStatus> {
    let mut events: Vec<(&Target, &EventReport)> = reports
        .flat_map(|(target, report)| {
            report
                .events
                .iter()
                .map(move |event| (target, report, event))
        })
        .filter(|(target, report, event)| is_live(target, report) || is_notable(&event.details))
        .map(|(target, _, event)| (target, event))
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

/// Whether an event's details say that it is for whoever reads the Events of the CkbProbe.
pub fn is_notable(details: &BTreeMap<String, String>) -> bool {
    details.get(NOTABLE).is_some_and(|is| is == "true")
}

fn shown(target: &Target, event: &EventReport) -> EventStatus {
    let container = target.container.unwrap_or_default();
    let pod = target.pod.reference.name.clone();
    event.clone().told_of(pod, container.to_owned())
}

#[cfg(test)]
mod tests;
