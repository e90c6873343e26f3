//! A CKB node that imports a chain, probed in several ways: the peak load, where the traps alone cost more than the whole
//! budget.

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{Histogram, InstanceState, Overhead};

use super::{
    Bench,
    agent::{self, Agent, budget, no_budget},
    chain::{Import, Took},
    container::Container,
    figures::Figures,
    probes::{Floor, Probes},
    statistics::{mean, percent_more, rotated, summary},
};
use crate::{
    failure::{Result, expect},
    report::Bound,
    wait,
};

/// Between two reports of the agent.
const REPORT: Duration = Duration::from_secs(2);

/// Until the agent has reported on an import that has ended.
const REPORTED: Duration = Duration::from_secs(10);

/// The functions that serve an operation and begin with an instruction that the kernel emulates in CKB 0.210.
const FUNCTIONS: [&str; 11] = [
    "rocksdb_get_pinned_cf",
    "rocksdb_transaction_get_pinned_cf",
    "rocksdb_transaction_get_for_update_cf",
    "rocksdb_transaction_put_cf",
    "rocksdb_transaction_delete_cf",
    "rocksdb_transaction_commit",
    "rocksdb_write",
    "rocksdb_put",
    "rocksdb_put_cf",
    "rocksdb_create_iterator_cf",
    "rocksdb_transaction_create_iterator_cf",
];

/// The six that an import calls all the time.
const BUSY: [&str; 6] = [
    "rocksdb_get_pinned_cf",
    "rocksdb_transaction_get_pinned_cf",
    "rocksdb_transaction_get_for_update_cf",
    "rocksdb_transaction_put_cf",
    "rocksdb_transaction_commit",
    "rocksdb_create_iterator_cf",
];

/// An operation with fewer calls in an import has no rate: whether the first of its calls came before the attach decides.
const RATED: f64 = 100.0;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Nothing,
    /// Once more: what two equal imports differ by is what no figure here can tell.
    NothingAgain,
    Budget,
    NoBudget,
    Floor,
    Bpftrace,
}

const ALL: [By; 6] = [
    By::Nothing,
    By::NothingAgain,
    By::Budget,
    By::NoBudget,
    By::Floor,
    By::Bpftrace,
];

/// The imports of one way of probing.
#[derive(Default)]
struct Imports {
    wall: Vec<f64>,
    cpu: Vec<f64>,
    figures: Vec<Figures>,
}

impl Imports {
    /// Of two that were probed in the same way, the mean of each round: two scatter less than one.
    fn halfway_to(&self, other: &Self) -> Self {
        let means = |one: &[f64], other: &[f64]| {
            let pairs = one.iter().zip(other);
            pairs.map(|(one, other)| one.midpoint(*other)).collect()
        };
        Self {
            wall: means(&self.wall, &other.wall),
            cpu: means(&self.cpu, &other.cpu),
            figures: Vec::new(),
        }
    }
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let mut imports: [Imports; ALL.len()] = Default::default();
    // Not measured: it fetches node and blocks from the disk.
    import(bench, By::Nothing).await?;
    for round in 0..bench.settings.rounds {
        for index in rotated(ALL.len(), round) {
            let (took, figures) = import(bench, ALL[index]).await?;
            let imports = &mut imports[index];
            imports.wall.push(took.wall.as_secs_f64());
            imports.cpu.push(took.cpu.as_secs_f64());
            imports.figures.extend(figures);
        }
    }
    let [nothing, again, budget, no_budget, floor, bpftrace] = &imports;
    let seconds = |imports: &Imports| summary(imports.wall.iter().copied());
    bench.figure("import: unprobed", seconds(nothing), "s", None);
    slower(bench, "unprobed once more", again, nothing, None);
    let unprobed = &nothing.halfway_to(again);
    let bound = Some(Bound::AtMost(1.5));
    slower(bench, "budget 1 %", budget, unprobed, bound);
    let all = "budget off, all operations";
    slower(bench, all, no_budget, unprobed, None);
    slower(bench, "empty programs", floor, unprobed, None);
    let peer = "bpftrace's histogram pair on 6 functions";
    slower(bench, peer, bpftrace, unprobed, None);
    let more = summary(percent_more(&no_budget.wall, &floor.wall));
    let name = "import: budget off, all operations, slower than with empty programs";
    bench.figure(name, more, "%", Some(Bound::AtMost(2.0)));
    sampled(bench, &budget.figures, &no_budget.figures);
    Ok(())
}

fn slower(bench: &mut Bench, what: &str, imports: &Imports, base: &Imports, bound: Option<Bound>) {
    let wall = summary(percent_more(&imports.wall, &base.wall));
    bench.figure(&format!("import: {what}, slower"), wall, "%", bound);
    let cpu = summary(percent_more(&imports.cpu, &base.cpu));
    bench.figure(&format!("import: {what}, more CPU time"), cpu, "%", None);
}

/// One import.
async fn import(bench: &Bench, by: By) -> Result<(Took, Option<Figures>)> {
    let settings = &bench.settings;
    let container = Container::new(1)?;
    match by {
        By::Nothing | By::NothingAgain => {
            Ok((Import::start(settings, &container)?.finish().await?, None))
        }
        By::Floor => {
            let import = Import::start(settings, &container)?;
            let process = import.process().await?;
            let probes = Probes::floor(Floor::Empty, process, &settings.ckb, &FUNCTIONS).await?;
            let took = import.finish().await?;
            probes.stop().await?;
            Ok((took, None))
        }
        By::Bpftrace => {
            let probes = Probes::bpftrace(&settings.ckb, &BUSY).await?;
            let took = Import::start(settings, &container)?.finish().await?;
            let printed = probes.stop().await?;
            expect(
                printed.bpftrace_calls() > 0,
                "calls seen by bpftrace",
                || printed.errors,
            )?;
            Ok((took, None))
        }
        By::Budget => by_agent(bench, &container, budget()).await,
        By::NoBudget => by_agent(bench, &container, no_budget()).await,
    }
}

/// An import under the eyes of an agent that waits for it, as for a container that is about to start.
async fn by_agent(
    bench: &Bench,
    container: &Container,
    overhead: Overhead,
) -> Result<(Took, Option<Figures>)> {
    let settings = &bench.settings;
    let agent = Agent::start(settings).await?;
    let order = agent::order_for_ckb(settings, container, overhead, REPORT);
    agent.order(vec![order]).await?;
    let took = Import::start(settings, container)?.finish().await?;
    agent.every(InstanceState::Waiting, REPORTED).await?;
    let figures = wait::until("the last report", REPORTED, async || {
        let figures = Figures::of(&agent.reports());
        figures.expect_complete()?;
        Ok(figures)
    })
    .await?;
    agent.stop().await?;
    Ok((took, Some(figures)))
}

/// An operation over several imports.
#[derive(Default)]
struct Aggregate {
    calls: Vec<f64>,
    histogram: Histogram,
    samples: u64,
    elapsed: Duration,
    recorded: Duration,
}

fn aggregate(imports: &[Figures]) -> BTreeMap<&str, Aggregate> {
    let mut all = BTreeMap::<&str, Aggregate>::new();
    for (name, operation) in imports.iter().flat_map(|figures| &figures.operations) {
        let aggregate = all.entry(name).or_default();
        aggregate.calls.push(operation.total.count as f64);
        aggregate.histogram.merge(&operation.histogram);
        aggregate.samples += operation.samples;
        aggregate.elapsed += operation.elapsed;
        aggregate.recorded += operation.recorded;
    }
    all
}

/// What sampling says of an import, against what is so.
///
/// Every import makes the same calls, so calls per import are compared: a rate per second would be that of a slower import
/// where everything is traced.
fn sampled(bench: &mut Bench, sampled: &[Figures], full: &[Figures]) {
    let (sampled, full) = (aggregate(sampled), aggregate(full));
    for (operation, truth) in full {
        let Some(calls) = mean(&truth.calls).filter(|calls| *calls >= RATED) else {
            continue;
        };
        let Some(estimate) = sampled.get(operation) else {
            continue;
        };
        let name = |what: &str| format!("import, sampled: {operation}: {what}");
        bench.value(&name("share of the time"), estimate.share(), "%", None);
        let samples = estimate.samples as f64;
        bench.value(&name("calls in the samples"), samples, "", None);
        let error = off(mean(&estimate.calls).unwrap_or_default(), calls);
        bench.value(
            &name("rate is off by"),
            error,
            "%",
            Some(Bound::AtMost(5.0)),
        );
        for (what, quantile) in [("p50 is off by", 0.5), ("p99 is off by", 0.99)] {
            if estimate.samples > 1000 {
                let error = off(estimate.quantile(quantile), truth.quantile(quantile));
                bench.value(&name(what), error, "%", Some(Bound::AtMost(10.0)));
            }
        }
    }
}

impl Aggregate {
    /// The share of the time in which calls were recorded, in percent.
    fn share(&self) -> f64 {
        100.0 * self.recorded.as_secs_f64() / self.elapsed.as_secs_f64()
    }

    fn quantile(&self, quantile: f64) -> f64 {
        self.histogram.quantile(quantile).unwrap_or_default() as f64
    }
}

/// By how much an estimate is off, in percent.
fn off(estimate: f64, truth: f64) -> f64 {
    100.0 * (estimate / truth - 1.0).abs()
}
