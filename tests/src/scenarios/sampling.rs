//! A busy target is measured within the budget that a CkbProbe has by default, and its figures are true all the same.

use super::prelude::*;
use crate::{
    bpf::Code,
    bpftrace::Bpftrace,
    budget::{self, SETTLED, Watched},
    metrics::Operation,
};

/// Percent by which a sampled operation's calls in a minute may be off. How close they come is for `make bench` to say: on a
/// busy machine the load itself is not steady, and a few slices stand for a minute of it.
const SAMPLING_ERROR: f64 = 20.0;

/// The part of an operation's calls that slices may cut, beside those that they must: who takes a tenth of a slice is cut once in ten.
const CUT: f64 = 0.01;

/// Slices are no shorter than this, on the average; in seconds.
const SLICE: f64 = 0.02;

/// What a busy workload does most, of which some calls at least must go unrecorded.
const BUSIEST: &str = "Get";

/// What it does so rarely that every call is recorded.
const RARE: [&str; 1] = ["Write"];

/// How often each operation was done.
type Calls = BTreeMap<String, f64>;

/// Who else knows that.
enum Reference {
    /// The target counts its calls itself.
    Target,
    /// A node does not: bpftrace counts what returns.
    Bpftrace(Box<Bpftrace>),
}

impl Reference {
    async fn of(scene: &Scene<'_>, target: &Target) -> Result<Self> {
        if scene.workload != Workload::Ckb {
            return Ok(Self::Target);
        }
        let (code, operations) = (Code::of(target.process)?, scene.workload.operations());
        let bpftrace = Bpftrace::count(target.process, &code, &operations).await?;
        Ok(Self::Bpftrace(bpftrace.into()))
    }

    /// What it knows, and the agent of the same moment of the target's life.
    async fn ask(&mut self, target: &Target, agent: &Component) -> Result<(Calls, Metrics)> {
        let (functions, metrics) = match self {
            Self::Target => {
                let (_paused, made) = target.pause().await?;
                (made, agent.scrape().await?)
            }
            Self::Bpftrace(bpftrace) => {
                let _stopped = target.process.stop().await?;
                (bpftrace.counts().await?, agent.scrape().await?)
            }
        };
        let mut truth = Calls::new();
        for (function, calls) in functions {
            if let Some(operation) = operations::served_by(&function) {
                *truth.entry(operation.to_string()).or_default() += calls as f64;
            }
        }
        Ok((truth, metrics))
    }

    /// How many calls of an operation it may not have seen the end of, as it was asked twice.
    fn in_flight(&self) -> f64 {
        match self {
            Self::Target => 0.0,
            Self::Bpftrace(_) => 2.0,
        }
    }
}

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.deploy(Load::Busy).await?;
    scene.apply_probe(probe(scene)).await?;
    scene.firing().await?;
    let mut reference = Reference::of(scene, &target).await?;
    let api = scene.api::<CkbProbe>();
    let ceiling = api.get(PROBE).await?.spec.overhead.max_percent;
    scene.equal_of("maxPercent by default", ceiling, "%", 1.0);
    let started = Instant::now();
    scene
        .status("the budget to be kept by sampling", SETTLED, is_sampled)
        .await?;
    scene.seconds(
        "until the budget is kept, by sampling",
        started.elapsed(),
        SETTLED,
    );

    let agent = scene.cluster.agent().await?;
    let minutes = budget::minutes(
        async || Minute::pass(scene, &target, &agent, &mut reference, ceiling).await,
        |minute| minute.watched.is_calm() && minute.worst <= SAMPLING_ERROR,
    )
    .await?;
    judge(scene, &minutes);

    // The metrics say the same as the status.
    let metrics = agent.scrape().await?.operations(&scene.namespace, PROBE);
    let told = metrics.iter().filter(|one| {
        let agree = agree(one);
        if !agree {
            crate::note!("they do not agree: {one:?}");
        }
        agree
    });
    scene.equal(
        "operations whose samples, calls and sampling ratio agree in the metrics",
        told.count(),
        metrics.len(),
    );
    Ok(())
}

/// Whether the metrics of an operation can be true of one run. What is sampled now may not have been before, or the other way round, so
/// the ratio of the last interval does not tell what the totals were made of.
fn agree(one: &Operation) -> bool {
    // A call that outlasts its slice, or a change of the plan, is counted where it began and not timed.
    let cut = one.calls - one.timed;
    let one_that_was_seen = one.calls / one.samples.max(1.0);
    let outlast = one.seconds / one.timed.max(1.0) / SLICE;
    let busiest_is_sampled = one.name != BUSIEST || one.samples < one.calls;
    one.samples <= one.calls
        && busiest_is_sampled
        && (0.0..=(one.calls * (CUT + outlast)).max(3.0 * one_that_was_seen)).contains(&cut)
}

/// What is asked of the minutes: of what another program on the machine can disturb, the median; of all else, each of them.
fn judge(scene: &Scene<'_>, minutes: &[Minute]) {
    budget::judge(scene, minutes, |minute| &minute.watched);
    let shares = |operation: &'static str| {
        let of = move |minute: &Minute| minute.shares.get(operation).copied();
        minutes.iter().filter_map(of)
    };
    scene.figure(
        &format!("highest samplingPercent of {BUSIEST}"),
        shares(BUSIEST)
            .map(|(_, most)| most)
            .reduce(f64::max)
            .unwrap_or(100.0),
        "%",
        Bound::AtMost(99.9),
    );
    for operation in RARE {
        scene.equal_of(
            &format!("lowest samplingPercent of {operation}"),
            shares(operation)
                .map(|(least, _)| least)
                .reduce(f64::min)
                .unwrap_or(0.0),
            "%",
            100.0,
        );
    }
    scene.figure(
        "largest error of a sampled operation's calls in a minute",
        budget::median(minutes, |minute| minute.worst),
        "%",
        Bound::AtMost(SAMPLING_ERROR),
    );
    scene.equal(
        &format!("calls of {RARE:?} that are not each of them recorded"),
        budget::median(minutes, |minute| minute.scaled),
        0,
    );
    let sum = |value: fn(&Minute) -> f64| minutes.iter().map(value).sum::<f64>();
    scene.equal_of(
        "calls more or fewer than were made, of operations that are not sampled",
        sum(|minute| minute.missed),
        &format!("of {}", sum(|minute| minute.of)),
        0,
    );
}

/// What was seen while both counted, agent and target.
struct Minute {
    watched: Watched,
    /// The lowest and the highest share of each operation.
    shares: BTreeMap<String, (f64, f64)>,
    /// Calls of rare operations that are counted and were not recorded one by one.
    scaled: f64,
    /// The largest error of the calls of an operation that is sampled, in percent.
    worst: f64,
    /// Calls more or fewer than were made, of operations that are not sampled.
    missed: f64,
    /// Of so many.
    of: f64,
}

impl Minute {
    /// Lets one pass.
    async fn pass(
        scene: &Scene<'_>,
        target: &Target,
        agent: &Component,
        reference: &mut Reference,
        ceiling: f64,
    ) -> Result<Self> {
        let before = Counts::now(scene, target, agent, reference).await?;
        let mut shares = BTreeMap::new();
        let watched = Watched::minute(scene, ceiling, |status| {
            for (operation, share) in sampling(status)? {
                let (least, most) = shares.entry(operation).or_insert((share, share));
                (*least, *most) = (share.min(*least), share.max(*most));
            }
            Ok(())
        })
        .await?;
        let after = Counts::now(scene, target, agent, reference).await?;
        let window = after.since(&before);
        for (operation, (least, most)) in &shares {
            crate::note!("{operation}: recorded for {least} % to {most} % of the time");
        }
        let mut minute = Self {
            watched,
            shares,
            scaled: 0.0,
            worst: 0.0,
            missed: 0.0,
            of: 0.0,
        };
        for (operation, truth) in window.truth.iter().filter(|(_, truth)| **truth > 0.0) {
            let Some(counted) = window.counted.get(operation) else {
                continue;
            };
            let error = (counted - truth).abs();
            let percent = error / truth * 100.0;
            crate::note!("{operation}: {counted} counted of {truth}, off by {percent:.2} %");
            let samples = window.samples.get(operation).copied().unwrap_or_default();
            if RARE.contains(&operation.as_str()) {
                minute.scaled += (counted - samples).abs();
            }
            // Of the metrics, not of the looks: an interval that has not ended yet is shown by none of them.
            if samples == *counted {
                minute.missed += (error - reference.in_flight()).max(0.0);
                minute.of += truth;
            } else {
                minute.worst = minute.worst.max(percent);
            }
        }
        Ok(minute)
    }
}

/// How often each operation was done.
struct Counts {
    /// By what is sampled.
    counted: Calls,
    /// Those of them that were recorded one by one.
    samples: Calls,
    /// By who knows.
    truth: Calls,
}

impl Counts {
    /// Those of one moment of the target's life.
    async fn now(
        scene: &Scene<'_>,
        target: &Target,
        agent: &Component,
        reference: &mut Reference,
    ) -> Result<Self> {
        let (truth, metrics) = reference.ask(target, agent).await?;
        let operations = metrics.operations(&scene.namespace, PROBE);
        let of = |value: fn(&Operation) -> f64| {
            let operations = operations.iter();
            operations
                .map(|one| (one.name.clone(), value(one)))
                .collect()
        };
        Ok(Self {
            counted: of(|one| one.calls),
            samples: of(|one| one.samples),
            truth,
        })
    }

    fn since(&self, before: &Self) -> Self {
        let difference = |now: &BTreeMap<String, f64>, before: &BTreeMap<String, f64>| {
            now.iter()
                .map(|(operation, calls)| {
                    let before = before.get(operation).copied().unwrap_or_default();
                    (operation.clone(), calls - before)
                })
                .collect()
        };
        Self {
            counted: difference(&self.counted, &before.counted),
            samples: difference(&self.samples, &before.samples),
            truth: difference(&self.truth, &before.truth),
        }
    }
}

/// As short as a CkbProbe can be: budget and operations are those by default.
fn probe(scene: &Scene<'_>) -> Value {
    let spec = json!({
        "target": workload_target(),
        "probes": [{ "name": "storage", "rocksdb": {} }],
    });
    ckb_probe(&scene.namespace, PROBE, &spec)
}

/// Within the budget, with an estimate to show for it; what is busy is sampled, and what is rare is not.
fn is_sampled(status: &CkbProbeStatus) -> Result<()> {
    let overhead = &status.overhead;
    let shares = sampling(status)?;
    let share = |operation: &str| shares.get(operation).copied().unwrap_or_default();
    expect(
        budget::is_within(status)
            && overhead.estimated_percent.is_some()
            && shares.get(BUSIEST).is_some_and(|share| *share < 100.0)
            && RARE.iter().all(|operation| share(operation) == 100.0),
        format!("WithinBudget True, {BUSIEST} sampled, and {RARE:?} not"),
        || format!("{overhead:?}, {:?}", status.conditions),
    )
}

/// The share of each operation of which an interval has ended.
fn sampling(status: &CkbProbeStatus) -> Result<BTreeMap<String, f64>> {
    rows::shown(status)
        .filter_map(|one| Some((&one.key, one.sampling_percent.as_ref()?)))
        .map(|(operation, percent)| {
            let percent = percent
                .parse()
                .map_err(Failure::format("samplingPercent"))?;
            Ok((operation.clone(), percent))
        })
        .collect()
}
