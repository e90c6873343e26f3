//! Functions and system calls of the target: that what is counted of them reaches the status and the metrics. That it is exact is
//! for tests of the agent, which know how many calls there are.

use ckb_probe_crds::kinds::syscalls::WAITS;

use super::{Stage, TOO_MANY};
use crate::scenarios::prelude::*;

/// Counts the calls of the first of the functions too, in its own words.
pub const STORAGE: &str = "storage";

/// Matches more functions than may.
pub const MANY: &str = "rocksdb_options_*";

/// So many may.
pub const LIMIT: usize = 10;

/// Every call of it is slow, and told with an argument.
pub const SLOW: &str = "commits";

/// System calls, all of them.
pub const CALLS: &str = "calls";

/// Long enough for each of the functions to be called.
const WINDOW: Duration = Duration::from_secs(12);

/// A function that is asked for.
pub struct Function {
    /// By which probe.
    pub probe: &'static str,
    /// By which pattern.
    pub pattern: &'static str,
    /// What its row is called.
    row: &'static str,
}

/// Those that a workload has: of C, of C++ and, where there is any, of Rust.
pub fn functions(workload: Workload) -> Vec<Function> {
    let mut functions = vec![
        Function {
            probe: "library",
            pattern: "rocksdb_get_pinned_cf",
            row: "rocksdb_get_pinned_cf",
        },
        Function {
            probe: SLOW,
            pattern: "rocksdb_transaction_commi?",
            row: "rocksdb_transaction_commit",
        },
        Function {
            probe: "writes",
            pattern: "*DBImpl::WriteImpl",
            row: "rocksdb::DBImpl::WriteImpl",
        },
    ];
    if workload == Workload::Ckb {
        functions.push(Function {
            probe: "blocks",
            pattern: "ckb_chain::verify::*::verify_block",
            row: "ckb_chain::verify::ConsumeUnverifiedBlockProcessor::verify_block",
        });
    }
    functions
}

pub async fn play(stage: Stage<'_>) -> Result<()> {
    let functions = functions(stage.scene.workload);
    let before = stage.still().await?;
    tokio::time::sleep(WINDOW).await;
    let after = stage.still().await?;
    let grown = |probe: &str, metric: &str, labels: &[(&str, &str)]| {
        let [after, before] =
            [&after, &before].map(|metrics| stage.sum(metrics, probe, metric, labels));
        after - before
    };
    let calls = functions.iter().map(|one| {
        let metric = "ckb_probe_function_calls_total";
        grown(one.probe, metric, &[("function", one.row)])
    });
    let calls: Vec<u64> = calls.collect();
    let silent = calls.iter().filter(|calls| **calls == 0).count() as u64;
    let what = format!("functions: of {}, those without a call", functions.len());
    stage.scene.equal(&what, silent, 0);
    let metric = "ckb_probe_operation_calls_total";
    let gets = grown(STORAGE, metric, &[("operation", "Get")]);
    let what =
        "functions: calls of rocksdb_get_pinned_cf; as many as the kind rocksdb counts as Get";
    stage.scene.equal(what, calls[0], gets);
    for (what, metric) in [
        ("calls", "ckb_probe_syscall_duration_seconds_count"),
        ("errors", "ckb_probe_syscall_errors_total"),
    ] {
        let (what, count) = (format!("syscalls: {what}"), grown(CALLS, metric, &[]));
        let bound = Bound::AtLeast(1.0);
        stage.scene.figure(&what, count, "", bound);
    }
    check_slow_calls(stage).await?;
    check_waits(stage).await?;

    let sentence = stage.refusal(TOO_MANY, Reason::TooManyMatches).await?;
    let says = sentence.starts_with(&format!("{MANY} matches "))
        && sentence.contains(&format!(
            " functions, more than the limit of {LIMIT}: for example "
        ));
    expect(says, "how many functions match too much", || {
        sentence.clone()
    })
}

/// The status lists slow calls with their arguments, where every call is slow.
async fn check_slow_calls(stage: Stage<'_>) -> Result<()> {
    let listed = stage
        .scene
        .status("a slow call of a function", ATTACH, |status| {
            let probe = rows::probe_of(status, SLOW)?;
            let is_told = |event: &ckb_probe_crds::EventStatus| {
                event.row == "rocksdb_transaction_commit"
                    && event.details.contains_key("duration")
                    && event.details.contains_key("arguments")
            };
            expect(
                !probe.events.is_empty() && probe.events.iter().all(is_told),
                "commits with duration and arguments",
                || format!("{:?}", probe.events),
            )
        })
        .await?;
    let probe = rows::probe_of(&listed, SLOW)?;
    let row = rows::row_of(probe, "rocksdb_transaction_commit")?;
    stage.scene.equal(
        "functions: calls at a threshold of 1us, less those that are slow",
        rows::number(&row.figures, "count")? - rows::number(&row.figures, "slow")?,
        0,
    );
    Ok(())
}

/// The rate in the headline is that of work alone.
async fn check_waits(stage: Stage<'_>) -> Result<()> {
    let per_second = |status: &CkbProbeStatus| -> Result<(f64, f64, f64)> {
        let probe = rows::probe_of(status, CALLS)?;
        let headline = probe.headline.split_once("/s").map(|(rate, _)| rate);
        let headline = headline.unwrap_or_default().parse();
        let headline = headline.map_err(Failure::format(probe.headline.clone()))?;
        let (mut work, mut waits) = (0.0, 0.0);
        for row in &probe.rows {
            let rate = rows::number(&row.figures, "perSecond")?;
            let is_wait = WAITS.contains(&row.key.as_str());
            *(if is_wait { &mut waits } else { &mut work }) += rate;
        }
        Ok((headline, work, waits))
    };
    let status = stage
        .scene
        .status("rates of system calls", ATTACH, |status| {
            let (_, work, waits) = per_second(status)?;
            expect(work > 0.0 && waits > 0.0, "work and waits", || {
                format!("{work} and {waits} a second")
            })
        })
        .await?;
    let (headline, work, waits) = per_second(&status)?;
    stage.scene.figure(
        "syscalls: rate in the headline, less that of all that does not wait",
        (headline - work) / work * 100.0,
        &format!("% of {work:.1} a second, beside {waits:.1} that wait"),
        Bound::Within(1.0),
    );
    Ok(())
}
