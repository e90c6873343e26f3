//! A CKB node that imports a chain, probed in several ways: the peak load, where the traps alone cost more than the whole
//! budget.

use ckb_probe_crds::{Histogram, Overhead};

use super::{
    chain::{self, Took},
    figures::{Figures, Operation},
    prelude::*,
    probes::Floor,
    statistics::to_and_fro,
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

/// Percent: no two imports make calls that are more alike.
const SAME: f64 = 0.1;

/// What is compared, in the order in which it is measured: each stands beside what it is compared with, or between two
/// of them.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Bpftrace,
    Floor,
    NoBudget,
    Nothing,
    Budget,
}

const ALL: [(&str, By); 7] = [
    ("bpftrace", By::Bpftrace),
    ("floor", By::Floor),
    ("traced", By::NoBudget),
    ("nothing", By::Nothing),
    ("budget", By::Budget),
    // Once more: what two equal imports differ by is what no figure here can tell.
    ("again", By::Nothing),
    ("retraced", By::NoBudget),
];

const ROWS: [Row; 2] = table! {
    "unprobed" = "nothing.wall" in "s";
    "budget off, all operations, slower than with empty programs" = "traced.wall % floor.wall" in "%", AtMost(2.0);
};

// Of two that were probed in the same way, what is halfway between them in each round: two scatter less than one.
const MORE: [Row; 5] = table! {
    "unprobed once more" = "again % nothing" in "%";
    "budget 1 %" = "budget % nothing~again" in "%", AtMost(1.5);
    "budget off, all operations" = "traced~retraced % nothing~again" in "%";
    "empty programs" = "floor % nothing~again" in "%";
    "bpftrace's histogram pair on 6 functions" = "bpftrace % nothing~again" in "%";
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    // Not measured: it fetches node and blocks from the disk.
    import(bench, By::Nothing).await?;
    let (mut figures, mut turn) = ([(); ALL.len()].map(|()| Vec::new()), 0);
    let measure = async |by| {
        let (took, found) = import(bench, by).await?;
        let order: Vec<usize> = to_and_fro(ALL.len(), turn / ALL.len()).collect();
        figures[order[turn % ALL.len()]].extend(found);
        turn += 1;
        Ok(took.found())
    };
    let series = bench.turns(Order::ToAndFro, &ALL, measure).await?;
    bench.tell("import: ", &series, &ROWS);
    chain::tell_more(bench, "import", &series, &MORE);
    let [_, _, traced, _, budget, _, retraced] = &figures;
    sampled(bench, budget, [traced, retraced]);
    Ok(())
}

/// One import.
async fn import(bench: &Bench, by: By) -> Result<(Took, Option<Figures>)> {
    let settings = &bench.settings;
    let container = Container::new(1);
    match by {
        By::Nothing => Ok((Import::start(settings, &container)?.finish().await?, None)),
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

/// What sampling says of an import, against what full tracing says of the two that surround it.
///
/// Every import makes the same calls, so calls per import are compared: a rate per second would be that of a slower import
/// where everything is traced.
fn sampled(bench: &mut Bench, sampled: &[Figures], full: [&[Figures]; 2]) {
    let [before, after] = full;
    let operations: BTreeSet<&String> = full
        .into_iter()
        .flatten()
        .flat_map(|figures| figures.operations.keys())
        .collect();
    for operation in operations {
        let of = |import: &Figures| import.operations.get(operation).cloned();
        let rounds = sampled.iter().zip(before).zip(after);
        let rounds: Vec<Round> = rounds
            .filter_map(|((sampled, before), after)| {
                Some(Round {
                    sampled: of(sampled)?,
                    full: [of(before)?, of(after)?],
                })
            })
            .collect();
        if !rounds.is_empty() && rounds.iter().all(|round| round.full_calls() >= RATED) {
            of_operation(bench, operation, &rounds);
        }
    }
}

/// An operation in a sampled import, and in the two around it.
struct Round {
    sampled: Operation,
    full: [Operation; 2],
}

fn of_operation(bench: &mut Bench, operation: &str, rounds: &[Round]) {
    let mut figure = |rounds: &[&Round], what: &str, unit, bound, of: &dyn Fn(&Round) -> f64| {
        let name = format!("import, sampled: {operation}: {what}");
        let values = rounds.iter().map(|round| of(round));
        bench.figure(&name, summary(values), unit, bound);
    };
    let all: Vec<&Round> = rounds.iter().collect();
    let told: Vec<&Round> = rounds.iter().filter(|round| round.is_told()).collect();
    figure(&all, "share of the time", "%", None, &|round| {
        100.0 * round.sampled.share()
    });
    figure(&all, "calls in the samples", "", None, &|round| {
        round.sampled.samples as f64
    });
    let least = "imports of which the count was said to be the least that there was";
    figure(&all, least, "", None, &|round| {
        f64::from(u8::from(!round.is_told()))
    });
    if !told.is_empty() {
        let rate = |round: &Round| off(round.sampled.calls as f64, round.full_calls());
        let error = |round: &Round| 100.0 * round.sampled.error;
        figure(&told, "rate is off by", "%", Some(Within(5.0)), &rate);
        figure(&told, "standard error that was told", "%", None, &error);
        let bound = Some(AtMost(2.0));
        figure(
            &told,
            "rate is off, in standard errors",
            "",
            bound,
            &|round| rate(round).abs() / error(round).max(SAME),
        );
    }
    let samples: u64 = rounds.iter().map(|round| round.sampled.samples).sum();
    if samples <= 1000 {
        return;
    }
    for (what, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let bound = Some(Within(10.0));
        figure(&all, &format!("{what} is off by"), "%", bound, &|round| {
            let sampled = quantile_of(&round.sampled.histogram, quantile);
            off(sampled, round.full_quantile(quantile))
        });
        // Two that were traced all the time differ by that: what sampling is off by cannot be told apart from it.
        let again = format!("{what} of full tracing, once more");
        figure(&all, &again, "%", None, &|round| {
            let [before, after] = &round.full;
            let [before, after] = [before, after].map(|one| quantile_of(&one.histogram, quantile));
            off(after, before)
        });
    }
}

impl Round {
    /// Whether more is told of it than what was seen.
    fn is_told(&self) -> bool {
        self.sampled.error.is_finite()
    }

    fn full_calls(&self) -> f64 {
        let [before, after] = &self.full;
        (before.calls as f64).midpoint(after.calls as f64)
    }

    fn full_quantile(&self, quantile: f64) -> f64 {
        let [before, after] = &self.full;
        let mut both = before.histogram.clone();
        both.merge(&after.histogram);
        quantile_of(&both, quantile)
    }
}

fn quantile_of(histogram: &Histogram, quantile: f64) -> f64 {
    histogram.quantile(quantile).unwrap_or_default() as f64
}

/// By how much an estimate is off, in percent.
fn off(estimate: f64, truth: f64) -> f64 {
    100.0 * (estimate / truth - 1.0)
}
