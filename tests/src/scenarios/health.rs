//! What a real RocksDB suffers is in the status within one report interval: writes that it holds back, and a disk that is too small.

use std::io::Write as _;

use super::prelude::*;

/// A database that does what it is told.
const TROUBLED: FixturePod = FixturePod {
    name: "troubled",
    app: "troubled",
    variant: "troubled",
    arguments: &[],
};

/// The whole of its disk.
const DISK: &str = "96Mi";

/// What is written there so that a compaction finds no room: the database has 24 MiB.
const FILLER_BYTES: usize = 56 << 20;

const INTERVAL: &str = "2s";

/// From what happens to the status: a report interval, and what a report takes on its way.
const TOLD: Duration = Duration::from_secs(4);

/// RocksDB tries again every five seconds.
const OVER: Duration = Duration::from_secs(12);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let mut manifest = TROUBLED.manifest(&scene.namespace);
    manifest["spec"]["volumes"] = json!([
        { "name": "out", "emptyDir": { "medium": "Memory", "sizeLimit": DISK } },
    ]);
    scene.cluster.apply(&manifest).await?;
    let fixture = TROUBLED
        .running(scene.cluster, &scene.namespace, TROUBLED.name)
        .await?;
    let process = fixture.process;
    let spec = json!({
        "target": TROUBLED.target(),
        "overhead": { "onBreach": "Report" },
        "reportInterval": INTERVAL,
        "probes": [{ "name": "storage", "rocksdb": {} }],
    });
    scene
        .apply_probe(ckb_probe(&scene.namespace, PROBE, &spec))
        .await?;
    healthy(scene, "True", "Done", ATTACH).await?;

    // Levels so small that writes wait for compactions: of keys and values of 10 kB. Each order is carried out as its time comes.
    tell(
        process,
        "open /out/stalled 262144 4 1 8 1 30000000\nput 2 1500 10000\n",
    )?;
    let told = healthy(scene, "False", "WritesHeldBack", 3 * TOLD).await?;
    scene.seconds(
        "until WritesHeldBack, from the first write on",
        told,
        3 * TOLD,
    );
    let over = healthy(scene, "True", "Done", OVER).await?;
    scene.seconds("until that is over", over, OVER);

    let filler = process.path("/out/filler");
    fs::write(&filler, vec![0; FILLER_BYTES]).map_err(Failure::at(&filler))?;
    let mut orders = "open /out/full 4194304 4 20 36 100000000000 200000000000\n".to_string();
    // As in the tests of the agent: four files of level 0, and no room for the fifth, that they are merged to.
    for _ in 0..4 {
        orders += "put 2 360 10000\nflush 2\n";
    }
    tell(process, &orders)?;
    let told = healthy(scene, "False", "BackgroundErrors", 2 * TOLD).await?;
    scene.seconds(
        "until BackgroundErrors, from the first write on",
        told,
        2 * TOLD,
    );
    fs::remove_file(&filler).map_err(Failure::at(&filler))?;
    let over = healthy(scene, "True", "Done", OVER).await?;
    scene.seconds("until well, once there is room", over, OVER);
    Ok(())
}

/// Gives it orders, a line each.
fn tell(process: Process, orders: &str) -> Result<()> {
    let input = format!("/proc/{}/fd/0", process.pid);
    let pipe = fs::OpenOptions::new().write(true).open(&input);
    pipe.and_then(|mut pipe| pipe.write_all(orders.as_bytes()))
        .map_err(Failure::system(input))
}

/// How long it takes until the condition is so.
async fn healthy(scene: &Scene<'_>, is: &str, why: &str, limit: Duration) -> Result<Duration> {
    let began = Instant::now();
    let what = format!("TargetsHealthy {is}, {why}");
    wait::closely(&what, limit, async || {
        let status = scene.now(PROBE).await?;
        let mut conditions = status.conditions.iter();
        let healthy = conditions.find(|one| one.type_ == condition::TARGETS_HEALTHY);
        expect(
            healthy.is_some_and(|healthy| healthy.status == is && healthy.reason == why),
            &what,
            || format!("{healthy:?}"),
        )
    })
    .await?;
    Ok(began.elapsed())
}
