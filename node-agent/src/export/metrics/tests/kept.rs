//! What a report tells of pages that a Prometheus kept: the pages are those of this module, and what is in them is known.

use ckb_probe_crds::{Passed, ProbeReference, SliceShape};
use ckb_probe_report::{
    content::content_of_prometheus,
    markdown,
    prometheus::{
        Facts, Kept,
        answer::read as answer,
        kept::Answers,
        question::{self, Grid, Query, Subject},
    },
    record,
};
use ckb_probe_testkit::prometheus::Prometheus;

use super::*;
use crate::{
    mechanism::{Accepted, GroupIds, Subscription},
    state::{
        Fact, TimedFact,
        fixtures::{calls_of, peer, peers},
    },
};

/// Agents are scraped so often, and report as often, in seconds.
const EACH: u64 = 30;

/// When the first scrape was: some hours of a day that is over.
const BEGAN: u64 = 1_790_000_000;

const SCRAPES: u64 = 10;

/// At this scrape others have so many rows that this target's are left out.
const LEFT_OUT: u64 = 4;

/// Before this one the agent was replaced.
const REPLACED: u64 = 6;

/// Between these two scrapes the target's process is found anew.
const RESTARTED: u64 = 2;

/// For so long there was no probe then.
const GAP: Duration = Duration::from_millis(1_500);

/// Commits are seen in a quarter of the time: in slices of cells.
const CELL: Duration = Duration::from_secs(10);
const OPEN: Duration = Duration::from_millis(2_500);

/// How long calls take, in nanoseconds.
const QUICK: u64 = 1_000;
const SLOW: u64 = 2_000_000;

/// What measuring costs, as a part of the target's CPU time.
const COST: f64 = 0.004;

/// An agent, and a target of its that does a known thing between scrapes.
struct Agent {
    instance: Instance,
    /// Since it began.
    now: Duration,
    /// What its mechanism counted since the process began: quick calls of Get, slow ones, commits that slices saw, and lost events.
    counted: [u64; 4],
}

impl Agent {
    fn new() -> Self {
        // The same is asked, and nothing is counted yet.
        let Instance { key, probes, .. } = super::instance();
        let key = InstanceKey {
            probe: ProbeReference {
                name: "ckb".into(),
                ..key.probe
            },
            ..key
        };
        let probes = probes.into_iter().map(|state| state.probe).collect();
        let mut agent = Self {
            instance: Instance::new(key, probes, terms(), Duration::ZERO),
            now: Duration::ZERO,
            counted: [0; 4],
        };
        agent.attach(PROCESS);
        agent
    }

    /// To a process, of which it counts from zero; commits in slices.
    fn attach(&mut self, process: ProcessId) {
        let accepted = opened(&self.instance.probes[0].probe, 0);
        self.instance
            .answered(process, 0, vec![Ok(accepted)], self.now);
        self.counted = [0; 4];
        self.read();
        self.tell(Fact::Paused(sliced()));
    }

    /// The process ends, and there is another one a moment later.
    fn restart(&mut self) {
        self.instance.process_gone(self.now);
        self.now += GAP;
        self.attach(ProcessId {
            start_ticks: 2,
            ..PROCESS
        });
    }

    fn tell(&mut self, fact: Fact) {
        self.instance.take(&TimedFact {
            at: self.now,
            time: self.now,
            fact,
        });
    }

    fn read(&mut self) {
        let [quick, slow, commits, events] = self.counted;
        let gets = whole(calls_of(quick, QUICK));
        let mut counted = reading([(0, gets), (1, whole(calls_of(commits, QUICK)))]);
        let cells = SlotReading {
            slow,
            ..calls_of(slow, SLOW)
        };
        let cells = RowReading {
            part: Some(RowId {
                number: 11,
                ..raw(0, "10")
            }),
            ..whole(cells)
        };
        counted.groups.entry(GroupId(0)).or_default().push(cells);
        counted.lost = vec![lost([0, 1], 0, events)];
        self.tell(Fact::Read(counted));
    }

    /// All that happens before this scrape.
    fn go_on(&mut self, scrape: u64) {
        let (quick, slow, commits) = done(scrape);
        self.counted[0] += quick;
        self.counted[1] += slow;
        self.counted[3] += 1;
        for commits in commits {
            self.tell(Fact::CellBegan {
                groups: sliced(),
                slice: SliceShape {
                    open: OPEN.as_secs_f64(),
                    cell: CELL.as_secs_f64(),
                    long: false,
                },
                time: self.now,
            });
            self.tell(Fact::SliceBegan {
                groups: sliced(),
                time: self.now,
                before: Passed::default(),
            });
            self.counted[2] += commits;
            self.now += OPEN;
            self.read();
            self.tell(Fact::SliceEnded {
                groups: sliced(),
                time: self.now,
                probing: 0.0,
            });
            self.now += CELL - OPEN;
            self.tell(Fact::CellEnded {
                groups: sliced(),
                time: self.now,
            });
        }
        self.instance.close_interval(self.now, Some(COST));
    }

    /// The page that is scraped, with those of these neighbours on it.
    fn page(&self, neighbours: &[Instance]) -> String {
        let instances = neighbours.iter().chain([&self.instance]);
        let families = families(Some(MEANS), self.now, instances, &Exemplars::default());
        page(&families, Format::OpenMetrics).unwrap()
    }

    /// What it has of commits, which nobody knows exactly: it saw a quarter of them.
    fn commits(&self) -> Commits {
        let series = &self.instance.probes[0].series[1];
        let all = &series.rows["TxnCommit"].all;
        Commits {
            count: all.total.count("duration").unwrap(),
            samples: all.samples,
            share: series.share().unwrap(),
            error: relative_error(all.window(), "duration"),
        }
    }
}

/// What an agent has of commits: in all, and how that of the last interval came about.
#[derive(Clone, Copy, Debug)]
struct Commits {
    count: u64,
    samples: u64,
    share: f64,
    error: Option<f64>,
}

/// What happens before a scrape: quick calls of Get, slow ones, and commits that each slice sees.
fn done(scrape: u64) -> (u64, u64, [u64; 3]) {
    (100 + scrape, 1 + scrape % 3, [40, 41 + scrape, 43])
}

fn terms() -> Terms {
    Terms {
        interval: Duration::from_secs(EACH),
        overhead: Overhead::default(),
        early_death: EARLY_DEATH,
        profile_window: slow_calls::WINDOW,
    }
}

/// Groups that are not measured all of the time: those of commits.
fn sliced() -> GroupIds {
    GroupIds::from([GroupId(1)])
}

/// Others with as few rows as there are in all, so that there is room for nobody else.
fn neighbours(rows: usize) -> Vec<Instance> {
    let probe = peers("sockets");
    let accepted = || Accepted {
        subscriptions: vec![Subscription::default()],
        ..Accepted::default()
    };
    let neighbour = |number: usize| {
        let mut instance = without_probes();
        instance.key.pod.namespace = "others".into();
        instance.key.pod.name = format!("other-{number}");
        instance.reconfigure(vec![probe.clone()], terms());
        instance.answered(PROCESS, 0, vec![Ok(accepted())], Duration::ZERO);
        let sockets =
            (0..rows as u64).map(|place| peer(raw(place, &format!("{place}")), None, 7, 1));
        let mut counted = Reading::default();
        counted.groups.insert(GroupId(0), sockets.collect());
        instance.take(&read(counted, Duration::ZERO));
        instance
    };
    (0..MOST_ROWS / rows).map(neighbour).collect()
}

/// The samples of a page as a Prometheus has them that scraped it then: with labels of who was scraped, and their time.
fn scraped(page: &str, time: u64) -> String {
    let mut samples = String::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let end = if labels == "}" { "" } else { "," };
        samples += &format!(
            "{name}{{instance=\"10.0.0.1:9464\",job=\"agents\"{end}{labels} {value} {time}\n"
        );
    }
    samples
}

/// All that a report asks a Prometheus, whose answers become what it is made of.
fn kept(prometheus: &Prometheus) -> Kept {
    let subject = Subject {
        namespace: "ckb".to_owned(),
        ckbprobe: "ckb".to_owned(),
        ..Subject::default()
    };
    // A scrape is between two of the times that are asked for.
    let from = BEGAN + 8;
    let grid = Grid {
        from,
        to: from + (SCRAPES - 1) * EACH,
        step: 15,
    };
    let mut answers = Answers::new(subject.clone(), grid);
    let ask = |queries: Vec<Query>, answers: &mut Answers| {
        for query in queries {
            let said = prometheus.range(&query.text, (grid.from, grid.to), grid.step);
            let (series, warnings) = answer(said.as_bytes()).unwrap();
            assert_eq!(warnings, [""; 0], "{}", query.text);
            answers.add(query.what, &series);
        }
    };
    let mut of_targets = vec![question::scraped(&subject)];
    of_targets.extend(question::of_targets(&subject, grid));
    ask(of_targets, &mut answers);
    ask(question::of_kinds(&subject, &answers.kinds()), &mut answers);
    answers.kept()
}

/// A row in each interval.
fn each<'a>(kept: &'a Kept, row: &str) -> Vec<Option<&'a record::Row>> {
    let intervals = kept.targets[0].history.intervals();
    intervals
        .map(|interval| {
            let mut rows = interval.probes[0].rows.iter();
            rows.find(|one| one.key == row)
        })
        .collect()
}

fn counts(rows: &[Option<&record::Row>]) -> Vec<u64> {
    let counts = rows
        .iter()
        .map(|row| row.as_ref()?.window.figures.count("duration"));
    counts.map(Option::unwrap_or_default).collect()
}

/// What is added between scrapes, of what an agent has in all at each: nothing while it is left out, all of it then; and of an agent that
/// took another's place what it has.
fn added(all: &[u64]) -> Vec<u64> {
    let mut last = all[0];
    let added = (1..).zip(&all[1..]).map(|(scrape, all)| {
        let before = match scrape {
            LEFT_OUT => return 0,
            REPLACED => 0,
            _ => last,
        };
        last = *all;
        all - before
    });
    added.collect()
}

/// The cells of the first row of a table that begins with this.
fn cells<'a>(text: &'a str, first: &str) -> Vec<&'a str> {
    let begins = format!("| {first} |");
    let row = text.lines().find(|line| line.starts_with(&begins));
    let row = row.unwrap_or_else(|| panic!("no row {first} in\n{text}"));
    row.trim_matches('|').split(" | ").map(str::trim).collect()
}

#[test]
fn a_report_of_what_prometheus_kept_of_these_pages_tells_what_was_in_them() {
    let mut history = String::new();
    let (mut gets, mut commits) = (Vec::new(), Vec::new());
    let mut agent = Agent::new();
    for scrape in 0..SCRAPES {
        match scrape {
            RESTARTED => agent.restart(),
            REPLACED => agent = Agent::new(),
            _ => {}
        }
        agent.go_on(scrape);
        let rows = that_fit(&[&agent.instance], 0).1[0].1;
        let neighbours = match scrape {
            LEFT_OUT => neighbours(rows),
            _ => Vec::new(),
        };
        let page = agent.page(&neighbours);
        let left_out = format!("pod=\"ckb-0\",container=\"ckb\",ckbprobe=\"ckb\"}} {rows}.0");
        assert_eq!(page.contains(&left_out), scrape == LEFT_OUT, "{scrape}");
        history += &scraped(&page, BEGAN + scrape * EACH);
        let get = &agent.instance.probes[0].series[0].rows["Get"].all;
        gets.push(get.total.count("duration").unwrap());
        commits.push(agent.commits());
    }
    let kept = kept(&Prometheus::of_history(&(history + "# EOF\n")));
    let [target] = &kept.targets[..] else {
        panic!("{kept:?}");
    };
    // What was before the first scrape nobody knows.
    let (quick, slow) = (1..SCRAPES).fold((0, 0), |(quick, slow), scrape| {
        let (more_quick, more_slow, _) = done(scrape);
        (quick + more_quick, slow + more_slow)
    });

    let expected = Facts {
        samples: SCRAPES as usize,
        attached: Some(1.0),
        firing: Some(1.0),
        lost: [("calls".to_owned(), 0), ("events".to_owned(), SCRAPES - 1)].into(),
        reattaches: 1,
        without_probe: GAP.as_millis() as u64,
        resets: 1,
        entry_only: false,
        rows_left_out: true,
        without_histogram: vec![],
    };
    assert_eq!(target.facts, expected);
    assert_eq!(target.history.gaps.len(), 0);
    let granted = (Overhead::default().max_percent * 1_000.0).round() as u64;
    for interval in target.history.intervals() {
        let told = (interval.milliseconds, interval.cost, interval.floor);
        assert_eq!(told, (EACH * 1_000, Some(400), Some(granted)));
    }

    // Each call, between any two scrapes and in all; by parts, by durations, and what else there is of it.
    assert_eq!(counts(&each(&kept, "Get")), added(&gets));
    let columns = target.history.merged(u64::MAX);
    let of = target.history.probes(&columns).remove(0);
    let figures = |row: &str, part: Option<&str>| {
        let mut all = of.series.iter();
        let found = all.find(|one| one.row == row && one.part.as_deref() == part);
        &found.unwrap().window.figures
    };
    let get = figures("Get", None);
    let distribution = &get.distributions["duration"];
    assert_eq!(distribution.sum, quick * QUICK + slow * SLOW);
    let below = [512, 1 << 10, 1 << 20, 1 << 21].map(|end| distribution.histogram.count_below(end));
    assert_eq!(below, [0, quick, quick, quick + slow]);
    assert_eq!(
        (get.sums["bytes"], get.sums["slow"]),
        (10 * (quick + slow), slow)
    );
    for (part, count) in [("CELL", slow), ("other", quick)] {
        assert_eq!(
            figures("Get", Some(part)).count("duration"),
            Some(count),
            "{part}"
        );
    }

    // What is sampled: what it stands for, of how many that were seen, in which part of the time, and how far off it may be.
    let rows = each(&kept, "TxnCommit");
    let all: Vec<u64> = commits.iter().map(|one| one.count).collect();
    assert_eq!(counts(&rows), added(&all));
    let seen: Vec<u64> = commits.iter().map(|one| one.samples).collect();
    let samples = rows
        .iter()
        .map(|row| row.map_or(0, |row| row.window.samples));
    assert_eq!(samples.collect::<Vec<_>>(), added(&seen));
    let mut sampled = 0;
    for ((scrape, row), commits) in (1..).zip(&rows).zip(&commits[1..]) {
        if scrape == LEFT_OUT {
            continue;
        }
        let window = &row.unwrap().window;
        let recorded = (commits.share * (EACH * 1_000) as f64).round() as u64;
        assert_eq!(window.recorded_milliseconds, recorded, "{scrape}");
        if let Some(error) = commits.error {
            let count = window.figures.count("duration").unwrap() as f64;
            let told = window.figures.variances["duration"];
            assert_eq!(told, Variance::new((error * count).powi(2)), "{scrape}");
            sampled += u64::from(error > 0.0 && commits.share == 0.25);
        }
    }
    assert!(sampled >= 4, "{commits:?}");

    // And it is what a person reads.
    let text = markdown::text(&content_of_prometheus("http://x", &kept, None));
    let (gets, commits) = (cells(&text, "Get"), cells(&text, "TxnCommit"));
    let count = added(&all).iter().sum::<u64>();
    assert!(
        gets.contains(&(quick + slow).to_string().as_str()),
        "{gets:?}"
    );
    assert!(
        commits
            .iter()
            .any(|cell| cell.starts_with(&count.to_string())),
        "{commits:?}"
    );
    assert!(text.contains("events"), "{text}");
}
