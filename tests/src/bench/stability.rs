//! A CKB node that mines for hours: left alone, measured within the default budget, and asked everything. What wears out, piles up or comes
//! once a day shows here; each row is one thing that must hold.

use ckb_probe_report::{History, Part, content::count_unusual, lines};
use tokio::process::Command;

use super::{
    node::{Node, Pace},
    prelude::*,
    statistics::mean,
};
use crate::bpf::Held;

/// What is asked of the node, by the name of a preset, after it was left alone for as long.
const PRESETS: [&str; 2] = ["storage", "everything"];

/// The part of its time after which a recorder has taken the memory that it takes.
const WARM: f64 = 0.2;

/// Until a recorder has attached.
const ATTACH: Duration = Duration::from_secs(60);

/// Until one that is told to end has packed what it wrote.
const END: Duration = Duration::from_secs(60);

/// Until the kernel has let go of what a recorder held.
const GONE: Duration = Duration::from_secs(10);

/// Below so many hours the CPU time of a block differs by more than any probe costs.
const LEAST_HOURS: f64 = 1.0;

/// What is missing in figures where it could not be recorded; of the rest it is only not told one by one.
const COUNTED: [&str; 5] = ["calls", "counts", "requests", "times", "connections"];

/// A record is read by minutes, and in 720 of them the rule that says what is not as usual learns what is. A preset has a third of the hours.
const LEARNED_HOURS: f64 = 3.0 * 12.0;

const ROWS: [Row; 14] = table! {
    "nodes that died" = "dead" in "", Exactly(0.0);
    "CPU time of a block, more than alone" = "block % alone" in "%", AtMost(3.0);
    "estimated cost, of what it may be" = "cost" in "%", AtMost(105.0);
    "time of which nothing is known" = "unknown" in "%", AtMost(0.1);
    "what could not be counted" = "lost" in "", Exactly(0.0);
    "lines of the record that cannot be read" = "damaged" in "", Exactly(0.0);
    "memory of the recorder, more at the end" = "memory" in "MB", AtMost(4.0);
    "descriptors of the recorder, more at the end" = "descriptors" in "", AtMost(0.0);
    "whether it leaves programs or links in the kernel" = "left" in "", Exactly(0.0);
    "CPU time of the recorder" = "own" in "% of a core", AtMost(20.0);
    "the record" = "record" in "MB", AtMost(256.0);
    "the page that is made of it" = "page" in "MB", AtMost(5.0);
    "until that is drawn" = "drawn" in "s", AtMost(5.0);
    "times something is said not to be as usual" = "unusual" in "", AtMost(1.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let container = Container::new(2);
    let node = Node::start(&bench.settings, &container, Pace::Fast).await?;
    let each = Duration::from_secs_f64(bench.settings.hours * 3600.0 / 3.0);
    let alone = block(&node, &container, each).await?;
    for preset in PRESETS {
        let mut series = Series::default();
        series.push("alone", alone);
        let recorder = Recorder::start(&bench.settings, &node, preset, each).await?;
        sleep(each.mul_f64(WARM)).await;
        let before = recorder.holds()?;
        let cost = block(&node, &container, each.mul_f64(1.0 - WARM)).await?;
        let after = recorder.holds()?;
        series.push("block", cost);
        series.push("memory", after.0 - before.0);
        series.push("descriptors", after.1 - before.1);
        series.push("dead", f64::from(u8::from(!node.process()?.is_alive())));
        series.extend("", recorder.end(&bench.settings).await?);
        let rows = rows(bench.settings.hours);
        bench.tell(&format!("stability, {preset}: "), &series, &rows);
    }
    Ok(())
}

/// What must hold after so long.
fn rows(hours: f64) -> [Row; ROWS.len()] {
    ROWS.map(|row| match row.formula {
        "block % alone" if hours < LEAST_HOURS => Row { bound: None, ..row },
        "unusual" if hours <= LEARNED_HOURS => Row { bound: None, ..row },
        _ => row,
    })
}

/// CPU time of a block, in milliseconds, over so long.
async fn block(node: &Node, container: &Container, time: Duration) -> Result<f64> {
    let first = node.blocks(node.blocks(0).await? + 1).await?;
    let before = container.cpu_time();
    sleep(time).await;
    let last = node.blocks(first + 1).await?;
    let used = container.cpu_time().saturating_sub(before).as_secs_f64();
    Ok(used * 1000.0 / (last - first) as f64)
}

/// `ckb-probe record` on a node.
struct Recorder {
    child: Child,
    folder: PathBuf,
}

impl Recorder {
    async fn start(settings: &Settings, node: &Node, preset: &str, time: Duration) -> Result<Self> {
        let folder = in_folder(settings, &format!("stability.{preset}"))?;
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(Failure::at(&folder))?;
        }
        // A minute that is tried has some intervals, too.
        let interval = match time < Duration::from_secs(600) {
            true => "1s",
            false => "10s",
        };
        let child = Command::new(settings.programs.join("ckb-probe"))
            .args(["record", "--pid", &node.process()?.pid.to_string()])
            .args(["--preset", preset, "--interval", interval, "-o"])
            .arg(&folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(Failure::system("ckb-probe record"))?;
        let recorder = Self { child, folder };
        wait::until("the record", ATTACH, async || {
            let begun = recorder.folder.is_dir() && recorder.process()?.is_alive();
            expect(begun, "a folder, by one who lives", || "none")
        })
        .await?;
        Ok(recorder)
    }

    fn process(&self) -> Result<Process> {
        let pid = self.child.id();
        let pid = pid.ok_or_else(|| Failure::missing("the recorder: it has ended"))?;
        Process::of(pid as i32)
    }

    /// Memory in MB, and descriptors.
    fn holds(&self) -> Result<(f64, f64)> {
        let process = self.process()?;
        let folder = format!("/proc/{}/fd", process.pid);
        let open = fs::read_dir(&folder).map_err(Failure::system(folder))?;
        Ok((
            process.memory()?.anonymous as f64 / 1e6,
            open.count() as f64,
        ))
    }

    /// Tells it to end, has the page made, and looks at both.
    async fn end(mut self, settings: &Settings) -> Result<Found> {
        let process = self.process()?;
        let held = Held::by(process)?;
        process.signal(Signal::INT)?;
        let ended = timeout(END, self.child.wait()).await;
        let ended = ended.map_err(|_| Failure::missing("the end of the recorder"))?;
        let ended = ended.map_err(Failure::system("ckb-probe record"))?;
        expect(ended.success(), "a record that ends well", || ended)?;
        // The kernel frees them a moment later.
        let gone = wait::until("what it held to be gone", GONE, async || {
            held.expect_gone().await
        });
        let left = gone.await.is_err();
        let page = self.folder.with_extension("html");
        let begun = Instant::now();
        let drawn = Command::new(settings.programs.join("ckb-probe"))
            .arg("report")
            .arg(&self.folder)
            .arg("-o")
            .arg(&page)
            .status()
            .await
            .map_err(Failure::system("ckb-probe report"))?;
        let took = begun.elapsed().as_secs_f64();
        expect(drawn.success(), "a page", || drawn)?;
        let record: u64 = entries(&self.folder)?.iter().map(|(_, bytes)| bytes).sum();
        let page = fs::metadata(&page).map_err(Failure::at(&page))?.len();
        let mut found = told(&history(&self.folder)?);
        found.extend([
            ("left", f64::from(u8::from(left))),
            ("record", record as f64 / 1e6),
            ("page", page as f64 / 1e6),
            ("drawn", took),
        ]);
        Ok(found)
    }
}

/// The files of a folder, with their sizes.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, u64)>> {
    let listed = fs::read_dir(folder).map_err(Failure::at(folder))?;
    let files = listed.flatten().map(|entry| {
        let bytes = entry.metadata().map(|one| one.len()).unwrap_or_default();
        (entry.path(), bytes)
    });
    Ok(files.collect())
}

/// A record, by minutes.
fn history(folder: &Path) -> Result<History> {
    let mut segments: BTreeMap<u64, PathBuf> = BTreeMap::new();
    for (path, _) in entries(folder)? {
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some((number, Part::Minutes)) = name.and_then(Part::of) {
            segments.insert(number, path);
        }
    }
    let mut packed = Vec::new();
    for path in segments.values() {
        packed.push((true, fs::read(path).map_err(Failure::at(path))?));
    }
    let what = folder.display().to_string();
    let segments = lines::read_all(&packed, None);
    let segments = segments.map_err(|(_, error)| Failure::format(what)(error))?;
    Ok(History::of(segments))
}

/// What a record says of itself.
fn told(history: &History) -> Found {
    let (from, to) = history.span().unwrap_or_default();
    let span = (to - from) as f64;
    let cost = history.runs.iter().flat_map(|run| {
        let budget = run.header.budget_millipercent;
        let intervals = run.intervals.iter();
        intervals.filter_map(move |one| {
            let granted = (budget + one.floor.unwrap_or_default()) as f64;
            Some(100.0 * one.cost? as f64 / granted)
        })
    });
    let cost: Vec<f64> = cost.collect();
    let own: u64 = history.intervals().map(|one| one.own_cpu).sum();
    let last = history.intervals().last();
    let lost = last
        .iter()
        .flat_map(|one| &one.probes)
        .flat_map(|probe| &probe.lost)
        .filter(|(what, _)| COUNTED.contains(&what.as_str()))
        .map(|(_, count)| count)
        .sum::<u64>();
    let damage = history.damage;
    let damaged = damage.lines + u64::from(damage.cut) + u64::from(damage.packed);
    let mut found = vec![
        ("unknown", 100.0 * (1.0 - history.known() as f64 / span)),
        ("lost", lost as f64),
        ("damaged", damaged as f64),
        ("own", 100.0 * own as f64 / span),
        ("unusual", count_unusual(history) as f64),
    ];
    found.extend(mean(&cost).map(|cost| ("cost", cost)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a node gives that is measured as it should be.
    const WELL: [(&str, f64); 15] = [
        ("dead", 0.0),
        ("alone", 10.0),
        ("block", 10.1),
        ("cost", 90.0),
        ("unknown", 0.01),
        ("lost", 0.0),
        ("damaged", 0.0),
        ("memory", 0.5),
        ("descriptors", -1.0),
        ("left", 0.0),
        ("own", 5.0),
        ("record", 40.0),
        ("page", 2.0),
        ("drawn", 3.0),
        ("unusual", 1.0),
    ];

    fn missed(name: &str, value: f64) -> Vec<String> {
        let mut series = Series::default();
        for (known, well) in WELL {
            series.push(known, if known == name { value } else { well });
        }
        let mut bench = Bench {
            settings: Settings::default(),
            report: super::super::Report::default(),
        };
        bench.tell("", &series, &rows(48.0));
        assert_eq!(bench.report.rows().len(), ROWS.len());
        let rows = bench.report.rows().iter();
        rows.filter(|row| row.met != Some(true))
            .map(|row| row.name.clone())
            .collect()
    }

    #[test]
    fn each_row_fails_by_itself_and_none_where_all_is_well() {
        assert_eq!(missed("dead", 0.0), <[String; 0]>::default());
        let unbounded = |hours| rows(hours).iter().filter(|row| row.bound.is_none()).count();
        let unbounded = [0.5, 1.0, 36.0, 48.0].map(unbounded);
        assert_eq!(unbounded, [2, 1, 1, 0]);
        let wrong = [
            ("dead", 1.0),
            ("block", 10.4),
            ("cost", 106.0),
            ("unknown", 0.2),
            ("lost", 1.0),
            ("damaged", 1.0),
            ("memory", 5.0),
            ("descriptors", 1.0),
            ("left", 1.0),
            ("own", 21.0),
            ("record", 257.0),
            ("page", 5.1),
            ("drawn", 5.1),
            ("unusual", 2.0),
        ];
        for ((name, value), row) in wrong.into_iter().zip(ROWS) {
            assert_eq!(missed(name, value), [row.name], "{name}");
        }
    }

    #[test]
    fn a_record_tells_what_is_missing_of_it() {
        use ckb_probe_report::{
            History, Interval,
            history::Run,
            record::{Header, ProbeInterval},
        };
        let interval = |at| Interval {
            at,
            milliseconds: 1000,
            cost: Some(500),
            floor: Some(250),
            contention: None,
            contention_unknown: std::collections::BTreeMap::new(),
            own_cpu: 20,
            renewed: 0,
            probes: vec![ProbeInterval {
                lost: [("calls".to_string(), 3), ("events".to_string(), 70)].into(),
                ..ProbeInterval::default()
            }],
        };
        let run = Run {
            header: Header {
                budget_millipercent: 1000,
                ..Header::default()
            },
            intervals: vec![interval(1000), interval(2000), interval(4000)],
            coarse: Vec::new(),
            end: None,
        };
        let history = History {
            runs: vec![run],
            ..History::default()
        };
        let found: BTreeMap<_, _> = told(&history).into_iter().collect();
        assert_eq!(
            found,
            [
                ("unknown", 25.0),
                ("lost", 3.0),
                ("damaged", 0.0),
                ("own", 1.5),
                ("unusual", 0.0),
                ("cost", 40.0)
            ]
            .into()
        );
    }
}
