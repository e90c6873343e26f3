//! `captureOnAnomaly`, from a load that is as usual for long enough to be known, by a fault that is planted in it, to the flame graph that
//! shows where the fault is. It takes a quarter of an hour: what is usual is learned for 720 report intervals, of a second at the least.

use ckb_probe_crds::{CaptureState, CaptureStatus, CkbProfile, ProfileMode};
use ckb_probe_profiles::{Profile, pprof::Limits};
use k8s_openapi::api::events::v1::Event;
use tokio::time::sleep;

use super::{plugin::asked, prelude::*};
use crate::fixture::repository;

/// What is planted: RocksDB holds a write back.
const FAULT: &str = "rocksdb::DBImpl::DelayWrite";

/// Until then nothing is wrong: a tenth longer than it takes to learn what is usual, where each interval is reported.
const USUAL: Duration = Duration::from_secs(800);

/// How long it goes wrong: until the windows are taken, and for a while longer.
const WRONG: Duration = Duration::from_secs(60);

/// Writes of 30 µs, enough in each interval for a p99 of it. Of each twenty one is held back for 4 ms, while it goes wrong; then all is well
/// for as long as the rest takes.
const WRITER: FixturePod = FixturePod::ground_truth(
    "writer",
    &[
        "rocksdb_write 1840000 constant:30000 rate:2000",
        "rocksdb_write 6000 constant:30000 rate:100 at:800000000000 calls:rocksdb::DBImpl::DelayWrite,constant:4000000",
    ],
);

const MODES: [ProfileMode; 2] = [ProfileMode::Cpu, ProfileMode::OffCpu];
const WINDOW: Duration = Duration::from_secs(10);

/// Between two looks while all is usual, the last of which is before the fault.
const LOOK: Duration = Duration::from_secs(1);

/// Three intervals of a second, and what a report and a status take on their way.
const TOLD: Duration = Duration::from_secs(8);

/// From the order to the profile: until agents have it and sample, the window, and the way of the stacks.
const PUBLISHED: Duration = Duration::from_secs(45);

/// What the operator says of an Event by which somebody learns of the profile.
const CAPTURED: &str = "Captured";

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let fixture = scene.run(WRITER).await?;
    let spec = json!({
        "target": WRITER.target(),
        "overhead": { "onBreach": "Report" },
        "reportInterval": "1s",
        "probes": [
            { "name": "storage", "rocksdb": { "operations": ["Write"] } },
            { "name": "flames", "profile": {
                "modes": MODES.map(ProfileMode::as_str),
                "window": format!("{}s", WINDOW.as_secs()),
                "captureOnAnomaly": true,
            } },
        ],
    });
    let probe = ckb_probe(&scene.namespace, PROBE, &spec);
    scene.apply_probe(probe).await?;
    scene.attached(fixture.process, &["Write"]).await?;
    fixture.begin()?;
    let began = Instant::now();
    scene.firing().await?;

    usual(scene, began).await?;
    let wrong = began + USUAL;
    sleep(wrong.saturating_duration_since(Instant::now())).await;
    let capture = told(scene, wrong).await?;
    let profiles = published(scene, &capture, wrong).await?;
    for profile in &profiles {
        examined(scene, profile).await?;
    }
    taken(scene, &profiles).await?;
    over(scene, wrong + WRONG, &profiles).await
}

/// While all is usual nothing is captured, and who waits for something else is no less ready.
async fn usual(scene: &Scene<'_>, began: Instant) -> Result<()> {
    let (mut looks, mut captured, mut unready) = (0_u64, 0_u64, 0_u64);
    while began.elapsed() + LOOK * 2 < USUAL {
        let status = scene.now(PROBE).await?;
        let is_ready = all_fire(&status).is_ok();
        let nothing = capture(&status)? == CaptureStatus::default()
            && rows::probe_of(&status, "storage")?.anomalies.is_empty()
            && !ordered(scene).await?;
        if !is_ready || !nothing {
            crate::note!("while all is usual: {:?}", status.probes);
        }
        looks += 1;
        captured += u64::from(!nothing);
        unready += u64::from(!is_ready);
        sleep(LOOK).await;
    }
    let profiles = names(scene).await?;
    let of = format!("of {looks}");
    scene.equal_of(
        "looks at which something was captured, or was to be, while all was usual",
        captured,
        &of,
        0,
    );
    scene.equal_of("looks at which a target was not measured", unready, &of, 0);
    scene.equal("CkbProfiles while all is usual", profiles.len(), 0);
    scene.equal(
        "anomalies in the metrics until then",
        metric(scene).await?,
        0.0,
    );
    Ok(())
}

/// The fault is told, and what waited for it begins.
async fn told(scene: &Scene<'_>, wrong: Instant) -> Result<CaptureStatus> {
    let status = scene
        .status("stacks to be captured", TOLD * 4, |status| {
            let capture = capture(status)?;
            expect(
                capture.state == CaptureState::Capturing,
                "a capture under way",
                || format!("{capture:?}"),
            )
        })
        .await?;
    scene.seconds("until it is, from the fault on", wrong.elapsed(), TOLD);
    let anomalies = &rows::probe_of(&status, "storage")?.anomalies;
    let named = |row: &str, figure: &str| {
        let mut anomalies = anomalies.iter();
        anomalies.any(|one| (one.row.as_str(), one.figure.as_str()) == (row, figure))
    };
    crate::note!("not as usual: {anomalies:?}");
    scene.equal(
        "p99 of Write among what is not as usual",
        named("Write", "p99"),
        1,
    );
    let healthy = status.conditions.iter();
    let healthy = healthy.filter(|one| one.type_ == condition::TARGETS_HEALTHY);
    let unusual = healthy.filter(|one| (&*one.status, &*one.reason) == ("False", "Unusual"));
    scene.equal("TargetsHealthy False, Unusual", unusual.count(), 1);
    scene.events(PROBE, Reason::Unusual).await?;
    let figures = metric(scene).await?;
    scene.figure("anomalies in the metrics", figures, "", Bound::AtLeast(1.0));
    expect(ordered(scene).await?, "an order to capture", || "none")?;
    capture(&status)
}

/// Waits for a profile of each mode that the status names, and for the Event that does.
async fn published(
    scene: &Scene<'_>,
    begun: &CaptureStatus,
    wrong: Instant,
) -> Result<Vec<CkbProfile>> {
    scene.equal(
        "the capture is for the fault",
        begun
            .anomaly
            .starts_with("probe storage: p99 of Write is not as usual since "),
        1,
    );
    let status = scene
        .status("profiles in the status", PUBLISHED * 2, |status| {
            let capture = capture(status)?;
            expect(
                capture.profiles.len() >= MODES.len(),
                "a profile of each mode",
                || format!("{capture:?}"),
            )
        })
        .await?;
    scene.seconds(
        "until the status names the profiles, from the fault on",
        wrong.elapsed(),
        PUBLISHED,
    );
    let capture = capture(&status)?;
    crate::note!("{capture:?}");
    scene.equal(
        "the capture is the one that was begun",
        (&capture.since, &capture.anomaly) == (&begun.since, &begun.anomaly),
        1,
    );
    let api = scene.api::<CkbProfile>();
    let mut profiles = Vec::new();
    for name in &capture.profiles {
        profiles.push(api.get(name).await?);
    }
    let modes: BTreeSet<ProfileMode> = profiles.iter().map(|one| one.spec.mode).collect();
    scene.equal(
        "profiles that the status names",
        profiles.len(),
        MODES.len(),
    );
    scene.equal("one of each mode", modes == BTreeSet::from(MODES), 1);
    wait::until("the Event that names them", ATTACH, async || {
        let events = scene.api::<Event>().list(&ListParams::default()).await?;
        let events = events.items.iter();
        let said = events.filter(|event| event.reason.as_deref() == Some(CAPTURED));
        let said: Vec<&str> = said.filter_map(|event| event.note.as_deref()).collect();
        let named = profiles.iter().all(|profile| {
            let name = profile.name_any();
            said.iter().any(|note| note.contains(&name))
        });
        expect(named, "each profile in an Event", || format!("{said:?}"))
    })
    .await?;
    Ok(profiles)
}

/// A profile is of the time in which it went wrong, and shows where, to whoever asks for it.
async fn examined(scene: &Scene<'_>, profile: &CkbProfile) -> Result<()> {
    let (name, spec) = (profile.name_any(), &profile.spec);
    let mode = spec.mode.as_str();
    crate::note!("{name}: {}", spec.headline);
    let decoded =
        Profile::from_pprof(&spec.pprof.0, &Limits::PART).map_err(Failure::format(name))?;
    let whose = format!("{}/{}/fixture", scene.namespace, WRITER.name);
    let strangers = decoded.stacks.iter().filter(|one| one.target != whose);
    scene.equal(&format!("{mode}: stacks of nobody's"), strangers.count(), 0);
    scene.equal(
        &format!("{mode}: window in milliseconds"),
        spec.window.milliseconds.abs_diff(WINDOW.as_millis() as u64) < 1000,
        1,
    );
    // Who is held back waits, and is seen to; what it does between two naps is too little to be met for certain.
    let function = match spec.mode {
        ProfileMode::OffCpu => FAULT,
        _ => "rocksdb_write",
    };
    let stacks = decoded.stacks.iter();
    let seen = stacks.filter(|stack| stack.frames.iter().any(|frame| frame.name == function));
    let seen: u64 = seen.map(|stack| stack.weights[0]).sum();
    scene.figure(
        &format!("{mode}: weight of stacks with {function}"),
        seen,
        &format!("of {}", decoded.stacks.total(0)),
        Bound::AtLeast(1.0),
    );
    let which = format!("{}/{mode}", WRITER.name);
    // What kubectl ckbprobe draws of it, which a person may look at afterwards.
    let file = repository().join(format!("target/e2e/capture.{}.svg", mode.to_lowercase()));
    let output = file.display().to_string();
    fs::create_dir_all(repository().join("target/e2e")).map_err(Failure::at(&file))?;
    let ended = asked(
        scene,
        "flamegraph",
        &[PROBE, &which],
        &["--latest", "-o", &output],
    )
    .await?;
    expect(ended.code == 0, "a flame graph", || ended.said)?;
    let drawn = fs::read_to_string(&file).map_err(Failure::at(&file))?;
    let shown = drawn.contains(function);
    scene.equal(&format!("{mode}: {function} in the flame graph"), shown, 1);
    Ok(())
}

/// It goes wrong still, and has its windows.
async fn taken(scene: &Scene<'_>, profiles: &[CkbProfile]) -> Result<()> {
    let status = scene
        .status("the windows to be taken", PUBLISHED, |status| {
            let capture = capture(status)?;
            expect(
                capture.state == CaptureState::Captured,
                "a capture that is done",
                || format!("{capture:?}"),
            )
        })
        .await?;
    let ready = all_fire(&status).is_ok();
    scene.equal("targets are measured as before", ready, 1);
    named(scene, &status, profiles)?;
    wait::until("the order to go", ATTACH, async || {
        expect(!ordered(scene).await?, "none", || "an order to capture")
    })
    .await
}

/// All is as usual again: it waits for the next one, and names the last.
async fn over(scene: &Scene<'_>, right: Instant, profiles: &[CkbProfile]) -> Result<()> {
    let left = right.saturating_duration_since(Instant::now());
    let status = scene
        .status(
            "what is not as usual to be over",
            left + TOLD * 4,
            |status| {
                let capture = capture(status)?;
                expect(
                    capture.state == CaptureState::Waiting,
                    "a capture that waits",
                    || format!("{capture:?}"),
                )
            },
        )
        .await?;
    scene.seconds(
        "until it waits again, from the end of the fault on",
        right.elapsed(),
        TOLD,
    );
    named(scene, &status, profiles)?;
    scene.equal(
        "CkbProfiles in the end",
        names(scene).await?.len(),
        MODES.len(),
    );
    scene.equal(
        "anomalies in the metrics in the end",
        metric(scene).await?,
        0.0,
    );
    Ok(())
}

/// The status still has these profiles, and no others.
fn named(scene: &Scene<'_>, status: &CkbProbeStatus, profiles: &[CkbProfile]) -> Result<()> {
    let capture = capture(status)?;
    let names: Vec<String> = profiles.iter().map(|one| one.name_any()).collect();
    let what = format!("profiles that the status names, {:?}", capture.state);
    scene.equal(&what, capture.profiles == names, 1);
    Ok(())
}

/// How far the capture has got.
fn capture(status: &CkbProbeStatus) -> Result<CaptureStatus> {
    let capture = rows::probe_of(status, "flames")?.capture.clone();
    capture.ok_or_else(|| Failure::missing("a capture in the status"))
}

/// Whether an agent is told to sample.
async fn ordered(scene: &Scene<'_>) -> Result<bool> {
    let nodes = scene.node_probes().await?;
    let orders = nodes.iter().flat_map(|node| &node.spec.assignments);
    let mut own = orders.filter(|order| order.probe.namespace == scene.namespace);
    Ok(own.any(|order| order.probes.iter().any(|probe| probe.name == "flames")))
}

/// The names of the profiles that there are.
async fn names(scene: &Scene<'_>) -> Result<Vec<String>> {
    let profiles = scene.api::<CkbProfile>();
    let profiles = profiles.list_metadata(&ListParams::default()).await?;
    Ok(profiles.items.iter().map(|one| one.name_any()).collect())
}

/// How many figures the operator says are not as usual.
async fn metric(scene: &Scene<'_>) -> Result<f64> {
    let metrics = scene.cluster.operator().await?.scrape().await?;
    let labels = [("namespace", &*scene.namespace), ("ckbprobe", PROBE)];
    Ok(metrics.total("ckb_probe_anomalies", &labels))
}
