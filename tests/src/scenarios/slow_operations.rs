//! Slow calls: the slowest in the status, all of them in the agent's log, what could not be listed is counted, and where their
//! time went is published.

mod flames;

use ckb_probe_crds::EventStatus;

use super::prelude::*;
use crate::slow_lines::{self, SlowLine};

/// A read that misses RocksDB's caches takes longer, and so does every commit.
const THRESHOLD: Duration = Duration::from_micros(20);

/// Whatever takes longer than a probe itself: more calls than the ring buffer takes between two looks at it.
const FLOOD: &str = "1us";

/// The CkbProbe with that threshold.
const FLOODED: &str = "flood";

/// How many slow calls must be listed before they are compared.
const ENOUGH: f64 = 200.0;

/// The agent empties the ring four times a second. When the log has not grown for this long, it is complete.
const QUIET: Duration = Duration::from_secs(3);

/// How many the status lists at most.
const SLOWEST: usize = 10;

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    of_the_workload(scene).await?;
    if scene.workload == Workload::Rocksdb {
        of_a_known_program(scene).await?;
    }
    Ok(())
}

/// Lines, losses and counters of a workload agree, and so does the status.
async fn of_the_workload(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.deploy(Load::Busy).await?;
    let threshold = format!("{}us", THRESHOLD.as_micros());
    scene
        .apply_probe(slow_probe(scene, PROBE, workload_target(), &threshold))
        .await?;
    let status = scene
        .status("slow operations in the status", ATTACH, |status| {
            all_fire(status)?;
            expect(
                listed(status).next().is_some(),
                "slow operations",
                || "none",
            )
        })
        .await?;
    let (_, agent) = scene.workload_attached(target.process).await?;
    // A node that mines makes some hundred calls between two looks at the ring, which takes a thousand.
    let floods = scene.workload == Workload::Rocksdb;
    scene
        .apply_probe(slow_probe(scene, FLOODED, workload_target(), FLOOD))
        .await?;
    wait::until("enough slow calls", ATTACH, async || {
        let slow = total(scene, &agent, PROBE, "ckb_probe_slow_operations_total").await?;
        let lost = lost(scene, &agent, FLOODED, "events").await?;
        expect(
            slow >= ENOUGH && (lost > 0.0 || !floods),
            "enough of them, and more than the ring takes where there are so many",
            || format!("{slow} slow, {lost} lost"),
        )
    })
    .await?;

    // No call is made any more, so the counters stand still and the log catches up with them.
    let stopped = target.process.stop().await?;
    let lines = complete(scene, &agent, &[PROBE, FLOODED]).await?;
    for name in [PROBE, FLOODED] {
        let listed = lines.iter().filter(|line| line.ckbprobe == name).count() as f64;
        let slow = total(scene, &agent, name, "ckb_probe_slow_operations_total").await?;
        // More than a hundred a second are not written.
        let lost =
            lost(scene, &agent, name, "events").await? + lost(scene, &agent, name, "lines").await?;
        let name = if name == PROBE { &threshold } else { FLOOD };
        crate::note!("{name}: {listed} listed, {lost} lost");
        scene.equal_of(
            &format!("lines and losses, less slow calls, at a threshold of {name}"),
            listed + lost - slow,
            &format!("of {slow}"),
            0,
        );
    }
    if floods {
        // Else nothing is proved of how losses are counted.
        scene.figure(
            &format!("slow calls that could not be listed, at a threshold of {FLOOD}"),
            lost(scene, &agent, FLOODED, "events").await?,
            "",
            Bound::AtLeast(1.0),
        );
    }
    drop(stopped);
    nothing_is_wrong_with(scene, &lines, &target.pod);
    are_the_slowest(scene, &status, &lines)
}

/// Lines of slow calls have all that is to be told of a call.
fn nothing_is_wrong_with(scene: &mut Scene<'_>, lines: &[SlowLine], pod: &str) {
    let wrong = lines.iter().filter(|line| !is_told_well(scene, pod, line));
    let wrong: Vec<_> = wrong.collect();
    if let Some(first) = wrong.first() {
        crate::note!("{first:?}");
    }
    scene.equal_of(
        "lines that lack something, or have something wrong",
        wrong.len(),
        &format!("of {}", lines.len()),
        0,
    );
    let threads: BTreeSet<_> = lines.iter().map(|line| line.thread_name.as_str()).collect();
    crate::note!("threads: {threads:?}");
}

/// A status lists slow calls, the slowest first, each as its line does.
fn are_the_slowest(
    scene: &mut Scene<'_>,
    status: &CkbProbeStatus,
    lines: &[SlowLine],
) -> Result<()> {
    let listed: Vec<_> = listed(status).collect();
    scene.figure(
        "slow operations in the status",
        listed.len(),
        "",
        Bound::AtMost(SLOWEST as f64),
    );
    let durations = durations(status)?;
    let sorted = durations.is_sorted_by(|a, b| a >= b);
    scene.equal("of them in order, the slowest first", sorted, 1);
    let own: Vec<_> = lines.iter().filter(|line| line.ckbprobe == PROBE).collect();
    let in_log = listed
        .iter()
        .zip(&durations)
        .filter(|((probe, slow), duration)| {
            let mut own = own.iter();
            own.any(|line| line.probe == *probe && is_same(slow, **duration, line))
        });
    scene.equal(
        "of them in the log, in the same words",
        in_log.count(),
        listed.len(),
    );
    Ok(())
}

/// What is written of every slow call of a workload.
fn is_told_well(scene: &Scene<'_>, pod: &str, line: &SlowLine) -> bool {
    let family = line.column_family.as_deref();
    let family_is_right = match family {
        Some(name) => operations::is_column_family(name),
        None => !operations::ON_A_FAMILY.contains(&line.operation.as_str()),
    };
    let causes = line.during.iter();
    let mut strange = causes.filter(|cause| !operations::BACKGROUND.contains(&cause.as_str()));
    let threshold = match line.ckbprobe.as_str() {
        PROBE => THRESHOLD,
        _ => Duration::from_micros(1),
    };
    line.pod == pod
        && line.container == "ckb"
        && line.probe == "storage"
        && scene
            .workload
            .operations()
            .contains(&line.operation.as_str())
        && !operations::BACKGROUND.contains(&line.operation.as_str())
        && family_is_right
        && strange.next().is_none()
        && !line.thread_name.is_empty()
        && line.thread > 0
        && Duration::from_nanos(line.duration_nanoseconds) >= threshold
}

/// Whether a line is of the call that the status tells of; a duration there has three figures.
fn is_same(slow: &EventStatus, duration: f64, line: &SlowLine) -> bool {
    let detail = |name: &str| slow.details.get(name).cloned();
    let time = slow.time.as_ref().map(|time| format!("{:.6}", time.0));
    let exact = line.duration_nanoseconds as f64;
    time.as_deref() == Some(line.time.as_str())
        && slow.pod == line.pod
        && slow.container == line.container
        && slow.row == line.operation
        && slow.part == line.column_family
        && slow.thread == line.thread_name
        && detail("bytes") == line.bytes.map(|bytes| bytes.to_string())
        && detail("during").unwrap_or_default() == line.during.join(", ")
        && (duration - exact).abs() <= exact * 0.005
}

/// The slow calls that a status lists, each with the probe that it is of.
fn listed(status: &CkbProbeStatus) -> impl Iterator<Item = (&str, &EventStatus)> {
    let probes = status.probes.iter();
    probes.flat_map(|probe| {
        probe
            .events
            .iter()
            .map(|event| (probe.name.as_str(), event))
    })
}

/// In nanoseconds.
fn durations(status: &CkbProbeStatus) -> Result<Vec<f64>> {
    listed(status)
        .map(|(_, slow)| Ok(rows::duration(&slow.details, "duration")?.as_nanos() as f64))
        .collect()
}

const PROGRAM: &str = "truth";

/// All are slow, by so much that both agree on it. Ten of each are made beside a compaction, some of these also beside
/// a flush. None begins or ends when a cause does.
const KNOWN: FixturePod = FixturePod::ground_truth(
    PROGRAM,
    &[
        "--slow",
        "1000000",
        "rocksdb_transaction_put_cf 30 constant:2000000 rate:10 in:writer",
        "rocksdb_transaction_commit 30 constant:3000000 rate:10 at:20000000 in:ChainService",
        "rocksdb::CompactionJob::Run 1 constant:1000000000 at:1050000000 in:rocksdb:low0",
        "rocksdb::FlushJob::Run 1 constant:500000000 at:1250000000 in:rocksdb:high0",
    ],
);

/// Functions of the program that every one of its calls comes from.
const CALLERS: [&str; 2] = ["make_call", "run_worker"];

/// Of a program that knows its slow calls: as many, each from the same functions.
async fn of_a_known_program(scene: &mut Scene<'_>) -> Result<()> {
    let fixture = scene.run(KNOWN).await?;
    let target = KNOWN.target();
    let mut probe = slow_probe(scene, PROGRAM, target, "1ms");
    probe["spec"]["probes"][0]["rocksdb"]["stacks"] = json!(true);
    scene.apply_probe(probe).await?;
    let (_, agent) = scene
        .attached(fixture.process, &operations::names())
        .await?;
    // A log of thousands of lines would be turned over before it is read.
    let api = scene.api::<CkbProbe>();
    for name in [PROBE, FLOODED] {
        api.delete(name, &DeleteParams::default()).await?;
    }
    fixture.begin()?;
    wait::until(
        "callers of slow operations in the status",
        ATTACH,
        async || {
            let status = api.get(PROGRAM).await?.status.unwrap_or_default();
            let told = |event: &EventStatus| {
                let callers = event.details.get("stack")?;
                Some(CALLERS.iter().all(|name| callers.contains(name)))
            };
            let told: Vec<_> = listed(&status).map(|(_, event)| told(event)).collect();
            expect(
                !told.is_empty() && told.iter().all(|told| *told == Some(true)),
                "each with those it comes from",
                || format!("{told:?}"),
            )
        },
    )
    .await?;
    let truth = fixture.finish(ATTACH).await?;
    let lines = complete(scene, &agent, &[PROGRAM]).await?;
    let astray = lines.iter().filter(|line| {
        let mut callers = CALLERS.iter();
        !callers.all(|name| line.stack.iter().any(|told| told == name))
    });
    scene.equal_of(
        "of these, told to come from elsewhere",
        astray.count(),
        &format!("of {}", lines.len()),
        0,
    );
    // Background work takes long, and is not slow. What is told of each is for tests of the agent.
    let slow = truth.slow_calls.iter();
    let slow = slow.filter_map(|call| operations::served_by(&call.call.function));
    let slow = slow.filter(|name| !operations::BACKGROUND.contains(name));
    scene.equal(
        "slow calls of a program that knows them, in the log",
        lines.len(),
        slow.count(),
    );
    flames::published(scene, &fixture.pod, &lines).await
}

/// A CkbProbe of all operations with a threshold of its own.
fn slow_probe(scene: &Scene<'_>, name: &str, target: Value, threshold: &str) -> Value {
    let operations = scene.workload.operations();
    let mut probe = probe(&scene.namespace, name, target, &operations, "2s");
    let rocksdb = &mut probe["spec"]["probes"][0]["rocksdb"];
    rocksdb["slowThreshold"] = json!(threshold);
    rocksdb["byColumnFamily"] = json!(true);
    probe
}

/// The sum of a metric over what is measured on behalf of a CkbProbe.
async fn total(scene: &Scene<'_>, agent: &Component, ckbprobe: &str, metric: &str) -> Result<f64> {
    let metrics = agent.scrape().await?;
    let labels = [("namespace", &scene.namespace[..]), ("ckbprobe", ckbprobe)];
    Ok(metrics.total(metric, &labels))
}

/// What could not be listed or written.
async fn lost(scene: &Scene<'_>, agent: &Component, ckbprobe: &str, what: &str) -> Result<f64> {
    let metrics = agent.scrape().await?;
    let namespace = scene.namespace.as_str();
    let labels = [
        ("namespace", namespace),
        ("ckbprobe", ckbprobe),
        ("what", what),
    ];
    Ok(metrics.total("ckb_probe_lost_total", &labels))
}

/// The slow calls in the agent's log that are listed on behalf of these, once it has stopped growing.
async fn complete(
    scene: &Scene<'_>,
    agent: &Component,
    ckbprobes: &[&str],
) -> Result<Vec<SlowLine>> {
    let (mut before, mut since) = (0, Instant::now());
    wait::until("the log to be complete", ATTACH, async || {
        let log = scene.cluster.log(agent).await?;
        let mut lines = slow_lines::parse(&log, &scene.namespace)
            .map_err(Failure::format("a slow call in the log"))?;
        lines.retain(|line| ckbprobes.contains(&line.ckbprobe.as_str()));
        let listed = lines.len();
        if listed != before {
            (before, since) = (listed, Instant::now());
        }
        expect(since.elapsed() >= QUIET, "a log that does not grow", || {
            format!("{listed} lines by now")
        })?;
        Ok(lines)
    })
    .await
}
