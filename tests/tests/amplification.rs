//! What RocksDB writes for each byte that it flushes, and when a CkbProbe says that it is too much: of a real RocksDB, by its own
//! statistics, from the programs in its process to the condition of the CkbProbe. As root.

use std::{collections::BTreeMap, process::Command, time::Duration};

use ckb_probe_agent::{
    host::{Session, find_process},
    preflight::preflight,
};
use ckb_probe_crds::{
    Breach, Container, InstanceReport, NodeProbeStatus, Overhead, PodReference, condition,
    kinds::rocksdb::RocksDbProbe,
};
use ckb_probe_operator::{
    aggregate::{Past, aggregate},
    world::{Change, CkbProbeEntry, Node, NodeProbeEntry, Phase, Raw, TargetPod, World},
};
use ckb_probe_testkit::{Fixture, Folder};
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime},
    jiff::Timestamp,
};
use kube::runtime::watcher::Event;
use serde_json::{from_value, json};
use tokio::runtime::Builder;

/// The column family "10", which CKB has its live cells in.
const CELL: u8 = 2;

/// From so many bytes that were flushed on it is told that more than so many were written for each.
const ENOUGH: u64 = 256 << 20;
const MUCH: f64 = 50.0;

/// What threads write beside tables, lines of LOG and of MANIFEST, is less than so much of what they write.
const BESIDE: f64 = 0.01;

const MEMTABLE: u64 = 64 << 20;

/// A database on a disk in memory, which is seen by it alone, and what its statistics have counted.
struct Database {
    program: Fixture,
    _folder: Folder,
    before: Written,
}

/// What was written to tables.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    flushed: u64,
    compacted: u64,
}

impl Written {
    /// So many for each that was flushed.
    fn amplification(self) -> f64 {
        (self.flushed + self.compacted) as f64 / self.flushed as f64
    }

    /// Whether it is to be told, if flushes and compactions wrote so many times as much.
    fn is_much(self, flushes: f64, compactions: f64) -> bool {
        let (flushed, compacted) = (
            self.flushed as f64 * flushes,
            self.compacted as f64 * compactions,
        );
        flushed >= ENOUGH as f64 && (flushed + compacted) / flushed > MUCH
    }

    /// Whether it is to be told; nothing where that depends on what threads write beside tables.
    fn is_told(self) -> Option<bool> {
        let all = [1.0, 1.0 + BESIDE];
        let mut ways = all
            .iter()
            .flat_map(|flushes| all.map(|compactions| self.is_much(*flushes, compactions)));
        let first = ways.next()?;
        ways.all(|way| way == first).then_some(first)
    }
}

impl Database {
    /// One whose memtables have so many bytes and which merges so many files of level 0. All else is as RocksDB has it by itself: level
    /// 1 has four memtables, each further one ten times as much, and files are as large as a memtable.
    fn open(memtable: u64, level0_files: u32) -> Self {
        let folder = Folder::new();
        let program = folder.compile("cc", "health.c", "health", &["-lrocksdb"]);
        let disk = folder.path("disk");
        std::fs::create_dir(&disk).unwrap();
        let (disk, program) = (disk.display(), program.display());
        let script = format!("mount -t tmpfs -o size=2g none {disk} && exec {program}");
        let mut program =
            Fixture::run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
        program.tell(&format!("level0 {level0_files}"));
        program.tell(&format!(
            "open {disk}/db {memtable} 2 20 36 68719476736 274877906944"
        ));
        Self {
            program,
            _folder: folder,
            before: Written::default(),
        }
    }

    fn put(&mut self, family: u8, count: u64, bytes: u64) {
        let put = self.program.tell(&format!("put {family} {count} {bytes}"));
        assert_eq!(put, count.to_string());
    }

    fn flush(&mut self, family: u8) {
        assert_eq!(self.program.tell(&format!("flush {family}")), "");
        self.rest(family);
    }

    /// Waits until it has nothing to do in the background.
    fn rest(&mut self, family: u8) {
        self.program.tell(&format!("rest {family}"));
    }

    /// What its statistics have counted since [`Self::is_watched`].
    fn written(&mut self) -> Written {
        let mut ticker = |name: &str| -> u64 {
            let count = self.program.tell(&format!("ticker rocksdb.{name}"));
            count.parse().unwrap()
        };
        Written {
            flushed: ticker("flush.write.bytes") - self.before.flushed,
            compacted: ticker("compact.write.bytes") - self.before.compacted,
        }
    }

    /// Has it watched from now on.
    fn is_watched(&mut self) -> Watch {
        self.before = self.written();
        Watch::new(self.program.pid())
    }
}

/// An agent at the process of a pod, and an operator that reads its reports.
struct Watch {
    session: Session,
    world: World,
    probe: CkbProbeEntry,
    pod: PodReference,
}

const NODE: &str = "n";

impl Watch {
    fn new(pid: u32) -> Self {
        let process = find_process(Some(pid), "").unwrap();
        let overhead = Overhead {
            on_breach: Breach::Report,
            ..Overhead::default()
        };
        let hour = Duration::from_secs(3600);
        let question = RocksDbProbe::default().into();
        let means = preflight(None).means;
        let session = Session::attach(means, process, question, overhead, hour).unwrap();
        let raw: Raw = from_value(json!({
            "metadata": { "namespace": "a", "name": "p", "uid": "uid-p", "generation": 1 },
            "spec": {
                "target": { "selector": { "matchLabels": { "app": "ckb" } } },
                "overhead": { "onBreach": "Report" },
                "probes": [{ "name": "rocksdb", "rocksdb": {} }],
            },
        }))
        .unwrap();
        let pod = TargetPod {
            reference: PodReference {
                namespace: "a".to_string(),
                name: "ckb-0".to_string(),
                uid: "uid-ckb-0".to_string(),
            },
            labels: BTreeMap::from([("app".to_string(), "ckb".to_string())]).into(),
            node: Some(NODE.to_string()),
            phase: Phase::Running,
            containers: vec![Container {
                name: "ckb".to_string(),
                id: Some("id-ckb".to_string()),
            }],
            ..TargetPod::default()
        };
        let node = Node {
            name: NODE.to_string(),
            ready: true,
        };
        let mut watch = Self {
            session,
            world: World::default(),
            probe: CkbProbeEntry::from(raw),
            pod: pod.reference.clone(),
        };
        let now = Timestamp::now();
        for change in [
            Change::Probe(Event::Apply(watch.probe.clone())),
            Change::Pod(Event::Apply(pod)),
            Change::Node(Event::Apply(node)),
        ] {
            watch.world.apply(change, now);
        }
        watch
    }

    /// Ends a report interval: what the agent reports of it.
    fn report(&mut self) -> InstanceReport {
        self.session.close_interval().unwrap();
        InstanceReport {
            probe: self.probe.reference.clone(),
            pod: self.pod.clone(),
            container: Some("ckb".to_string()),
            ..self.session.instance().report(self.session.now())
        }
    }

    /// Ends a report interval: what is told of it.
    fn told(&mut self) -> Told {
        let report = self.report();
        let row = |key: &str| report.probes[0].rows.iter().find(|row| row.key == key);
        let sum =
            |key: &str, name: &str| row(key).and_then(|row| row.total.sums.get(name)).copied();
        let written = Written {
            flushed: sum("Flush", "writtenBytes").unwrap_or_default(),
            compacted: sum("Compaction", "writtenBytes").unwrap_or_default(),
        };
        if let Some(all) = sum("Compaction", "tableBytes") {
            assert_eq!(all, written.flushed + written.compacted);
            assert_eq!(sum("Compaction", "flushedBytes"), Some(written.flushed));
        }
        let now = Timestamp::now();
        let row: Raw = from_value(json!({
            "metadata": { "name": NODE, "uid": "uid-n", "generation": 1 },
            "spec": {},
        }))
        .unwrap();
        let mut row = NodeProbeEntry::from(row);
        row.status = Some(NodeProbeStatus {
            observed_generation: Some(1),
            reported_at: Some(MicroTime(now)),
            instances: vec![report],
            ..NodeProbeStatus::default()
        });
        self.world.apply(Change::NodeProbe(Event::Apply(row)), now);
        let status = aggregate(&self.probe, &self.world, None, &mut Past::default(), now);
        let mut conditions = status.conditions.into_iter();
        let healthy = conditions.find(|one| one.type_ == condition::TARGETS_HEALTHY);
        let rows = status.probes.iter().flat_map(|probe| &probe.rows);
        let figure = rows
            .filter(|row| row.key == "Compaction")
            .find_map(|row| row.figures.get("writeAmplification"));
        if let Some(figure) = figure {
            let figure: f64 = figure.parse().unwrap();
            let difference = figure / written.amplification() - 1.0;
            assert!(difference.abs() < 0.005, "{figure}: {written:?}");
        }
        Told {
            written,
            healthy: healthy.unwrap(),
        }
    }
}

/// What is told of a report interval.
struct Told {
    /// What was written to tables since it is watched, by the agent.
    written: Written,
    /// Whether all is well, by the operator.
    healthy: Condition,
}

const SENTENCE: &str =
    "pod a/ckb-0: RocksDB writes more than 50 bytes for each that it flushes (Compaction)";

impl Told {
    /// That nothing is told but that compactions write much, if they do.
    #[track_caller]
    fn assert_much(&self, is_much: bool) {
        let Condition {
            status,
            reason,
            message,
            ..
        } = &self.healthy;
        let expected = match is_much {
            true => ("False", "WriteAmplification", SENTENCE),
            false => (
                "True",
                "Done",
                "what is measured tells of nothing that is wrong in the targets",
            ),
        };
        assert_eq!(
            (&**status, &**reason, &**message),
            expected,
            "{:?}",
            self.written
        );
    }
}

/// That as much was written as RocksDB counted, and no more than a hundredth above, which is not to tables.
#[track_caller]
fn assert_true(told: Written, truth: Written) {
    let pairs = [
        (told.flushed, truth.flushed),
        (told.compacted, truth.compacted),
    ];
    for (told, truth) in pairs {
        let most = truth as f64 * (1.0 + BESIDE);
        assert!(told >= truth && told as f64 <= most, "{told} of {truth}");
    }
}

fn shown(what: &str, told: Written, truth: Written) {
    println!(
        "{what}: {:.2} bytes for each, by its statistics {:.2}; flushed {} and {}, compacted {} and {}",
        told.amplification(),
        truth.amplification(),
        told.flushed,
        truth.flushed,
        told.compacted,
        truth.compacted
    );
}

fn watching() -> tokio::runtime::Runtime {
    Builder::new_current_thread().enable_io().build().unwrap()
}

/// A mebibyte of values.
const MEBIBYTE: (u64, u64) = (16, 65536);

#[test]
#[ignore = "14 GiB are written for it: scripts/nightly.sh amplification"]
fn that_compactions_write_much_is_told_while_it_is_so() {
    let watching = watching();
    let _entered = watching.enter();
    // A memtable is flushed that has a mebibyte, and merged at once with all that there is, 54 MiB.
    let mut database = Database::open(MEMTABLE, 1);
    let (values, bytes) = MEBIBYTE;
    let keys = 54 * values;
    database.program.tell(&format!("keys {keys}"));
    database.put(CELL, 4 * keys, bytes);
    database.flush(CELL);
    let mut watch = database.is_watched();
    watch.told().assert_much(false);
    let (mut much, mut undecided) = (0, 0);
    while much < 3 {
        database.put(CELL, values, bytes);
        database.flush(CELL);
        let (told, truth) = (watch.told(), database.written());
        assert_true(told.written, truth);
        assert!(
            truth.amplification() > MUCH || truth.flushed < ENOUGH / 2,
            "{truth:?}"
        );
        match truth.is_told() {
            Some(is_much) => told.assert_much(is_much),
            None => undecided += 1,
        }
        much += u32::from(truth.is_told() == Some(true));
    }
    shown("much", watch.told().written, database.written());
    println!("of {undecided} intervals it depends on LOG and MANIFEST");
    assert!(undecided < 5, "{undecided}");
    // 48 MiB that are flushed, and merged with nothing: of all together it is not so much any more.
    database.program.tell(&format!("keys {}", u64::MAX));
    database.put(CELL - 1, 48 * values, bytes);
    watch.told().assert_much(true);
    database.flush(CELL - 1);
    let (told, truth) = (watch.told(), database.written());
    shown("not any more", told.written, truth);
    assert_true(told.written, truth);
    assert_eq!(truth.is_told(), Some(false), "{truth:?}");
    told.assert_much(false);
}

/// Puts so many mebibytes in values of 4 KiB, as fast as RocksDB takes them. They are never told to be written much.
fn is_ordinary(memtable: u64, mebibytes: u64) {
    let watching = watching();
    let _entered = watching.enter();
    let mut database = Database::open(memtable, 4);
    let mut watch = database.is_watched();
    for _ in 0..mebibytes / 32 {
        database.put(CELL, 32 << 8, 4096);
        // Writes may be held back.
        let says = watch.told().healthy.message;
        assert!(!says.contains(SENTENCE), "{says}");
    }
    database.flush(CELL);
    let (told, truth) = (watch.told(), database.written());
    shown("ordinary", told.written, truth);
    assert_true(told.written, truth);
    assert!(truth.flushed > ENOUGH && truth.compacted > 0, "{truth:?}");
    assert!(
        !told.healthy.message.contains(SENTENCE),
        "{:?}",
        told.healthy
    );
}

#[test]
fn what_rocksdb_writes_as_it_is_by_itself_is_not_much() {
    is_ordinary(MEMTABLE, 320);
}

#[test]
#[ignore = "several GiB are written for it: scripts/nightly.sh amplification"]
fn what_rocksdb_writes_of_several_levels_is_not_much() {
    is_ordinary(4 << 20, 768);
}
