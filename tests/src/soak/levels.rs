//! What agent and operator hold, second by second, seen from outside.

use std::{
    fs,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

use crate::{bpf::Held, cluster::Cluster, metrics::Metrics, process::Process};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// What a process holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Holds {
    /// Which it is: 0 while there is none.
    pub pid: i32,
    /// Open files.
    pub files: f64,
    /// Threads.
    pub threads: f64,
    /// Resident memory.
    pub megabytes: f64,
}

/// One look.
#[derive(Clone, Debug, Default)]
pub struct Level {
    /// Since the beginning.
    pub at: Duration,
    /// The agent.
    pub agent: Holds,
    /// The operator.
    pub operator: Holds,
    /// BPF programs, links and maps of the agent.
    pub programs: f64,
    /// How many BPF links there are.
    pub links: f64,
    /// How many BPF maps there are.
    pub maps: f64,
    /// Folders of cgroups under kubepods.
    pub cgroups: f64,
}

/// What a figure is called, how it is read of a level, by how much it may be more in the end, and its unit.
pub type Figure = (&'static str, fn(&Level) -> f64, f64, &'static str);

/// What is drawn of the levels, and by how much each may be more in the end than in the beginning. A connection more or less to the
/// API server is no leak.
pub const FIGURES: [Figure; 10] = [
    ("agent: open files", |level| level.agent.files, 3.0, ""),
    ("agent: threads", |level| level.agent.threads, 1.0, ""),
    ("agent: BPF programs", |level| level.programs, 0.0, ""),
    ("agent: BPF links", |level| level.links, 0.0, ""),
    ("agent: BPF maps", |level| level.maps, 0.0, ""),
    ("agent: RSS", |level| level.agent.megabytes, 4.0, "MB"),
    (
        "operator: open files",
        |level| level.operator.files,
        3.0,
        "",
    ),
    ("operator: threads", |level| level.operator.threads, 1.0, ""),
    ("operator: RSS", |level| level.operator.megabytes, 4.0, "MB"),
    ("cgroups of pods", |level| level.cgroups, 0.0, ""),
];

/// How often metrics were compared, and how often one was less than before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// How often was looked.
    pub of: u64,
    /// How often one was.
    pub backwards: u64,
}

#[derive(Debug, Default)]
struct Seen {
    levels: Vec<Level>,
    marks: Vec<(Duration, &'static str)>,
    looks: Looks,
}

/// All looks so far. They go on until it is stopped.
pub struct Levels {
    seen: Arc<Mutex<Seen>>,
    start: Instant,
    watch: JoinHandle<()>,
}

impl Levels {
    /// Looks from now on, `passed` after the beginning.
    pub fn watch(cluster: Cluster, passed: Duration) -> Self {
        let seen = Arc::<Mutex<Seen>>::default();
        let start = Instant::now()
            .checked_sub(passed)
            .unwrap_or_else(Instant::now);
        let own = seen.clone();
        let watch = tokio::spawn(async move {
            let mut before = (0, Metrics::default());
            let mut address = None;
            loop {
                let next = tokio::time::Instant::now() + LOOK;
                let level = look(start.elapsed());
                let agent = level.agent.pid;
                lock(&own).levels.push(level);
                if before.0 != agent {
                    before = (agent, Metrics::default());
                    address = None;
                }
                if agent != 0 && address.is_none() {
                    address = address_of(&cluster, agent).await;
                }
                if let Some(address) = &address
                    && let Ok(now) = Metrics::scrape(address).await
                {
                    let mut seen = lock(&own);
                    seen.looks.of += 1;
                    seen.looks.backwards += now.backwards(&before.1);
                    before.1 = now;
                }
                tokio::time::sleep_until(next).await;
            }
        });
        Self { seen, start, watch }
    }

    /// From now on this is what happens.
    pub fn mark(&self, what: &'static str) {
        let at = self.start.elapsed();
        lock(&self.seen).marks.push((at, what));
    }

    /// What happened when.
    pub fn marks(&self) -> Vec<(Duration, &'static str)> {
        lock(&self.seen).marks.clone()
    }

    /// Every level.
    pub fn all(&self) -> Vec<Level> {
        lock(&self.seen).levels.clone()
    }

    /// Those of the last while in which there were both, agent and operator.
    pub fn last(&self, while_: Duration) -> Vec<Level> {
        let from = self.start.elapsed().saturating_sub(while_);
        let seen = lock(&self.seen);
        let is_whole =
            |level: &&Level| level.at >= from && level.agent.pid != 0 && level.operator.pid != 0;
        seen.levels.iter().filter(is_whole).cloned().collect()
    }

    /// How metrics went.
    pub fn looks(&self) -> Looks {
        lock(&self.seen).looks
    }
}

impl Drop for Levels {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    // What is behind it is whole after every statement.
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where an agent is to be scraped; None as long as the API server does not tell.
async fn address_of(cluster: &Cluster, pid: i32) -> Option<String> {
    let found = tokio::time::timeout(LOOK, cluster.agent()).await;
    let agent = found.ok()?.ok()?;
    (agent.process.pid == pid).then_some(agent.address)
}

fn look(at: Duration) -> Level {
    let process = |name| Process::in_cgroup("kubepods", name).ok();
    let agent = process("node-agent");
    let held = agent.and_then(|agent| Held::by(agent).ok());
    let held = held.unwrap_or_default();
    Level {
        at,
        agent: agent.map(holds).unwrap_or_default(),
        operator: process("ckb-probe-operator").map(holds).unwrap_or_default(),
        programs: held.programs.len() as f64,
        links: held.links.len() as f64,
        maps: held.maps.len() as f64,
        cgroups: cgroups("/sys/fs/cgroup") as f64,
    }
}

fn holds(process: Process) -> Holds {
    let entries = |folder: &str| {
        let entries = fs::read_dir(format!("/proc/{}/{folder}", process.pid));
        entries.map_or(0, Iterator::count) as f64
    };
    let memory = process.memory().map_or(0, |memory| memory.resident);
    Holds {
        pid: process.pid,
        files: entries("fd"),
        threads: entries("task"),
        megabytes: memory as f64 / 1e6,
    }
}

/// The pods' folders in the first hierarchy that has any.
fn cgroups(root: &str) -> usize {
    let folders = |path: &str| -> Vec<String> {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        folders
            .map(|entry| entry.path().display().to_string())
            .collect()
    };
    let tops = folders(root)
        .into_iter()
        .map(|hierarchy| format!("{hierarchy}/kubepods"))
        .chain([format!("{root}/kubepods")]);
    tops.map(|top| {
        let classes = folders(&top);
        classes.iter().map(|class| folders(class).len()).sum()
    })
    .find(|count| *count > 0)
    .unwrap_or_default()
}
