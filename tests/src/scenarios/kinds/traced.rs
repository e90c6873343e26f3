//! Functions and system calls of the target: what bpftrace counts of them between the same two moments, in both of which
//! the target stands still.

use std::{collections::BTreeMap, fs, time::Duration};

use ckb_probe_crds::{CkbProbeStatus, Reason, kinds::syscalls::WAITS};

use super::{Stage, TOO_MANY};
use crate::{
    bpftrace::{Bpftrace, Counted, Number},
    failure::{Failure, Result, expect},
    metrics::Metrics,
    operations::is_symbol_of,
    report::Bound,
    rows,
    scene::ATTACH,
    workload::Workload,
};

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

/// How long both count.
const WINDOW: Duration = Duration::from_secs(12);

/// Where the numbers of system calls have names.
const NUMBERS: &str = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h";

/// `uretprobe` and `uprobe`: how the kernel serves probes, those of bpftrace too, and nothing that a process asks of it.
const OF_PROBES: [Number; 2] = [335, 336];

/// Those of errors that may be expected. What else there is counts in the sums.
const ERRORS: [(u64, &str); 8] = [
    (2, "ENOENT"),
    (4, "EINTR"),
    (11, "EAGAIN"),
    (22, "EINVAL"),
    (104, "ECONNRESET"),
    (107, "ENOTCONN"),
    (110, "ETIMEDOUT"),
    (115, "EINPROGRESS"),
];

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

/// What both had counted at one moment.
struct Both {
    ours: Metrics,
    theirs: Counted,
}

pub async fn play(stage: Stage<'_>) -> Result<()> {
    let functions = functions(stage.scene.workload);
    let all = stage.code.functions()?;
    let mut symbols = Vec::new();
    for function in &functions {
        let is_it = |symbol: &&String| {
            is_symbol_of(function.row, symbol) || is_rust_symbol_of(function.row, symbol)
        };
        let found: Vec<_> = all.keys().filter(is_it).collect();
        expect(
            found.len() == 1,
            format!("one symbol of {}", function.row),
            || format!("{found:?}"),
        )?;
        symbols.extend(
            found
                .into_iter()
                .map(|symbol| (function.probe, symbol.clone())),
        );
    }
    let process = stage.target.process;
    let mut bpftrace = Bpftrace::count_with_system_calls(process, stage.code, &symbols).await?;
    let before = Both::now(stage, &mut bpftrace).await?;
    tokio::time::sleep(WINDOW).await;
    let after = Both::now(stage, &mut bpftrace).await?;
    bpftrace.stop().await?;

    check_functions(stage, &functions, &before, &after);
    check_system_calls(stage, &before, &after)?;
    check_slow_calls(stage).await?;
    check_waits(stage).await?;

    let sentence = stage.refusal(TOO_MANY, Reason::TooManyMatches).await?;
    // With a dot: the parts of functions that are seldom run.
    let matching = all
        .iter()
        .filter(|(symbol, _)| symbol.starts_with("rocksdb_options_") && !symbol.contains('.'));
    let mut matching: Vec<u64> = matching.map(|(_, address)| *address).collect();
    matching.sort_unstable();
    matching.dedup();
    let count = matching.len();
    let begin =
        format!("{MANY} matches {count} functions, more than the limit of {LIMIT}: for example ");
    let examples = sentence.strip_prefix(&begin).and_then(|rest| {
        let (examples, advice) = rest.split_once("; ")?;
        (advice == "name fewer, or raise limit").then_some(examples)
    });
    let examples = examples.ok_or_else(|| Failure::Unexpected {
        expected: format!("{begin}…; name fewer, or raise limit"),
        got: sentence.clone(),
    })?;
    let there = examples.split(", ").filter(|name| all.contains_key(*name));
    stage.scene.equal(
        &format!("functions: of {count} that match too much, examples that there are"),
        there.count() as u64,
        "",
        10,
    );
    Ok(())
}

/// Each function, and what two kinds say of one.
fn check_functions(stage: Stage<'_>, functions: &[Function], before: &Both, after: &Both) {
    const CALLS: &str = "ckb_probe_function_calls_total";
    let (mut all, mut apart) = (0, 0);
    for Function { probe, row, .. } in functions {
        let ours = stage.sum(&after.ours, probe, CALLS, &[("function", row)])
            - stage.sum(&before.ours, probe, CALLS, &[("function", row)]);
        let of = |counted: &Counted| counted.calls.get(*probe).copied().unwrap_or_default();
        let theirs = of(&after.theirs) - of(&before.theirs);
        if ours != theirs {
            crate::note!("{row}: {ours} counted, {theirs} by bpftrace");
        }
        // One that is not called proves nothing.
        apart += ours.abs_diff(theirs) + u64::from(theirs == 0);
        all += theirs;
    }
    stage.scene.equal(
        "functions: calls more or fewer than bpftrace counts",
        apart,
        &format!("of {all} of {} functions", functions.len()),
        0,
    );

    const OPERATIONS: &str = "ckb_probe_operation_calls_total";
    let [Function { probe, row, .. }, ..] = functions else {
        return;
    };
    let [gets, calls] = [
        (STORAGE, OPERATIONS, ("operation", "Get")),
        (probe, CALLS, ("function", row)),
    ]
    .map(|(probe, metric, label)| {
        stage.sum(&after.ours, probe, metric, &[label])
            - stage.sum(&before.ours, probe, metric, &[label])
    });
    stage.scene.figure(
        "functions: calls of rocksdb_get_pinned_cf, less those that the kind rocksdb counts as Get",
        calls as f64 - gets as f64,
        &format!("of {gets}"),
        Bound::Exactly(0.0),
    );
}

/// Every call of the target, by name, and every error.
fn check_system_calls(stage: Stage<'_>, before: &Both, after: &Both) -> Result<()> {
    const COUNT: &str = "ckb_probe_syscall_duration_seconds_count";
    const FAILED: &str = "ckb_probe_syscall_errors_total";
    let names = names()?;
    let grown = |metric: &str, labels: &[(&str, &str)]| {
        stage.sum(&after.ours, CALLS, metric, labels)
            - stage.sum(&before.ours, CALLS, metric, labels)
    };
    let (mut all, mut apart) = (0, 0);
    let mut tell = |what: &str, ours: u64, theirs: u64| {
        if ours != theirs {
            crate::note!("{what}: {ours} counted, {theirs} by bpftrace");
        }
        all += theirs;
        apart += ours.abs_diff(theirs);
    };
    let mut known = 0;
    let asked = |number: &Number| !OF_PROBES.contains(number);
    let counts = after.theirs.system_calls.iter();
    for (number, count) in counts.filter(|(number, _)| asked(number)) {
        let name = names.get(number).map_or("other", String::as_str);
        let earlier = before.theirs.system_calls.get(number);
        let theirs = count - earlier.copied().unwrap_or_default();
        let ours = grown(COUNT, &[("syscall", name)]);
        tell(name, ours, theirs);
        known += ours;
    }
    tell("all of them", grown(COUNT, &[]), known);
    stage.scene.equal(
        "syscalls: calls more or fewer than bpftrace counts, by name and in all",
        apart,
        &format!("of {known}, by {} names", after.theirs.system_calls.len()),
        0,
    );
    expect(known > 0, "system calls", || "none".to_string())?;

    let (mut all, mut apart) = (0, 0);
    let mut by_name: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for ((number, error), count) in &after.theirs.errors {
        let name = names.get(number).map_or("other", String::as_str);
        let earlier = before.theirs.errors.get(&(*number, *error));
        let theirs = count - earlier.copied().unwrap_or_default();
        let error = ERRORS.iter().find(|(number, _)| number == error);
        let error = error.map_or("another", |(_, error)| error);
        *by_name.entry((name, error)).or_default() += theirs;
        all += theirs;
    }
    for ((name, error), theirs) in by_name {
        let ours = if error == "another" {
            let told =
                ERRORS.map(|(_, error)| grown(FAILED, &[("syscall", name), ("errno", error)]));
            grown(FAILED, &[("syscall", name)]) - told.iter().sum::<u64>()
        } else {
            grown(FAILED, &[("syscall", name), ("errno", error)])
        };
        if ours != theirs {
            crate::note!("{name} {error}: {ours} counted, {theirs} by bpftrace");
        }
        apart += ours.abs_diff(theirs);
    }
    apart += grown(FAILED, &[]).abs_diff(all);
    stage.scene.equal(
        "syscalls: errors more or fewer than bpftrace counts, by name and in all",
        apart,
        &format!("of {all}"),
        0,
    );
    stage
        .scene
        .figure("syscalls: errors", all as f64, "", Bound::AtLeast(1.0));
    Ok(())
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
    stage.scene.figure(
        "functions: calls at a threshold of 1us, less those that are slow",
        rows::number(&row.figures, "count")? - rows::number(&row.figures, "slow")?,
        "",
        Bound::Exactly(0.0),
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

/// Whether a symbol is that of a Rust function: its path, and a hash.
fn is_rust_symbol_of(function: &str, symbol: &str) -> bool {
    let parts = function
        .split("::")
        .map(|part| format!("{}{part}", part.len()));
    let path: String = parts.collect();
    let rest = symbol
        .strip_prefix("_ZN")
        .and_then(|rest| rest.strip_prefix(&path));
    rest.is_some_and(|rest| rest.starts_with("17h") && rest.ends_with('E'))
}

/// The names of system calls.
fn names() -> Result<BTreeMap<Number, String>> {
    let text = fs::read_to_string(NUMBERS).map_err(Failure::system(NUMBERS))?;
    let lines = text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((number.trim().parse().ok()?, name.to_string()))
    });
    Ok(lines.collect())
}

impl Both {
    /// Takes both counts while the target stands still.
    async fn now(stage: Stage<'_>, bpftrace: &mut Bpftrace) -> Result<Self> {
        let _stopped = stage.target.process.stop().await?;
        let theirs = bpftrace.counted().await?;
        Ok(Self {
            ours: stage.agent.scrape().await?,
            theirs,
        })
    }
}
