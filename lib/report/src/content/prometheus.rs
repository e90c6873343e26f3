//! What a report says of a CkbProbe on a cluster, from what Prometheus has kept of it.

use ckb_probe_crds::{Duration, numbers};

use super::{
    Block, Content, Section, anomalies, compared,
    measured::{costs, estimate, gap, lost, percent, table, trust},
    probe,
};
use crate::{
    history::ProbeHistory,
    prometheus::{Kept, Target},
    record::Interval,
    times::{clock, lasted},
};

/// A target, and its probes over time.
struct Over<'a> {
    target: &'a Target,
    columns: Vec<Interval>,
    probes: Vec<ProbeHistory>,
    /// What stands before whatever is about it: nothing where it is the only one.
    before: String,
}

/// What a report says of it: from where (an address, without what is secret), what was kept, and what of an earlier time it is compared with.
pub fn content_of_prometheus(from: &str, kept: &Kept, baseline: Option<&Kept>) -> Content {
    let over: Vec<Over> = kept
        .targets
        .iter()
        .map(|target| {
            let columns = target.history.columns();
            Over {
                target,
                probes: target.history.probes(&columns),
                columns,
                before: match kept.targets.len() {
                    1 => String::new(),
                    _ => format!("{}: ", target.name),
                },
            }
        })
        .collect();
    let mut sections = vec![measured(from, kept, &over)];
    if let Some(baseline) = baseline {
        sections.extend(over.iter().map(|of| compare(of, kept, baseline)));
    }
    sections.extend(over.iter().map(|of| {
        let title = format!("{}What was not as usual", of.before);
        anomalies::section(title, &of.target.history)
    }));
    for of in &over {
        sections.extend(of.probes.iter().map(|one| {
            let mut section = probe::section(one, &of.columns);
            section.title = format!("{}{}", of.before, section.title);
            section
        }));
    }
    sections.push(not_there(kept));
    sections.push(cost(&over));
    Content {
        title: format!("ckb-probe: {}, from Prometheus", kept.subject),
        sections,
    }
}

fn measured(from: &str, kept: &Kept, over: &[Over]) -> Section {
    let (begin, end) = kept.asked;
    let each = Duration::from(std::time::Duration::from_millis(kept.step));
    let mut blocks = vec![
        Block::Text(format!(
            "CkbProbe {} from {} to {} (UTC), {}, as the Prometheus at {from} has it: samples every {each}, and what agents counted between one and the next.",
            kept.subject,
            clock(begin),
            clock(end),
            lasted(end.saturating_sub(begin)),
        )),
        targets(kept),
    ];
    if !kept.left_out.is_empty() {
        blocks.push(Block::Text(format!(
            "And {} targets more, of which nothing is here: {}. --pod NAME makes a report of one.",
            kept.left_out.len(),
            kept.left_out.join(", ")
        )));
    }
    let rows = over.iter().flat_map(|of| {
        of.probes.iter().map(|probe| {
            let [share, error, unmeasured] = trust(probe);
            let (name, kind) = (probe.asked.name.clone(), probe.asked.kind.clone());
            let target = of.target.name.clone();
            vec![target, name, kind, share, error, unmeasured]
        })
    });
    blocks.push(table(
        &[
            "TARGET",
            "PROBE",
            "KIND",
            "LEAST SHARE RECORDED",
            "GREATEST STANDARD ERROR",
            "NOT MEASURED",
        ],
        rows.collect(),
    ));
    blocks.extend(remarks(kept).into_iter().map(Block::Text));
    let gaps = kept.targets.iter().flat_map(|target| {
        let gaps = target.history.gaps.iter();
        gaps.map(|one| {
            let [begin, length, why] = gap(one);
            vec![target.name.clone(), begin, length, why]
        })
    });
    let gaps: Vec<Vec<String>> = gaps.collect();
    blocks.push(match gaps.is_empty() {
        true => Block::Text("Nothing is missing of that time.".to_owned()),
        false => table(&["TARGET", "NOTHING IS KNOWN FROM", "FOR", "WHY"], gaps),
    });
    Section {
        title: "What was measured, and how truly".to_owned(),
        blocks,
    }
}

fn targets(kept: &Kept) -> Block {
    let (begin, end) = kept.asked;
    let share = |share: Option<f64>| {
        share.map_or_else(
            || "-".to_owned(),
            |share| percent((share * 1e6).round() as u64, 1_000_000),
        )
    };
    let rows = kept.targets.iter().map(|target| {
        let facts = &target.facts;
        vec![
            target.name.clone(),
            facts.samples.to_string(),
            percent(target.history.known(), end.saturating_sub(begin)),
            share(facts.attached),
            share(facts.firing),
            facts.reattaches.to_string(),
            lasted(facts.without_probe),
            facts.resets.to_string(),
            lost(&facts.lost),
        ]
    });
    table(
        &[
            "TARGET",
            "SAMPLES",
            "OF THAT TIME KNOWN",
            "ATTACHED",
            "FIRING",
            "FOUND ANEW",
            "WITHOUT A PROBE",
            "COUNTERS ANEW",
            "LOST",
        ],
        rows.collect(),
    )
}

/// What is to be known of figures of this sort.
fn remarks(kept: &Kept) -> Vec<String> {
    let mut said = vec![
        "ATTACHED and FIRING are parts of what is known. An agent that restarts counts from 0: what it counted after the last sample before that is in no figure, \
         and COUNTERS ANEW says how often that was."
            .to_owned(),
        "Histograms have a bound at each power of two from 512 ns on, and values are taken to be spread evenly between two of them, as histogram_quantile takes \
         them: a quantile is more than half and less than twice what it was. Standard errors are those of report intervals: of longer times they are at most that."
            .to_owned(),
    ];
    for target in &kept.targets {
        let facts = &target.facts;
        if facts.entry_only {
            said.push(format!(
                "Calls of {} were counted and not timed, at least for a while: see EntryOnly in docs/troubleshooting.md.",
                target.name
            ));
        }
        if facts.rows_left_out {
            said.push(format!(
                "The agent of {} left out rows, at least for a while, since those of its node were too many for its page.",
                target.name
            ));
        }
        said.extend(facts.without_histogram.iter().map(|(probe, histogram)| {
            format!(
                "Of the probe {probe} of {} there are no durations: Prometheus has no {histogram}_bucket. Either relabelling drops it, or Prometheus makes native \
                 histograms of it, and keeps the agent's as well with always_scrape_classic_histograms: true (scrapeClassicHistograms in a PodMonitor).",
                target.name
            )
        }));
    }
    said
}

/// The target of an earlier time with which one of this name is compared: that of the same name, or the only one of each.
pub fn counterpart<'a>(name: &str, kept: &Kept, baseline: &'a Kept) -> Option<&'a Target> {
    let named = |target: &&Target| target.name == name;
    // A pod of a Deployment has another name each time.
    let only = || match (&kept.targets[..], &baseline.targets[..]) {
        ([_], [other]) => Some(other),
        _ => None,
    };
    baseline.targets.iter().find(named).or_else(only)
}

fn compare(of: &Over, kept: &Kept, baseline: &Kept) -> Section {
    let (begin, end) = baseline.asked;
    let title = format!("{}Compared with an earlier time", of.before);
    let Some(other) = counterpart(&of.target.name, kept, baseline) else {
        return Section {
            title,
            blocks: vec![Block::Text(format!(
                "Of {} Prometheus has nothing from {} to {} (UTC).",
                of.target.name,
                clock(begin),
                clock(end),
            ))],
        };
    };
    let name = format!(
        "{} from {} to {} (UTC), of which {} is known",
        other.name,
        clock(begin),
        clock(end),
        percent(other.history.known(), end.saturating_sub(begin)),
    );
    compared::section(title, &of.target.history, &name, &other.history)
}

/// What there is in a report of a record and not here, and where it is.
fn not_there(kept: &Kept) -> Section {
    let (namespace, name) = kept.subject.split_once('/').unwrap_or_default();
    let said = [
        format!(
            "The slowest calls, with what ran beside them, and blocks one by one: Prometheus has numbers, and not what is listed individually. \
             kubectl ckbprobe slow {name} -n {namespace} shows it as it comes, kubectl ckbprobe blocks {name} -n {namespace} blocks, and traces keep it \
             (docs/tracing.md)."
        ),
        format!(
            "Flame graphs: stacks are in CkbProfiles. kubectl ckbprobe flamegraph {name} -n {namespace} draws those of the newest windows."
        ),
        format!(
            "What the containers waited for, CPUs, their limit, disks, and TCP segments sent again: of what is unusual now it is beside it in the status \
             of the CkbProbe (kubectl get ckbprobe {name} -n {namespace} -o yaml, anomalies); of containers as such the kubelet's own metrics have it \
             (container_cpu_cfs_throttled_periods_total and others)."
        ),
        "The longest call of a row, blocks by height, and whatever else is a maximum: no metric tells maxima.".to_owned(),
        "The kernel, the version and the budget: they are in the status of the CkbProbe, and in spec.overhead.".to_owned(),
    ];
    Section {
        title: "What Prometheus does not have".to_owned(),
        blocks: said.into_iter().map(Block::Text).collect(),
    }
}

fn cost(over: &[Over]) -> Section {
    let rows = over.iter().map(|of| {
        let known = estimate(&of.target.history);
        let [mean, most] = known.map_or_else(
            || ["-".to_owned(), "-".to_owned()],
            |percents| percents.map(|percent| format!("{percent} %")),
        );
        let granted = of.target.history.intervals().filter_map(|one| one.floor);
        let granted = granted.min().map_or_else(
            || "-".to_owned(),
            |least| format!("{} %", numbers::rate(least as f64 / 1000.0)),
        );
        vec![of.target.name.clone(), mean, most, granted]
    });
    let mut blocks = vec![
        Block::Text(
            "Estimated, as a part of the CPU time of the target, for all CkbProbes on it together; in the means of steps."
                .to_owned(),
        ),
        table(
            &["TARGET", "COST", "AT MOST", "GRANTED AT LEAST"],
            rows.collect(),
        ),
    ];
    blocks.extend(over.iter().filter(|of| !of.columns.is_empty()).map(|of| {
        let title = format!(
            "{}Estimated cost, in percent of the CPU time of the target",
            of.before
        );
        costs(title, &of.columns, 0)
    }));
    Section {
        title: "What measuring cost".to_owned(),
        blocks,
    }
}
