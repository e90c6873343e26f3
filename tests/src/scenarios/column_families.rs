//! With byColumnFamily every call is put down to a column family, which goes by the name that CKB's schema gives it.

use super::prelude::*;

/// Where the small workload's reads and writes go: by its source, not by what was measured.
const TRAFFIC: [(&str, &str); 3] = [
    ("Get", "BLOCK_EXT BLOCK_HEADER CELL CHAIN_ROOT_MMR INDEX"),
    (
        "TxnGet",
        "BLOCK_EPOCH BLOCK_EXT BLOCK_HEADER CELL CHAIN_ROOT_MMR EPOCH INDEX META TRANSACTION_INFO",
    ),
    ("TxnDelete", "CELL CELL_DATA CELL_DATA_HASH"),
];

/// A node that mines writes to all of these with each block.
const MINED: [&str; 5] = [
    "BLOCK_BODY",
    "BLOCK_EXT",
    "BLOCK_HEADER",
    "META",
    "CHAIN_ROOT_MMR",
];

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.deploy(Load::Steady).await?;
    let mut probe = scene.workload_probe();
    probe["spec"]["probes"][0]["rocksdb"]["byColumnFamily"] = json!(true);
    scene.apply_probe(probe).await?;
    scene
        .status("figures by column family", ATTACH, |status| {
            all_fire(status)?;
            let of_put = rows::shown_of(status, "TxnPut")?.parts.len();
            expect(of_put > 0, "column families of TxnPut", || of_put)
        })
        .await?;
    let (_, agent) = scene.workload_attached(target.process).await?;

    // So that the status comes to say of the same calls as the metrics.
    let stopped = target.process.stop().await?;
    let metrics = agent.scrape().await?.operations(&scene.namespace, PROBE);
    let by_family: Vec<_> = metrics
        .iter()
        .filter(|one| one.on_families.is_some())
        .collect();
    scene.figure(
        "operations with figures by column family",
        by_family.len(),
        "",
        Bound::AtLeast(4.0),
    );
    let calls: f64 = by_family.iter().map(|one| one.calls).sum();
    let apart = by_family
        .iter()
        .map(|one| (one.calls - one.on_families.unwrap_or_default()).abs());
    scene.equal_of(
        "calls more or fewer than those on its column families, of any operation, in the metrics",
        apart.sum::<f64>(),
        &format!("of {calls}"),
        0,
    );
    let status = scene
        .status("every call in the status", ATTACH, |status| {
            let shown = by_family
                .iter()
                .map(|one| rows::count(&rows::shown_of(status, &one.name)?.figures));
            let shown: u64 = shown.sum::<Result<u64>>()?;
            expect(shown as f64 == calls, format!("{calls} calls"), || shown)
        })
        .await?;
    drop(stopped);
    let families = families(&status)?;
    let mut apart = 0;
    for row in rows::shown(&status).filter(|row| !row.parts.is_empty()) {
        let sum: u64 = families[row.key.as_str()]
            .iter()
            .map(|(_, calls)| calls)
            .sum();
        apart += rows::count(&row.figures)?.abs_diff(sum);
    }
    scene.equal_of("the same in the status", apart, &format!("of {calls}"), 0);
    are_of_the_schema(scene, &families);
    are_those_of_the_load(scene, &families);
    Ok(())
}

/// Column families are called as those of CKB.
fn are_of_the_schema(scene: &mut Scene<'_>, families: &Families) {
    let names: BTreeSet<_> = families.values().flatten().map(|(name, _)| *name).collect();
    crate::note!("{}", names.iter().copied().collect::<Vec<_>>().join(", "));
    let strange = names
        .iter()
        .filter(|name| !operations::is_column_family(name));
    scene.equal_of(
        "column families with a name that is not of CKB's schema",
        strange.count(),
        &format!("of {}", names.len()),
        0,
    );
}

/// Each operation is on the column families that the workload has it on.
fn are_those_of_the_load(scene: &mut Scene<'_>, families: &Families) {
    let named = |operation: &str| -> BTreeSet<&str> {
        let families = families.get(operation).into_iter().flatten();
        families.map(|(name, _)| *name).collect()
    };
    match scene.workload {
        Workload::Rocksdb => {
            for (operation, expected) in TRAFFIC {
                let expected: BTreeSet<&str> = expected.split(' ').collect();
                scene.equal_of(
                    &format!("column families of {operation} that are missing, or too many"),
                    named(operation).symmetric_difference(&expected).count(),
                    &format!("of {}", expected.len()),
                    0,
                );
            }
            let get = families.get("Get").into_iter().flatten();
            let (mut all, mut mmr) = (0, 0);
            for (name, count) in get {
                all += count;
                mmr += if *name == "CHAIN_ROOT_MMR" { *count } else { 0 };
            }
            scene.figure(
                "part of Get on CHAIN_ROOT_MMR, less the half that it is",
                (mmr as f64 / all as f64 * 100.0 - 50.0).abs(),
                "%",
                Bound::AtMost(1.0),
            );
        }
        Workload::Ckb => {
            let written = named("TxnPut");
            let lacking = MINED.iter().filter(|name| !written.contains(*name));
            scene.equal_of(
                "column families that a block is written to, and TxnPut lacks",
                lacking.count(),
                &format!("of {}", MINED.len()),
                0,
            );
        }
    }
}

/// The calls on each column family, by operation.
type Families<'a> = BTreeMap<&'a str, Vec<(&'a str, u64)>>;

fn families(status: &CkbProbeStatus) -> Result<Families<'_>> {
    rows::shown(status)
        .map(|row| {
            let families = row.parts.iter();
            let counts =
                families.map(|family| Ok((family.key.as_str(), rows::count(&family.figures)?)));
            Ok((row.key.as_str(), counts.collect::<Result<_>>()?))
        })
        .collect()
}
