//! Quantiles against the truth of a program that takes the time of every call itself.

use ckb_probe_crds::Histogram;

use super::{Tier, prelude::*};
use crate::{
    fixture::{GroundTruth, Truth},
    operations,
};

/// The quantiles that statuses show.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// What the scale of the kernel's histogram allows.
const ERROR: Bound = Bound::AtMost(3.2);

/// Calls of some length.
struct Plan {
    what: &'static str,
    threads: &'static str,
    lines: [&'static str; 3],
    bound: Option<Bound>,
}

const PLANS: [Plan; 3] = [
    Plan {
        what: "calls of milliseconds",
        threads: "8",
        lines: [
            "rocksdb_get_pinned_cf 2000 uniform:1000000..9000000",
            "rocksdb_transaction_commit 2000 lognormal:3000000,0.6",
            "rocksdb_write 500 constant:5000000",
        ],
        bound: Some(ERROR),
    },
    Plan {
        what: "calls of 20 to 100 us",
        threads: "1",
        lines: [
            "rocksdb_get_pinned_cf 20000 uniform:20000..90000",
            "rocksdb_transaction_commit 10000 constant:50000",
            "rocksdb_write 5000 lognormal:40000,0.2",
        ],
        bound: Some(ERROR),
    },
    Plan {
        what: "calls of 1 to 5 us",
        threads: "1",
        lines: [
            "rocksdb_get_pinned_cf 100000 uniform:1000..5000",
            "rocksdb_transaction_commit 50000 constant:2000",
            "rocksdb_write 50000 constant:1000",
        ],
        bound: None,
    },
];

pub async fn run(bench: &mut Bench) -> Result<()> {
    for plan in PLANS {
        for tier in [Tier::Session, Tier::UprobeMulti, Tier::PerfEvent] {
            let mut series = Series::default();
            for _ in 0..bench.settings.rounds {
                series.push("error", worst_error(bench, tier, &plan).await?);
            }
            let of = format!("quantiles: {}, tier {}: ", plan.what, tier.name());
            let [row] = table! { "largest error" = "error" in "%"; };
            let bound = plan.bound;
            bench.tell(&of, &series, &[Row { bound, ..row }]);
        }
    }
    Ok(())
}

/// By how much the worst quantile of all operations is off, in percent.
async fn worst_error(bench: &Bench, tier: Tier, plan: &Plan) -> Result<f64> {
    let system = || Failure::system("ground-truth");
    let options = ["--threads", plan.threads];
    let mut fixture = GroundTruth::start("ground-truth", &options, &plan.lines).map_err(system())?;
    let target = Process::of(fixture.pid() as i32)?;
    let options = [
        "--operations",
        "Get,TxnCommit,Write",
        "--interval",
        "1h",
        "--json",
        "--tier",
        tier.name(),
    ];
    let probes = Probes::ckb_probe(&bench.settings.programs, "rocksdb", target, &options).await?;
    let truth = fixture.go().map_err(system())?;
    let printed = probes.stop().await?;
    let histograms: BTreeMap<String, Histogram> = printed
        .intervals()
        .into_iter()
        .map(|line| (line.row, rows::durations(&line.window.figures)))
        .collect();
    let mut worst = 0.0_f64;
    for (operation, exact) in truth_of(&truth) {
        let histogram = histograms.get(operation).cloned().unwrap_or_default();
        expect(
            histogram.count() == exact.calls,
            format!("{} calls of {operation}", exact.calls),
            || format!("{}; {}", histogram.count(), printed.errors),
        )?;
        for quantile in QUANTILES {
            let estimate = histogram.quantile(quantile).unwrap_or_default() as f64;
            worst = worst.max((estimate / exact.quantile(quantile) as f64 - 1.0).abs() * 100.0);
        }
    }
    Ok(worst)
}

fn truth_of(truth: &Truth) -> impl Iterator<Item = (&'static str, crate::fixture::FunctionTruth)> {
    operations::truth(truth)
        .into_iter()
        .filter(|(_, truth)| truth.calls > 0)
}
