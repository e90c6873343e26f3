//! What the tests of the engine have in common: every way to attach that this kernel has, and the truth of an operation.

#![allow(dead_code, reason = "each test target needs a part of it")]

use std::{collections::BTreeMap, sync::OnceLock, thread, time::Duration};

use ckb_probe_agent::{
    host::{Session, find_process},
    kernel::{CalibratedTier, Tier, calibrate},
    mechanism::Coverage,
    state::{accumulator::Accumulator, instance::Instance, series::RowState},
};
use ckb_probe_crds::{
    Breach, Overhead,
    kinds::rocksdb::{Operation as Asked, RocksDbProbe},
};
use ckb_probe_tests::{
    fixture::{FunctionTruth, GroundTruth, Truth},
    operations::functions_of,
    rows,
};
use tokio::runtime::{Builder, Runtime};

/// What the documentation promises.
const QUANTILE_ERROR: f64 = 0.032;

/// The ways to attach that this kernel has, each with its calibration, and why it has not the others.
pub fn tiers() -> &'static (Vec<CalibratedTier>, String) {
    static TIERS: OnceLock<(Vec<CalibratedTier>, String)> = OnceLock::new();
    TIERS.get_or_init(|| {
        let (mut works, mut refused) = (Vec::new(), String::new());
        for &tier in Tier::ALL {
            match calibrate(tier) {
                Ok(calibration) => works.push(CalibratedTier {
                    tier,
                    calibration,
                    returns_kill_confined: false,
                }),
                Err(error) => refused += &format!("\n{}: {error}", tier.as_str()),
            }
        }
        (works, refused)
    })
}

/// A session can be asked for the end of its process, by what tokio watches for it: what must be entered around one.
pub fn watching() -> Runtime {
    let mut watching = Builder::new_current_thread();
    watching.enable_io().build().unwrap()
}

/// Runs a test by each tier in turn, and prints a line for each that it passed by. Where `CKB_PROBE_TIERS` lists tiers,
/// separated by commas, those must have been all.
pub fn by_every_tier(test: impl Fn(CalibratedTier)) {
    each_tier(|works| works.iter().for_each(|&means| passes(&test, means)));
}

/// As [`by_every_tier`], by all of them at the same time: of a test that waits. One after the other where tiers are listed, as they
/// are for an emulated machine, which is too slow for that.
pub fn by_every_tier_at_once(test: impl Fn(CalibratedTier) + Sync) {
    if std::env::var_os(EXPECTED_TIERS).is_some() {
        return by_every_tier(test);
    }
    each_tier(|works| {
        thread::scope(|scope| {
            for &means in works {
                let test = &test;
                scope.spawn(move || passes(test, means));
            }
        });
    });
}

/// Lists the tiers that must work, separated by commas.
const EXPECTED_TIERS: &str = "CKB_PROBE_TIERS";

fn each_tier(run: impl FnOnce(&[CalibratedTier])) {
    let (works, refused) = tiers();
    assert!(
        !works.is_empty(),
        "no way to attach works here: run as root, on kernel 5.15 or later{refused}"
    );
    run(works);
    if let Ok(expected) = std::env::var(EXPECTED_TIERS) {
        let works: Vec<_> = works.iter().map(|means| means.tier.as_str()).collect();
        assert_eq!(works.join(","), expected, "these tiers work{refused}");
    }
}

fn passes(test: impl Fn(CalibratedTier), means: CalibratedTier) {
    let watching = watching();
    let _entered = watching.enter();
    test(means);
    println!("passed by {}", means.tier.as_str());
}

/// Every operation by every function, whatever it costs.
pub fn everything() -> RocksDbProbe {
    RocksDbProbe {
        operations: Asked::ALL.to_vec(),
        include_single_stepped: true,
        ..RocksDbProbe::default()
    }
}

/// These by every function, whatever it costs: of a test that looks at no others. Taking a probe off takes the kernel a twentieth of a second
/// by perf events, one after the other for all of the machine.
pub fn these(operations: &[Asked]) -> RocksDbProbe {
    RocksDbProbe {
        operations: operations.to_vec(),
        ..everything()
    }
}

/// Attaches for good: every call is counted, whatever it costs.
pub fn attach(fixture: &GroundTruth, means: CalibratedTier, kind: RocksDbProbe) -> Session {
    attach_to(fixture.pid(), means, kind)
}

/// The same to any process.
pub fn attach_to(pid: u32, means: CalibratedTier, kind: RocksDbProbe) -> Session {
    let overhead = Overhead {
        on_breach: Breach::Report,
        ..Overhead::default()
    };
    attach_within(pid, means, kind, overhead)
}

/// Attaches to a process on these terms.
pub fn attach_within(
    pid: u32,
    means: CalibratedTier,
    kind: RocksDbProbe,
    overhead: Overhead,
) -> Session {
    let process = find_process(Some(pid), "").unwrap();
    let hour = Duration::from_secs(3600);
    Session::attach(Ok(means), process, kind.into(), overhead, hour).unwrap()
}

/// Makes the calls of a phase, or with "" those that are of none, while the session keeps its budget. `each` is called
/// about a hundred times a second meanwhile.
pub fn go(
    fixture: &mut GroundTruth,
    phase: &str,
    session: &mut Session,
    mut each: impl FnMut(&mut Session),
) -> Truth {
    thread::scope(|scope| {
        let calls = scope.spawn(|| fixture.go_phase(phase).unwrap());
        while !calls.is_finished() {
            step(session, Duration::from_millis(10));
            each(session);
        }
        calls.join().unwrap()
    })
}

/// Waits, and does what the session is due to do.
pub fn step(session: &mut Session, longest: Duration) {
    let due = session.next_step();
    let wait = due.map_or(longest, |due| {
        due.saturating_duration_since(std::time::Instant::now())
    });
    thread::sleep(wait.min(longest));
    if wait <= longest && due.is_some() {
        session.step().unwrap();
    }
}

/// The books of an operation.
#[derive(Clone, Copy)]
pub struct Operation<'a> {
    /// The name of the operation.
    pub name: &'a str,
    /// All of its calls.
    pub all: &'a Accumulator,
    /// The same by column family, where that is asked for.
    pub families: &'a BTreeMap<String, Accumulator>,
    /// The part of the last interval in which it was recorded.
    pub share: Option<f64>,
}

/// The books of every operation that is measured.
pub fn operations(session: &Session) -> Vec<Operation<'_>> {
    let [book] = &session.instance().probes[..] else {
        panic!("one probe is asked for");
    };
    let all = book.series.iter().map(|series| {
        let mut rows = series.rows.iter();
        let (Some((name, RowState { all, parts, .. })), None) = (rows.next(), rows.next()) else {
            panic!("a load of a function is one row");
        };
        Operation {
            name,
            all,
            families: parts,
            share: series.share(),
        }
    });
    all.collect()
}

/// Those of one.
pub fn operation<'a>(session: &'a Session, name: &str) -> Operation<'a> {
    let mut all = operations(session).into_iter();
    all.find(|operation| operation.name == name).unwrap()
}

/// What of the question is not answered.
pub fn coverage(session: &Session) -> &Coverage {
    session.instance().probes[0].coverage().unwrap()
}

/// Calls, slow calls and sizes that were lost.
pub fn lost(instance: &Instance) -> [u64; 3] {
    ["calls", "events", "sizes"].map(|what| instance.lost[what])
}

/// The truth of an operation: that of all its functions.
pub fn truth(truth: &Truth, operation: &str) -> FunctionTruth {
    let functions = functions_of(&[operation]).into_iter();
    sum(functions.filter_map(|function| truth.functions.get(function)))
}

/// How many calls a tally has counted.
pub fn count(tally: &Accumulator) -> u64 {
    rows::calls(&tally.total)
}

/// The truth of several functions together.
pub fn sum<'a>(functions: impl Iterator<Item = &'a FunctionTruth>) -> FunctionTruth {
    let mut sum = FunctionTruth::default();
    for function in functions {
        sum.calls += function.calls;
        sum.key_bytes += function.key_bytes;
        sum.value_bytes += function.value_bytes;
        sum.durations_ns.extend(&function.durations_ns);
        sum.outer_durations_ns.extend(&function.outer_durations_ns);
        for (name, family) in &function.column_families {
            let families = sum.column_families.remove(name).into_iter();
            let families: Vec<_> = families.chain([family.clone()]).collect();
            let together = self::sum(families.iter());
            sum.column_families.insert(name.clone(), together);
        }
    }
    sum
}

/// How much longer the probes saw these calls last than the functions did themselves, in nanoseconds and all together: a
/// microsecond or so each, and as long as a thread lost its turn between the two clock readings.
pub fn excess_ns(tally: &Accumulator, truth: &FunctionTruth) -> u64 {
    let truth: u64 = truth.durations_ns.iter().sum();
    rows::nanoseconds(&tally.total).saturating_sub(truth)
}

/// Holds the quantiles and the sum of a tally against the truth: each is to be within the promised share of what the
/// functions themselves and their callers saw, which is nearly the same but where a thread lost its turn in between.
pub fn expect_durations(what: &str, tally: &Accumulator, truth: &FunctionTruth) {
    let near = |figure: &str, estimate: u64, inner: u64, outer: u64| {
        let lowest = inner as f64 * (1.0 - QUANTILE_ERROR);
        let highest = outer as f64 * (1.0 + QUANTILE_ERROR);
        assert!(
            (lowest..=highest).contains(&(estimate as f64)),
            "{what}, {figure}: {estimate} for {inner} to {outer}"
        );
    };
    let durations = rows::durations(&tally.total);
    for quantile in [0.5, 0.9, 0.99] {
        near(
            &quantile.to_string(),
            durations.quantile(quantile).unwrap(),
            truth.quantile(quantile),
            truth.outer_quantile(quantile),
        );
    }
    near(
        "sum",
        rows::nanoseconds(&tally.total),
        truth.durations_ns.iter().sum(),
        truth.outer_durations_ns.iter().sum(),
    );
}

/// What counts as an operation's bytes: those of values read, and of keys and values written. None where the size is not
/// known of every function.
pub fn bytes(operation: &str, truth: &FunctionTruth) -> Option<u64> {
    match operation {
        "Get" | "TxnGet" => Some(truth.value_bytes),
        "TxnPut" | "TxnDelete" | "Put" | "Delete" => Some(truth.key_bytes + truth.value_bytes),
        _ => None,
    }
}
