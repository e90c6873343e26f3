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
    pub files: usize,
    /// Threads.
    pub threads: usize,
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
    pub programs: usize,
    /// How many BPF links there are.
    pub links: usize,
    /// How many BPF maps there are.
    pub maps: usize,
    /// Folders of cgroups under kubepods.
    pub cgroups: usize,
}

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
                    seen.looks.backwards += backwards(&before.1, &now);
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
        programs: held.programs.len(),
        links: held.links.len(),
        maps: held.maps.len(),
        cgroups: cgroups("/sys/fs/cgroup"),
    }
}

fn holds(process: Process) -> Holds {
    let entries = |folder: &str| {
        fs::read_dir(format!("/proc/{}/{folder}", process.pid)).map_or(0, Iterator::count)
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

/// How many counters are less than they were.
fn backwards(before: &Metrics, now: &Metrics) -> u64 {
    let is_counter = |name: &str| name.ends_with("_total") || name.ends_with("_count");
    let less = now
        .samples
        .iter()
        .filter(|one| is_counter(&one.name))
        .filter(|one| {
            let mut before = before.samples.iter();
            let before = before.find(|other| other.name == one.name && other.labels == one.labels);
            before.is_some_and(|before| before.value > one.value)
        });
    less.count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_less_than_before_went_backwards_and_a_gauge_did_not() {
        let scrape = |calls: u32, share: u32, pod: &str| {
            let text =
                format!("calls_total{{pod=\"{pod}\"}} {calls}\nshare{{pod=\"{pod}\"}} {share}\n");
            Metrics::parse(text).unwrap()
        };
        let before = scrape(7, 3, "a");
        assert_eq!(backwards(&before, &scrape(8, 2, "a")), 0);
        assert_eq!(backwards(&before, &scrape(6, 4, "a")), 1);
        // Another target's counter begins anew.
        assert_eq!(backwards(&before, &scrape(1, 1, "b")), 0);
    }
}
