//! Slow calls, more of them than the ring buffer can take: each is delivered, or counted as lost.

use ckb_probe_crds::kinds::rocksdb::{Operation, RocksDbProbe};

use super::prelude::*;
use crate::fixture::{GroundTruth, Truth};

/// How many slow calls there are, and how fast they come.
struct Load {
    what: &'static str,
    plan: &'static str,
    rate: Option<&'static str>,
}

/// About as many as the ring takes between two looks at it, and far more.
const LOADS: [Load; 2] = [
    Load {
        what: "1,000 a second",
        plan: "rocksdb_put_cf 2500 constant:2000",
        rate: Some("1000"),
    },
    Load {
        what: "as fast as they can be made",
        plan: "rocksdb_put_cf 400000 constant:2000",
        rate: None,
    },
];

/// Who reads the ring.
#[derive(Clone, Copy)]
enum Reader {
    Agent,
    CommandLine,
}

/// Between two reports, and until each of them is due.
const REPORT: Duration = Duration::from_secs(1);
const REPORTED: Duration = Duration::from_secs(10);

const ROWS: [Row; 2] = table! {
    "lost" = "lost" in "%";
    "neither delivered nor lost" = "worst astray" in "calls", Exactly(0.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    for load in &LOADS {
        for (who, reader) in [
            ("node-agent", Reader::Agent),
            ("ckb-probe", Reader::CommandLine),
        ] {
            let mut series = Series::default();
            for _ in 0..bench.settings.rounds {
                series.extend("", play(bench, load, reader).await?);
            }
            let overflows = series.of("lost").into_iter().all(|lost| lost > 0.0);
            expect(
                overflows || load.rate.is_some(),
                "a ring that overflows",
                || "it took everything",
            )?;
            let name = format!("slow: {who}, {}: ", load.what);
            bench.tell(&name, &series, &ROWS);
        }
    }
    Ok(())
}

/// Every call of a program that knows how many it makes is slow: each takes 2 us at least, and 1 us is slow.
async fn play(bench: &Bench, load: &Load, reader: Reader) -> Result<Found> {
    let mut options = vec!["--threads", "2"];
    options.extend(load.rate.iter().flat_map(|rate| ["--rate", rate]));
    let mut target = GroundTruth::start("ground-truth", &options, &[load.plan])
        .map_err(Failure::system("ground-truth"))?;
    let (truth, delivered, lost) = match reader {
        Reader::Agent => by_agent(bench, target).await?,
        Reader::CommandLine => by_command_line(bench, &mut target).await?,
    };
    let made: u64 = truth.calls();
    Ok(vec![
        ("lost", 100.0 * lost as f64 / made as f64),
        ("astray", made.abs_diff(delivered + lost) as f64),
    ])
}

async fn by_agent(bench: &Bench, mut target: GroundTruth) -> Result<(Truth, u64, u64)> {
    let container = Container::new(5);
    container.adopt(target.pid() as i32);
    let kind = RocksDbProbe {
        operations: vec![Operation::Put],
        slow_threshold: Duration::from_micros(1).into(),
        ..RocksDbProbe::default()
    };
    let order = agent::order(&container, "ground-truth", no_budget(), kind, REPORT);
    let agent = Agent::watching(&bench.settings, vec![order], REPORTED).await?;
    let truth = target.go().map_err(Failure::system("ground-truth"))?;
    drop(target);
    agent.every(InstanceState::Waiting, REPORTED).await?;
    let instances = agent.instances();
    let probes = || instances.iter().flat_map(|instance| &instance.probes);
    let lost = probes().filter_map(|probe| probe.lost.get("events")).sum();
    // What the kernel saw and what it thought slow, lest a missed call or a wrong duration be taken for a lost event.
    let seen: Vec<_> = probes()
        .flat_map(|probe| &probe.rows)
        .map(|row| (rows::calls(&row.total), rows::slow(&row.total)))
        .collect();
    let made = truth.calls();
    expect(
        seen == [(made, made)],
        format!("{made} calls, all of them slow"),
        || format!("{seen:?}"),
    )?;
    let output = agent.stop().await?;
    Ok((truth, listed(&output), lost))
}

async fn by_command_line(bench: &Bench, target: &mut GroundTruth) -> Result<(Truth, u64, u64)> {
    let process = Process::of(target.pid() as i32)?;
    let kind = ["--operations", "Put", "--events", "--slow-threshold", "1us"];
    let probes = Probes::ckb_probe(&bench.settings.programs, "rocksdb", process, &kind).await?;
    let truth = target.go().map_err(Failure::system("ground-truth"))?;
    let printed = probes.stop().await?;
    Ok((truth, listed(&printed.output), lost(&printed.errors)))
}

/// How many slow calls are listed, a line of JSON each.
pub(super) fn listed(output: &str) -> u64 {
    let lines = output.lines();
    lines
        .filter(|line| line.contains("\"durationNanoseconds\""))
        .count() as u64
}

/// The number in `lost 2 calls, 17 events (…)`; 0 without such a line.
fn lost(errors: &str) -> u64 {
    let words: Vec<&str> = errors.split_whitespace().collect();
    words
        .windows(2)
        .find(|pair| pair[1].trim_end_matches(',') == "events")
        .and_then(|pair| pair[0].parse().ok())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_from_what_the_command_line_says() {
        let why = "(calls are in no figure; events and sizes are of calls that were counted)";
        let said = format!("ckb-probe: lost 2 calls, 17 events, 1 sizes {why}\n");
        assert_eq!(lost(&said), 17);
        assert_eq!(lost(&format!("ckb-probe: lost 17 events {why}\n")), 17);
        assert_eq!(lost(&format!("ckb-probe: lost 2 calls {why}\n")), 0);
        assert_eq!(lost(""), 0);
    }

    #[test]
    fn only_slow_calls_are_taken_for_such() {
        let output = "{\"durationNanoseconds\":1}\nsomething else\n{\"durationNanoseconds\":2}\n";
        assert_eq!(listed(output), 2);
    }
}
