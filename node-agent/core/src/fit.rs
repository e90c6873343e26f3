//! Makes a report fit into one object. What is left out is what hurts least, and is said.
//!
//! Five steps, each of which is taken for all targets before the next one is for any: events are not listed, parts are folded
//! into their row, rows are folded into the row `other`, rows are not told of, targets are not told of. The last step that is
//! needed is taken as far as it must be, and what room there is for it is shared fairly: whoever needs less than an even
//! share loses nothing for the sake of who needs more.

mod folding;

use std::{
    cmp::{Ordering, Reverse},
    io,
};

use ckb_probe_crds::{
    EventReport, InstanceReport, Kind, Lack, NodeProbeStatus, ProbeReport, Reason, RowReport,
    report::{MAX_EVENTS, MAX_PARTS, MAX_ROWS},
};
use folding::{fold_parts, fold_rows};
use serde::Serialize;

/// A message is cut to so many characters where nothing but how a target stands is told.
const SHORT: usize = 200;

/// As many lacks as a probe's report holds.
const MAX_LACKS: usize = 8;

/// What is given up, from what hurts least on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Events,
    Parts,
    Rows,
    Bare,
    Gone,
}

const STEPS: [Step; 5] = [
    Step::Events,
    Step::Parts,
    Step::Rows,
    Step::Bare,
    Step::Gone,
];

/// The report, in no more bytes of JSON than these. One that fits is as it was; totals are, wherever a row of them is told.
///
/// The agent's word about itself is never cut: it is some kilobytes, and as long as the agent makes it.
pub fn fit(report: NodeProbeStatus, bytes: usize) -> NodeProbeStatus {
    if size(&report) <= bytes {
        return report;
    }
    let all = report.instances;
    let mut fitted = NodeProbeStatus {
        instances: Vec::new(),
        // As long as any number may be.
        instances_omitted: u32::MAX,
        ..report
    };
    let room = bytes.saturating_sub(size(&fitted));
    let before = all.len();
    fitted.instances = fit_all(all, room);
    fitted.instances_omitted = u32::try_from(before - fitted.instances.len()).unwrap_or(u32::MAX);
    fitted
}

/// How many bytes of JSON it is.
pub fn size(value: &impl Serialize) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    match serde_json::to_writer(&mut counter, value) {
        Ok(()) => counter.0,
        Err(_) => usize::MAX,
    }
}

/// A target on its way through the steps. What is left out is never copied: it may be many times what fits.
struct Candidate {
    /// The target without the lists of its probes.
    shell: InstanceReport,
    /// Those lists.
    lists: Vec<Lists>,
    /// The last step that was taken wholly, and saved something.
    taken: Option<Step>,
    /// Its bytes after that.
    most: usize,
    /// Its bytes after the step that is being taken, if it is taken wholly.
    least: usize,
}

/// What can be left out of a probe's report.
struct Lists {
    rows: Vec<RowReport>,
    events: Vec<EventReport>,
}

fn fit_all(all: Vec<InstanceReport>, room: usize) -> Vec<InstanceReport> {
    let mut all: Vec<Candidate> = all.into_iter().map(Candidate::new).collect();
    for step in STEPS {
        for one in &mut all {
            let least = match step {
                Step::Gone => 0,
                _ => size_in_list(&one.cut(step, 0)),
            };
            one.least = least.min(one.most);
        }
        if sum(all.iter().map(|one| one.least)) <= room {
            return shared(&all, step, room);
        }
        for one in all.iter_mut().filter(|one| one.least < one.most) {
            one.taken = Some(step);
            one.most = one.least;
        }
    }
    Vec::new()
}

/// Takes a step with all of them, as far as it must be: each is between the least and the most of its bytes.
fn shared(all: &[Candidate], step: Step, room: usize) -> Vec<InstanceReport> {
    let share = even_share(all, room);
    let length = |one: &Option<InstanceReport>| one.as_ref().map_or(0, size_in_list);
    let mut fitted: Vec<Option<InstanceReport>> = all
        .iter()
        .map(|one| one.within(step, share.clamp(one.least, one.most)))
        .collect();
    // What can be cut only in big pieces has left some room.
    let mut left = room.saturating_sub(sum(fitted.iter().map(length)));
    let mut order: Vec<(&Candidate, &mut Option<InstanceReport>)> =
        all.iter().zip(&mut fitted).collect();
    order.sort_by_key(|(one, _)| (Reverse(one.shell.state), one.most));
    for (one, fitted) in order {
        let more = one.most.saturating_sub(length(fitted));
        if more > 0 && more <= left {
            left -= more;
            *fitted = Some(one.before());
        }
    }
    fitted.into_iter().flatten().collect()
}

/// The greatest number of bytes that each can have, be it no less than its least and no more than its most.
fn even_share(all: &[Candidate], room: usize) -> usize {
    let needs = |share: usize| sum(all.iter().map(|one| share.clamp(one.least, one.most)));
    let most = all.iter().map(|one| one.most).max().unwrap_or_default();
    let (mut fits, mut too_much) = (0, most + 1);
    while too_much - fits > 1 {
        let middle = fits + (too_much - fits) / 2;
        if needs(middle) <= room {
            fits = middle;
        } else {
            too_much = middle;
        }
    }
    fits
}

impl Candidate {
    fn new(mut instance: InstanceReport) -> Self {
        let most = size_in_list(&instance);
        let lists = instance.probes.iter_mut().map(|probe| Lists {
            rows: std::mem::take(&mut probe.rows),
            events: std::mem::take(&mut probe.events),
        });
        Self {
            lists: lists.collect(),
            shell: instance,
            taken: None,
            most,
            least: most,
        }
    }

    fn before(&self) -> InstanceReport {
        if let Some(step) = self.taken {
            return self.cut(step, 0);
        }
        let mut instance = self.shell.clone();
        for (probe, lists) in instance.probes.iter_mut().zip(&self.lists) {
            probe.rows.clone_from(&lists.rows);
            probe.events.clone_from(&lists.events);
        }
        instance
    }

    /// The target with so many of what the step cuts, in each list.
    fn cut(&self, step: Step, keep: usize) -> InstanceReport {
        let mut instance = self.shell.clone();
        for (probe, lists) in instance.probes.iter_mut().zip(&self.lists) {
            cut(probe, lists, step, keep);
        }
        if step >= Step::Bare {
            shorten(&mut instance.message);
            instance.contention = None;
        }
        instance
    }

    /// As much of it as these bytes hold, which are at least its least, with a step taken no further than that needs.
    fn within(&self, step: Step, bytes: usize) -> Option<InstanceReport> {
        if self.most <= bytes {
            return Some(self.before());
        }
        let mut too_many = match step {
            Step::Events => MAX_EVENTS,
            Step::Parts => MAX_PARTS,
            Step::Rows => MAX_ROWS,
            Step::Bare => 1,
            Step::Gone => return None,
        };
        let mut fits = 0;
        let mut best = self.cut(step, 0);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            let kept = self.cut(step, middle);
            if size_in_list(&kept) <= bytes {
                (fits, best) = (middle, kept);
            } else {
                too_many = middle;
            }
        }
        Some(best)
    }
}

fn sum(numbers: impl Iterator<Item = usize>) -> usize {
    numbers.fold(0, usize::saturating_add)
}

/// With the comma after it.
fn size_in_list(instance: &InstanceReport) -> usize {
    size(instance).saturating_add(1)
}

/// Fills in a probe's lists: so many of what the step cuts, and nothing of what those before it cut.
fn cut(probe: &mut ProbeReport, lists: &Lists, step: Step, keep: usize) {
    let keep_of = |this: Step| match step.cmp(&this) {
        Ordering::Less => usize::MAX,
        Ordering::Equal => keep,
        Ordering::Greater => 0,
    };
    let before = probe.omitted;
    let omitted = &mut probe.omitted;
    let events = lists.events.len().min(keep_of(Step::Events));
    omitted.events += count(lists.events.len() - events);
    probe.events = lists.events[..events].to_vec();
    if step >= Step::Bare {
        omitted.untold_rows += count(lists.rows.len());
        for lack in &mut probe.lacks {
            lack.items.clear();
        }
        shorten(&mut probe.message);
    } else {
        let kind = Kind::ALL.iter().find(|kind| kind.as_str() == probe.kind);
        let apart = |key: &str| kind.is_some_and(|kind| (kind.descriptor().apart)(key));
        let (rows, folded) = fold_rows(&lists.rows, apart, keep_of(Step::Rows));
        omitted.rows += folded;
        if step >= Step::Rows {
            omitted.parts += count(lists.rows.iter().map(|row| row.parts.len()).sum());
        }
        probe.rows = Vec::with_capacity(rows.len());
        for (key, whole) in rows {
            let (parts, folded) = fold_parts(&whole.parts, keep_of(Step::Parts));
            if step < Step::Rows {
                omitted.parts += folded;
            }
            probe.rows.push(RowReport {
                key,
                parts,
                total: whole.total.into_owned(),
                window: whole.window.into_owned(),
            });
        }
    }
    if probe.omitted != before {
        say(probe);
    }
}

/// What is missing, in words.
fn say(probe: &mut ProbeReport) {
    let omitted = probe.omitted;
    let clauses = [
        (omitted.events, "events are not listed"),
        (omitted.parts, "parts of rows are not told apart"),
        (omitted.rows, "rows count in the row other"),
        (omitted.untold_rows, "rows are not told of at all"),
    ];
    let told = clauses.iter().filter(|(number, _)| *number > 0);
    let told: Vec<String> = told
        .map(|(number, words)| format!("{number} {words}"))
        .collect();
    let sentence = format!(
        "the reports of all targets of this node are more than one object holds, so {}: ask for fewer rows or column families of them",
        told.join(", ")
    );
    if !probe.message.is_empty() {
        probe.message.push_str("; ");
    }
    probe.message.push_str(&sentence);
    if probe.lacks.len() < MAX_LACKS && !probe.lacks(Reason::ReportTruncated) {
        probe.lacks.push(Lack {
            reason: Reason::ReportTruncated,
            items: Vec::new(),
        });
    }
}

fn shorten(message: &mut String) {
    if let Some((end, _)) = message.char_indices().nth(SHORT) {
        message.truncate(end);
        message.push('…');
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
