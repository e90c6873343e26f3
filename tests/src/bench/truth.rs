//! How true a count is that is sampled within a budget, of loads that differ, against a program that counts its calls itself.

use super::prelude::*;
use crate::fixture::GroundTruth;

/// How far off a count may be, in standard errors that it was told with: two of three rounds and more are within one.
const OFF: Bound = Bound::AtMost(2.0);

/// Calls that come in a certain rhythm.
struct Load {
    what: &'static str,
    /// In each burst.
    calls: &'static str,
    /// How often they come, and how long it is quiet after each time.
    bursts: u64,
    pause: Duration,
}

/// A minute of each, in which calls take from a fifth of a second to all of the time.
const LOADS: [Load; 4] = [
    Load {
        what: "steady",
        calls: "rocksdb_get_pinned_cf 1200000 constant:10000 rate:20000",
        bursts: 1,
        pause: Duration::ZERO,
    },
    Load {
        what: "3 of 10 s",
        calls: "rocksdb_get_pinned_cf 60000 constant:10000 rate:20000",
        bursts: 6,
        pause: Duration::from_secs(7),
    },
    Load {
        what: "0.2 of 2 s",
        calls: "rocksdb_get_pinned_cf 8000 constant:10000 rate:40000",
        bursts: 30,
        pause: Duration::from_millis(1800),
    },
    Load {
        what: "20 ms of 1 s",
        calls: "rocksdb_get_pinned_cf 1000 constant:10000 rate:50000",
        bursts: 60,
        pause: Duration::from_millis(980),
    },
];

pub async fn run(bench: &mut Bench) -> Result<()> {
    for load in LOADS {
        let mut series = Series::default();
        for _ in 0..bench.settings.rounds {
            for (name, value) in round(bench, &load).await? {
                series.push(name, value);
            }
        }
        let rows = table! {
            "told more than there were" = "more" in "%";
            "standard error that was told" = "error" in "%";
            "off, in standard errors" = "off" in "", OFF;
            "rounds in which the count was said to be the least that there was" = "least" in "";
            "of the calls seen" = "seen" in "%";
        };
        bench.tell(&format!("truth: {}: ", load.what), &series, &rows);
    }
    Ok(())
}

/// A minute of a load.
async fn round(bench: &Bench, load: &Load) -> Result<Found> {
    let system = || Failure::system("ground-truth");
    let mut fixture = GroundTruth::start("ground-truth", &[], &[load.calls]).map_err(system())?;
    let target = Process::of(fixture.pid() as i32)?;
    let options = ["--operations", "Get", "--interval", "1h", "--json"];
    let programs = &bench.settings.programs;
    let probes = Probes::within_budget(programs, "rocksdb", target, &options).await?;
    let mut calls = 0;
    for _ in 0..load.bursts {
        calls += fixture.go().map_err(system())?.calls();
        sleep(load.pause).await;
    }
    let printed = probes.stop().await?;
    let line = printed
        .intervals()
        .into_iter()
        .next_back()
        .ok_or_else(|| Failure::missing("a line of ckb-probe"))?;
    let told = rows::calls(&line.total);
    let error = line.total.relative_error("duration").unwrap_or_default();
    let more = told as f64 / calls as f64 - 1.0;
    let known = error.is_finite();
    let mut found: Found = vec![
        ("more", more * 100.0),
        ("least", f64::from(u8::from(!known))),
        ("seen", line.window.samples as f64 * 100.0 / calls as f64),
    ];
    if known {
        let off = if more == 0.0 { 0.0 } else { more.abs() / error };
        found.extend([("error", error * 100.0), ("off", off)]);
    }
    Ok(found)
}
