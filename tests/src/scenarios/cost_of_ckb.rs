//! `kubectl ckbprobe cost` of a real CKB node in a pod: as it imports a chain, which is the most that one does to RocksDB, and as it mines. What it
//! prints is what docs/performance.md shows.

use std::path::{Path, PathBuf};

use ckb_probe_views::{
    cost::{Compared, Cost, Measure},
    document::{Document, View},
};

use super::{plugin::asked, prelude::*};
use crate::fixture::repository;

/// Empty ones, in the chain that is imported, unless `BLOCKS` says otherwise: by so little of a processor they take three minutes and more.
const BLOCKS: &str = "40000";

/// Of a processor, what an import may use: it would be over before there are six pairs of windows. What it does, and what probes cost of that,
/// stays the same.
const LIMIT: &str = "100m";

/// The user of the workload's image.
const USER: u32 = 65532;

const TITLE: &str = "cost of ckb";

/// Who is asked within what budget.
#[derive(Clone, Copy)]
struct Asked {
    name: &'static str,
    on_breach: &'static str,
}

/// As a CkbProbe is by default, and with each call counted, whatever it costs.
const IMPORTS: [Asked; 2] = [
    Asked {
        name: "import",
        on_breach: "Sample",
    },
    Asked {
        name: "import-whole",
        on_breach: "Report",
    },
];

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    expect(
        scene.workload == Workload::Ckb,
        "a real node, by scripts/e2e.sh ckb --only cost_of_ckb",
        || scene.workload.name(),
    )?;
    let mut told = Vec::new();
    for one in IMPORTS {
        let import = Import::start(scene, one.name).await?;
        told.push(compare(scene, one, import.process, "60s").await?);
        import.end(scene).await?;
    }
    let [within, whole] = &told[..] else {
        return Err(Failure::missing("two imports"));
    };
    let (within, whole) = (of_block(within)?, of_block(whole)?);
    expect(
        !whole.noise && whole.effect > 0.0,
        "a cost of what is counted whole",
        || format!("{whole:?}"),
    )?;
    // A budget that made no difference would be none.
    let name = "least of CPU time that an import is sure to take more within its budget";
    scene.figure(
        name,
        percent(within.low),
        "%",
        Bound::AtMost(percent(whole.low)),
    );

    let mining = scene.deploy(Load::Steady).await?;
    let one = Asked {
        name: "mining",
        on_breach: "Sample",
    };
    compare(scene, one, mining.process, "3m").await?;
    Ok(())
}

/// Has what is asked compared, and tells of it.
async fn compare(scene: &Scene<'_>, question: Asked, process: Process, time: &str) -> Result<Cost> {
    let Asked { name, on_breach } = question;
    let app = if name == "mining" { "ckb" } else { name };
    let spec = json!({
        "target": { "selector": { "matchLabels": { "app": app } }, "container": "ckb", "executable": "ckb" },
        "overhead": { "onBreach": on_breach },
        "reportInterval": "1s",
        "probes": [{ "name": "storage", "rocksdb": {} }],
    });
    scene
        .apply_probe(ckb_probe(&scene.namespace, name, &spec))
        .await?;
    wait::until("the node to be attached to", ATTACH, async || {
        let attached = scene.now(name).await?.targets.attached;
        expect(attached == 1, "one target", || attached)
    })
    .await?;
    // What it has written: of an import, by so much for each block.
    let counter = format!("awk '/^wchar/ {{ print $2 }}' /proc/{}/io", process.pid);
    let windows = [
        "--each",
        "3s",
        "--settle",
        "1s",
        "--ab",
        time,
        "--counter",
        &counter,
    ];
    let ended = asked(
        scene,
        "cost",
        &[name],
        &[&windows[..], &["-o", "json"]].concat(),
    )
    .await?;
    scene.delete_probe(name).await?;
    let document = Document::read(&ended.printed).map(|document| document.view);
    match document {
        Ok(View::Cost(cost)) if ended.code == 0 => {
            crate::note!("{TITLE}, {name}:\n{}", cost.text());
            Ok(cost)
        }
        _ => Err(Failure::missing(format!(
            "a comparison in {:?}, and {:?}",
            ended.printed, ended.said
        ))),
    }
}

/// What a byte that it wrote took more of the CPU time.
fn of_block(cost: &Cost) -> Result<&Compared> {
    let mut compared = cost.compared.iter();
    let found = compared.find(|one| one.measure == Measure::CpuOfCount);
    found.ok_or_else(|| Failure::missing("CPU time of what was written"))
}

fn percent(part: f64) -> f64 {
    part * 100.0
}

/// A pod that imports a chain into a folder of this machine, which the local cluster's node is.
struct Import {
    pod: String,
    process: Process,
    folder: PathBuf,
}

impl Import {
    async fn start(scene: &Scene<'_>, name: &str) -> Result<Self> {
        let blocks = std::env::var("BLOCKS").unwrap_or_else(|_| BLOCKS.to_owned());
        let script = repository().join("scripts/build-chain.sh");
        let chain = command(&script.to_string_lossy(), &[&blocks], None).await?;
        let chain = PathBuf::from(chain.trim());
        // A kubelet takes no path that has dots in it.
        let root = fs::canonicalize(repository()).map_err(Failure::at(&repository()))?;
        let folder = root.join("target/e2e").join(name);
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(Failure::at(&folder))?;
        }
        let (from, to) = (chain.join("config"), folder.to_string_lossy());
        let (from, owner) = (from.to_string_lossy(), format!("{USER}:{USER}"));
        command("cp", &["--recursive", &from, &to], None).await?;
        command("chown", &["--recursive", &owner, &to], None).await?;
        scene
            .cluster
            .apply(&pod(scene, name, &folder, &chain))
            .await?;
        let process = wait::until("the import to run", ATTACH, async || {
            let namespace = &scene.namespace;
            scene.cluster.process(namespace, name, "ckb", "ckb").await
        })
        .await?;
        Ok(Self {
            pod: name.to_owned(),
            process,
            folder,
        })
    }

    /// Takes it away, and what it has written.
    async fn end(self, scene: &Scene<'_>) -> Result<()> {
        let namespace = scene.namespace.as_str();
        let delete = ["-n", namespace, "delete", "pod", &self.pod, "--wait"];
        scene.cluster.kubectl(&delete).await?;
        fs::remove_dir_all(&self.folder).map_err(Failure::at(&self.folder))
    }
}

fn pod(scene: &Scene<'_>, name: &str, folder: &Path, chain: &Path) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": scene.namespace, "labels": { "app": name } },
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "securityContext": { "runAsNonRoot": true, "runAsUser": USER },
            "containers": [{
                "name": "ckb",
                "image": "registry.local/ckb-probe/ckb:dev",
                "imagePullPolicy": "IfNotPresent",
                "args": ["import", "-C", "/node", "/chain/blocks.jsonl"],
                // The image has no folder for what is there for a while, and an import has such.
                "env": [{ "name": "TMPDIR", "value": "/node" }],
                "resources": { "limits": { "cpu": LIMIT, "memory": "1Gi" } },
                "volumeMounts": [
                    { "name": "node", "mountPath": "/node" },
                    { "name": "chain", "mountPath": "/chain", "readOnly": true },
                ],
            }],
            "volumes": [
                { "name": "node", "hostPath": { "path": folder, "type": "Directory" } },
                { "name": "chain", "hostPath": { "path": chain, "type": "Directory" } },
            ],
        },
    })
}
