//! What a real RocksDB suffers is in the status within one report interval: writes that it holds back, reads that ask too many files, and a
//! disk that is too small.

use std::io::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

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

/// So many files that are not merged have all keys between them: a read without a cache asks each.
const FILES: usize = 40;

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
        "probes": [{ "name": "storage", "rocksdb": { "fileIo": true } }],
    });
    scene
        .apply_probe(ckb_probe(&scene.namespace, PROBE, &spec))
        .await?;
    wait::until("the target to be attached", ATTACH, async || {
        let attached = scene.now(PROBE).await?.targets.attached;
        expect(attached == 1, "an attached target", || attached)
    })
    .await?;

    // Levels so small that writes wait for compactions: of keys and values of 10 kB. Each order is carried out as its time comes.
    tell(
        process,
        "open /out/stalled 262144 4 1 8 1 30000000\nput 2 1500 10000\n",
    )?;
    let (told, says) = healthy(scene, "False", "WritesHeldBack", 3 * TOLD).await?;
    scene.seconds(
        "until WritesHeldBack, from the first write on",
        told,
        3 * TOLD,
    );
    // Which limit is met first is RocksDB's to say.
    scene.equal(
        "the column family is named",
        says.ends_with(": CELL)"),
        true,
    );
    let (over, _) = healthy(scene, "True", "Done", OVER).await?;
    scene.seconds("until that is over", over, OVER);

    let mut orders = format!(
        "cache 0\nlevel0 {}\nopen /out/spread 4194304 4 1000 2000 100000000000 200000000000\n",
        2 * FILES
    );
    for _ in 0..FILES {
        orders += "put 2 20 1000\nflush 2\n";
    }
    // The keys of the database before, which are in none of them.
    orders += "get 2 400\n";
    tell(process, &orders)?;
    let (told, says) = healthy(scene, "False", "ReadAmplification", 2 * TOLD).await?;
    scene.seconds(
        "until ReadAmplification, from the first write on",
        told,
        2 * TOLD,
    );
    scene.equal("the operation is named", says.contains("Get"), true);
    let (over, _) = healthy(scene, "True", "Done", OVER).await?;
    scene.seconds("until that is over", over, OVER);

    let filler = process.path("/out/filler");
    fs::write(&filler, vec![0; FILLER_BYTES]).map_err(Failure::at(&filler))?;
    let mut orders = "open /out/full 4194304 4 20 36 100000000000 200000000000\n".to_string();
    // As in the tests of the agent: four files of level 0, and no room for the fifth, that they are merged to.
    for _ in 0..4 {
        orders += "put 2 360 10000\nflush 2\n";
    }
    tell(process, &orders)?;
    let (told, says) = healthy(scene, "False", "BackgroundErrors", 2 * TOLD).await?;
    scene.seconds(
        "until BackgroundErrors, from the first write on",
        told,
        2 * TOLD,
    );
    let lacks = ["NoSpace", "CompactionTooLarge"].map(|word| says.contains(word));
    scene.equal("what is lacking is named", lacks.contains(&true), true);
    fs::remove_file(&filler).map_err(Failure::at(&filler))?;
    let (over, _) = healthy(scene, "True", "Done", OVER).await?;
    scene.seconds("until well, once there is room", over, OVER);
    for reason in [
        Reason::WritesHeldBack,
        Reason::ReadAmplification,
        Reason::BackgroundErrors,
    ] {
        scene.events(PROBE, reason).await?;
    }
    Ok(())
}

/// Gives it orders, a line each.
fn tell(process: Process, orders: &str) -> Result<()> {
    let input = format!("/proc/{}/fd/0", process.pid);
    let pipe = fs::OpenOptions::new().write(true).open(&input);
    pipe.and_then(|mut pipe| pipe.write_all(orders.as_bytes()))
        .map_err(Failure::system(input))
}

/// How long it takes until the condition is so, and what it says then.
async fn healthy(
    scene: &Scene<'_>,
    is: &str,
    why: &str,
    limit: Duration,
) -> Result<(Duration, String)> {
    let began = Instant::now();
    let what = format!("TargetsHealthy {is}, {why}");
    let says = wait::until(&what, limit, async || {
        let status = scene.now(PROBE).await?;
        let mut conditions = status.conditions.into_iter();
        let healthy = conditions.find(|one| one.type_ == condition::TARGETS_HEALTHY);
        let holds = |one: &Condition| one.status == is && one.reason == why;
        let so = healthy.as_ref().is_some_and(holds);
        expect(so, &what, || format!("{healthy:?}"))?;
        Ok(healthy.map(|healthy| healthy.message))
    });
    let says = says.await?.unwrap_or_default();
    Ok((began.elapsed(), says))
}
