//! What a real RocksDB says of its own health, as it is driven into trouble: a disk that is too small, and buffers and levels that
//! are. Held against what RocksDB itself counts: as root.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ckb_probe_agent::{
    host::{Session, find_process},
    preflight::preflight,
};
use ckb_probe_crds::{Breach, Figures, Overhead, kinds::rocksdb::RocksDbProbe};
use ckb_probe_testkit::{Fixture, Folder, Probe, wait_until};
use serde_json::Value;
use tokio::runtime::Builder;

/// Reports come ten times a second: what happens is in the first that comes after it, or in the one after that.
const ONE_INTERVAL: Duration = Duration::from_millis(250);

/// The column family "10", which CKB has its live cells in.
const CELL: u8 = 2;

fn compiled(folder: &Folder) -> PathBuf {
    folder.compile("cc", "health.c", "health", &["-lrocksdb"])
}

/// A database on a disk of its own of so many mebibytes, which is seen by it alone.
fn on_a_small_disk(folder: &Folder, mebibytes: u32) -> Fixture {
    let program = compiled(folder);
    let disk = folder.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let script = format!(
        "mount -t tmpfs -o size={mebibytes}m none {} && exec {}",
        disk.display(),
        program.display()
    );
    let mut fixture = Fixture::run(Command::new("unshare").args(["--mount", "sh", "-c", &script]));
    assert_eq!(fixture.tell("ready"), "");
    fixture
}

/// What RocksDB says to have counted, before this word.
fn counted(property: &str, word: &str) -> u64 {
    let (before, _) = property.split_once(&format!(" {word},")).unwrap();
    before.rsplit(' ').next().unwrap().parse().unwrap()
}

/// What it says of stalls.
fn stalls(property: &str) -> &str {
    let (_, stalls) = property.split_once("Stalls(count):").unwrap_or_default();
    stalls.split_once("interval").unwrap_or_default().0
}

/// How many there are of a row in all, of this measure.
fn total(row: &Value, sum: &str) -> u64 {
    row["total"]["sums"][sum].as_u64().unwrap_or_default()
}

/// What the command line does with a process: attached by the time it is there.
fn session(pid: u32) -> Session {
    session_of(pid, RocksDbProbe::default())
}

fn session_of(pid: u32, question: RocksDbProbe) -> Session {
    let process = find_process(Some(pid), "").unwrap();
    let overhead = Overhead {
        on_breach: Breach::Report,
        ..Overhead::default()
    };
    let hour = Duration::from_secs(3600);
    Session::attach(
        preflight(None).means,
        process,
        question.into(),
        overhead,
        hour,
    )
    .unwrap()
}

/// What is told of a row, or of a part of it.
fn sums<const COUNT: usize>(figures: &Figures, names: [&str; COUNT]) -> [u64; COUNT] {
    names.map(|name| figures.sums[name])
}

/// Bytes of the tables that each job of this sort made, by RocksDB's own log.
fn bytes_of_tables(log: &str, begins: &str) -> u64 {
    let events = log
        .lines()
        .filter_map(|line| line.split_once("EVENT_LOG_v1 "));
    let events: Vec<Value> = events
        .map(|(_, event)| serde_json::from_str(event).unwrap())
        .collect();
    let of = |event: &str| {
        let event = event.to_string();
        events.iter().filter(move |one| one["event"] == event)
    };
    let jobs: Vec<&Value> = of(begins).map(|event| &event["job"]).collect();
    let made = of("table_file_creation").filter(|event| jobs.contains(&&event["job"]));
    made.map(|event| event["file_size"].as_u64().unwrap()).sum()
}

/// What RocksDB says of its write amplification, of a column family: the last but 13 of the numbers of the line.
fn write_amplification(property: &str) -> f64 {
    let (_, sum) = property.split_once(" Sum ").unwrap();
    let numbers: Vec<&str> = sum.split_whitespace().collect();
    // Files, size and its unit, score, bytes that are read, read, read, written, new, moved: 10.
    numbers[11 - 1].parse().unwrap()
}

#[test]
fn each_byte_is_written_as_often_as_rocksdb_says() {
    let mut watching = Builder::new_current_thread();
    let watching = watching.enable_io().build().unwrap();
    let _entered = watching.enter();
    let folder = Folder::new();
    let mut database = Fixture::start(&compiled(&folder));
    let path = folder.path("db");
    database.tell(&format!(
        "open {} 1048576 4 200 360 100000000000 200000000000",
        path.display()
    ));
    let files = |name: &str| {
        let files = std::fs::read_dir(&path).unwrap();
        let files = files.map(|file| file.unwrap());
        let named = files.filter(|file| file.file_name().to_str().unwrap().starts_with(name));
        named
            .map(|file| file.metadata().unwrap().len())
            .sum::<u64>()
    };
    let mut session = session(database.pid());
    let told_before = files("LOG") + files("MANIFEST");
    database.tell(&format!("put {CELL} 20000 1000"));
    database.tell(&format!("flush {CELL}"));
    database.tell(&format!("compact {CELL}"));
    let running = |database: &mut Fixture, what: &str| {
        database.tell(&format!("property {CELL} rocksdb.{what}")) != "0"
    };
    wait_until("RocksDB is at rest", || {
        !running(&mut database, "num-running-compactions")
            && !running(&mut database, "compaction-pending")
            && !running(&mut database, "num-running-flushes")
    });
    session.read().unwrap();
    let property = database.tell(&format!(
        "property {CELL} rocksdb.cfstats-no-file-histogram"
    ));
    let log = std::fs::read_to_string(path.join("LOG")).unwrap();
    let flushed = bytes_of_tables(&log, "flush_started");
    let compacted = bytes_of_tables(&log, "compaction_started");
    assert!(
        flushed > 20_000_000 && compacted > flushed,
        "{flushed} {compacted}"
    );
    // What the threads write to the log and to the list of files meanwhile.
    let beside = files("LOG") + files("MANIFEST") - told_before;
    let series = &session.instance().probes[0].series;
    let rows = series
        .iter()
        .find_map(|series| series.rows.get("Compaction"));
    let figures = &rows.unwrap().all.total;
    let [own, others, both] = sums(figures, ["writtenBytes", "flushedBytes", "tableBytes"]);
    assert_eq!(both, own + others);
    for (told, truth) in [(own, compacted), (others, flushed)] {
        assert!(
            (truth..=truth + beside).contains(&told),
            "{told}, {truth}, {beside}"
        );
    }
    let (told, truth) = (both as f64 / others as f64, write_amplification(&property));
    // It has one digit after the point.
    assert!((told - truth).abs() < 0.1, "{told} {truth}: {property}");
}

#[test]
fn what_the_block_cache_lacks_is_read_as_often_as_rocksdb_says() {
    let mut watching = Builder::new_current_thread();
    let watching = watching.enable_io().build().unwrap();
    let _entered = watching.enter();
    // None; one with room for some blocks; one with room for all.
    for cache in [0, 200_000, 64 << 20] {
        let folder = Folder::new();
        let mut database = Fixture::start(&compiled(&folder));
        let path = folder.path("db");
        database.tell(&format!("cache {cache}"));
        database.tell(&format!(
            "open {} 67108864 4 20 36 100000000000 200000000000",
            path.display()
        ));
        // Two files of level 0, which have no keys in common, and whose ranges of keys are the same.
        for _ in 0..2 {
            assert_eq!(
                database.tell(&format!("put {CELL} 1000 1000")).trim(),
                "1000"
            );
            database.tell(&format!("flush {CELL}"));
        }
        let question = RocksDbProbe {
            by_column_family: true,
            file_io: true,
            ..RocksDbProbe::default()
        };
        let mut session = session_of(database.pid(), question);
        let names = ["reads", "readBytes", "missed"];
        let mut all = [0; 3];
        for round in 0..2 {
            let answer = database.tell(&format!("get {CELL} 2000"));
            let truth: Vec<u64> = answer.split(' ').map(|one| one.parse().unwrap()).collect();
            match (cache, round) {
                (0, _) => assert!(truth[2] == 2000 && truth[0] > 2000, "{truth:?}"),
                (200_000, _) => assert!(truth[2] > 1000 && truth[2] < 2000, "{truth:?}"),
                // All of them are there by now.
                (_, 1) => assert_eq!(truth, [0, 0, 0]),
                _ => assert!(truth[2] > 0, "{truth:?}"),
            }
            for (all, one) in all.iter_mut().zip(truth) {
                *all += one;
            }
            session.read().unwrap();
            let series = &session.instance().probes[0].series;
            let gets = series.iter().find_map(|series| series.rows.get("Get"));
            let gets = gets.unwrap();
            assert_eq!(sums(&gets.all.total, names), all, "{cache} {round}");
            assert_eq!(
                sums(&gets.parts["CELL"].total, names),
                all,
                "{cache} {round}"
            );
        }
    }
}

#[test]
fn a_compaction_that_is_too_large_for_the_disk_is_told_with_what_it_lacks() {
    let mut watching = Builder::new_current_thread();
    let watching = watching.enable_io().build().unwrap();
    let _entered = watching.enter();
    let folder = Folder::new();
    let mut database = on_a_small_disk(&folder, 48);
    let disk = folder.path("disk");
    // As the database sees it.
    let within = |pid: u32, name: &str| {
        Path::new(&format!("/proc/{pid}/root"))
            .join(disk.strip_prefix("/").unwrap())
            .join(name)
    };
    let filler = within(database.pid(), "filler");
    std::fs::write(&filler, vec![0; 24 << 20]).unwrap();
    database.tell(&format!(
        "open {} 4194304 4 20 36 100000000000 200000000000",
        disk.join("db").display()
    ));
    let mut rows = Probe::start(database.pid(), &["rocksdb", "--json"]);
    rows.is_attached();
    let mut session = session(database.pid());
    // Four files of level 0 are in place, and there is no room for the fifth that they are merged to. Each holds less than a memtable
    // takes, and is there before the next is begun: a flush beside the compaction that fills the disk, which begins with the fourth,
    // trips an assertion of Debian's RocksDB.
    for _ in 0..4 {
        let put = database.tell(&format!("put {CELL} 360 10000"));
        assert_eq!(put, "360");
        assert_eq!(database.tell(&format!("flush {CELL}")), "");
    }
    let count = |database: &mut Fixture| -> u64 {
        database
            .tell("property 0 rocksdb.background-errors")
            .parse()
            .unwrap()
    };
    wait_until("RocksDB gives up", || count(&mut database) > 0);
    let failed = Instant::now();
    let is_failure =
        |line: &Value| line["row"] == "FailedCompaction" && total(line, "problems") > 0;
    rows.line_while(is_failure, || {});
    assert!(failed.elapsed() < ONE_INTERVAL, "{:?}", failed.elapsed());
    wait_until("it tries again", || count(&mut database) > 2);
    thread::sleep(Duration::from_millis(300));
    // Between two attempts there is a second.
    let expected = count(&mut database);
    let seen = rows.line_while(
        |line| line["row"] == "FailedCompaction" && total(line, "problems") >= expected,
        || {},
    );
    assert_eq!(total(&seen, "problems"), expected);
    let parts = seen["parts"].as_array().unwrap().iter();
    let names: Vec<&str> = parts.map(|part| part["key"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&"CompactionTooLarge"), "{names:?}");
    assert!(names.contains(&"IOError/NoSpace"), "{names:?}");
    let is_lasting = |wanted: u64| {
        move |line: &Value| {
            line["row"] == "BackgroundError" && line["total"]["levels"]["lasting"] == wanted
        }
    };
    rows.line_while(is_lasting(1), || {});
    let events = session.events();
    let of = |operation: &str| {
        let mut events = events.iter();
        events
            .find(|event| event["operation"] == operation)
            .unwrap()
    };
    // Either reason may come first.
    let is_no_space = |event: &&Value| {
        let error = event["error"].as_str().unwrap_or_default();
        event["operation"] == "FailedCompaction"
            && error.starts_with("IOError/NoSpace: While appending to file: ")
            && error.ends_with(".sst: No space left on device")
    };
    assert!(events.iter().any(|event| is_no_space(&event)), "{events:?}");
    let error = of("BackgroundError")["error"].as_str().unwrap();
    assert!(
        error.starts_with("Compaction IOError/NoSpace soft: While appending"),
        "{error}"
    );
    let lacking = of("NoRoomForCompaction");
    assert_eq!(lacking["columnFamily"], "CELL");
    // As its log has it.
    let log = std::fs::read_to_string(within(database.pid(), "db/LOG")).unwrap();
    let line = format!(
        "free space [{} bytes] is less than needed headroom [{} bytes]",
        lacking["freeBytes"], lacking["neededBytes"]
    );
    assert!(log.contains(&line), "{line}");
    // There is room again: RocksDB looks every five seconds.
    std::fs::remove_file(&filler).unwrap();
    rows.line_while(is_lasting(0), || {});
}

#[test]
fn a_flush_that_fails_is_told() {
    let folder = Folder::new();
    let mut database = on_a_small_disk(&folder, 24);
    let disk = folder.path("disk");
    database.tell(&format!(
        "open {} 1048576 4 20 36 100000000000 200000000000",
        disk.join("db").display()
    ));
    let mut rows = Probe::start(database.pid(), &["rocksdb", "--json"]);
    rows.is_attached();
    let answer = database.tell(&format!("put {CELL} 3000 10000"));
    assert!(answer.contains("No space left on device"), "{answer}");
    let failed = Instant::now();
    let of =
        |name: &'static str| move |line: &Value| line["row"] == name && total(line, "problems") > 0;
    // A compaction may have failed before; and where that leaves room behind, RocksDB is over it soon.
    let is_hard = |line: &Value| {
        let mut parts = line["parts"].as_array().unwrap().iter();
        parts.any(|part| part["key"] == "FlushNoWAL IOError/NoSpace hard")
    };
    rows.line_while(|line| of("BackgroundError")(line) && is_hard(line), || {});
    assert!(failed.elapsed() < ONE_INTERVAL, "{:?}", failed.elapsed());
    let flush = rows.line_while(of("FailedFlush"), || {});
    assert_eq!(flush["parts"][0]["key"], "IOError/NoSpace");
}

#[test]
fn writes_that_are_held_back_are_counted_as_rocksdb_counts_them() {
    let folder = Folder::new();
    let program = compiled(&folder);
    let mut database = Fixture::start(&program);
    let path = folder.path("db");
    database.tell(&format!(
        "open {} 262144 4 4 8 2000000 30000000",
        path.display()
    ));
    let mut rows = Probe::start(database.pid(), &["rocksdb", "--json"]);
    rows.is_attached();
    // A stall that begins as it attaches would be without its cause.
    thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    assert_eq!(database.tell(&format!("put {CELL} 3000 10000")), "3000");
    let took = began.elapsed();
    // Compactions go on for a while.
    let mut told = String::new();
    wait_until("RocksDB is at rest", || {
        let before = std::mem::replace(
            &mut told,
            database.tell(&format!(
                "property {CELL} rocksdb.cfstats-no-file-histogram"
            )),
        );
        thread::sleep(Duration::from_millis(700));
        stalls(&before) == stalls(&told) && !before.is_empty()
    });
    let truth = stalls(&told);
    let (rows, _) = rows.rows();
    let expected = [
        ("DelayedByLevel0Files", "level0_slowdown"),
        ("StoppedByLevel0Files", "level0_numfiles"),
        ("StoppedByPendingBytes", "stop for pending_compaction_bytes"),
        (
            "DelayedByPendingBytes",
            "slowdown for pending_compaction_bytes",
        ),
        ("StoppedByMemtables", "memtable_compaction"),
        ("DelayedByMemtables", "memtable_slowdown"),
    ];
    let (mut kinds, mut lasted) = (0, 0);
    for (row, word) in expected {
        let expected = counted(truth, word);
        if expected == 0 {
            assert!(!rows.names().contains(&row), "{row}");
            continue;
        }
        let all = rows.row(row).totals();
        let [(family, figures)] = &all.into_iter().collect::<Vec<_>>()[..] else {
            panic!("several families: {row}");
        };
        assert_eq!(*family, "CELL");
        assert_eq!(figures.sums["stalls"], expected, "{row}: {truth}");
        kinds += 1;
        lasted += figures.sums["stalled"];
    }
    assert!(kinds >= 2, "{truth}");
    // What held them back is over a while after they are written.
    let most = took + Duration::from_millis(1500);
    assert!(
        lasted > 0 && Duration::from_nanos(lasted) < most,
        "{lasted} of {most:?}"
    );
}

#[test]
fn writes_that_wait_for_the_memory_of_all_memtables_are_told_with_that_cause() {
    const STALLS: u64 = 3;
    let mut watching = Builder::new_current_thread();
    let watching = watching.enable_io().build().unwrap();
    let _entered = watching.enter();
    let folder = Folder::new();
    let options = ["-std=c++17", "-pthread", "-lrocksdb"];
    let program = folder.compile("c++", "write_buffers.cpp", "write-buffers", &options);
    let mut database = Fixture::start(&program);
    let path = folder.path("db");
    assert_eq!(database.tell(&format!("open {}", path.display())), "OK");
    let mut session = session(database.pid());
    let (mut least, mut most) = (0, 0);
    for _ in 0..STALLS {
        let answer = database.tell("stall 50000000");
        let (lower, upper) = answer.split_once(' ').unwrap();
        least += lower.parse::<u64>().unwrap();
        most += upper.parse::<u64>().unwrap();
    }
    session.read().unwrap();
    let series = session.instance().probes[0].series.iter();
    let rows = series.flat_map(|series| &series.rows);
    let stopped: Vec<_> = rows
        .filter(|(_, row)| row.all.total.sums.contains_key("stalls"))
        .collect();
    let [(name, row)] = stopped[..] else {
        panic!("several causes: {stopped:?}");
    };
    assert_eq!(name, "StoppedByWriteBuffers");
    let parts: Vec<_> = row.parts.keys().collect();
    assert_eq!(parts, ["all"]);
    let [stalls, stalled] = sums(&row.parts["all"].total, ["stalls", "stalled"]);
    assert_eq!(stalls, STALLS);
    assert!(
        (least..=most).contains(&stalled),
        "{stalled} in {least}..={most}"
    );
}
