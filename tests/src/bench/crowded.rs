//! A namespace that asks for all there is, sixteen CkbProbes of eight probes each, of a process that makes as much of it as it can: 30,000
//! threads, each 500 calls deep. What that takes of the agent, which has the memory that the chart gives it, and what becomes of a neighbour.

use ckb_probe_crds::{Assignment, InstanceReport, ProbeReport, Reason};
use serde_json::{Value, json};

use super::prelude::*;
use crate::fixture::{GroundTruth, Truth};

/// As the chart has it.
const LIMIT: u64 = 128 << 20;

const CKB_PROBES: u64 = 16;
const PROBES: u64 = 8;

/// How many threads such a process has where there are numbers for so many, and how deep each is in calls: with those around them nearly
/// the 512 frames that a stack is unwound by.
const THREADS: u64 = 30_000;
const DEPTH: &str = "500";

/// One of which all is asked, and one of which stacks are.
const PROCESSES: u64 = 2;

/// Numbers of processes that are left to others.
const OTHERS: u64 = 4_000;

/// Until everything is answered: such a process takes its time to start and to be looked at.
const PATIENCE: Duration = Duration::from_secs(240);

/// What the neighbour does meanwhile: calls, a thousand a second. Two windows of each profile.
const PLAN: &str = "rocksdb_put_cf 25000 constant:2000";
const RATE: &str = "1000";

/// A look at all threads meets more than so many, and those that are looked at by turns as many.
const THREADS_SEEN: u64 = 1_000;

/// And for so many of them, of all modes together, there is memory that is taken in advance.
const WHOLE: u64 = 100;

const REPORT: Duration = Duration::from_secs(1);
const REPORTED: Duration = Duration::from_secs(30);

const ROWS: [Row; 10] = table! {
    "threads of the process" = "threads" in "";
    "stacks of it that were sampled" = "samples" in "", AtLeast(THREADS_SEEN as f64);
    // The others are counted by thread: there is no memory for more.
    "of these, told whole, 500 calls each" = "complete" in "", AtLeast(WHOLE as f64);
    "probes of the namespace that are answered" = "answered" in "", Exactly((CKB_PROBES * PROBES) as f64);
    "of these, measured" = "measured" in "";
    "RSS of the agent at its highest" = "rss" in "MB", AtMost(LIMIT as f64 / 1e6);
    "the kernel's account of the agent, with its maps, at its highest" = "account" in "MB", AtMost(LIMIT as f64 / 1e6);
    "times that the agent died" = "deaths" in "", Exactly(0.0);
    "calls of the neighbour" = "calls" in "";
    "calls of the neighbour that were not counted, or twice" = "astray" in "", Exactly(0.0);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let found = measure(bench).await?;
    let mut series = Series::default();
    series.extend("", found);
    bench.tell("crowded: ", &series, &ROWS);
    Ok(())
}

async fn measure(bench: &Bench) -> Result<Found> {
    let numbers = Numbers::raise()?;
    let threads = THREADS.min(numbers.most.saturating_sub(OTHERS) / PROCESSES);
    let deep = fixtures().join("deep");
    let hostile = Container::run_with(41, &deep, &[&threads.to_string(), DEPTH], None);
    let sampled = Container::run_with(43, &deep, &[&threads.to_string(), DEPTH], None);
    let mut target = GroundTruth::start("ground-truth", &["--rate", RATE], &[PLAN])
        .map_err(Failure::system("ground-truth"))?;
    let container = Container::new(42);
    container.adopt(target.pid() as i32);

    let account = MemoryAccount::new()?;
    let agent = Agent::start_within(&bench.settings, LIMIT).await?;
    account.adopt(agent.process.pid)?;
    let storage = json!([{ "name": "storage", "rocksdb": { "operations": ["Put"] } }]);
    let neighbour = order(
        "neighbour",
        "neighbour",
        &container.id,
        "ground-truth",
        storage,
    )?;
    agent.order(vec![neighbour.clone()]).await?;
    agent.every(InstanceState::Attached, REPORTED).await?;
    // Stacks of all modes of such a process, before there is no memory for any. It is another one: what is asked of one process is begun
    // together, and who comes later there may have what there is.
    let first = deep_order(&sampled)?;
    agent.order(vec![neighbour.clone(), first.clone()]).await?;
    agent.every(InstanceState::Attached, PATIENCE).await?;
    wait::until("stacks of a window", PATIENCE, async || {
        let sampled = stacks(&agent.instances(), "samples");
        expect(sampled >= THREADS_SEEN, "stacks", || sampled)
    })
    .await?;
    let all = (0..CKB_PROBES).map(|number| hostile_order(number, &hostile));
    let all = [Ok(neighbour), Ok(first)].into_iter().chain(all);
    agent.order(all.collect::<Result<_>>()?).await?;

    let mut rss: f64 = 0.0;
    let begun = Instant::now();
    let mut look = || {
        if let Ok(now) = agent.rss_mb() {
            rss = rss.max(now);
        }
    };
    while begun.elapsed() < PATIENCE && answered(&agent.instances()).count() < all_probes() {
        look();
        sleep(Duration::from_millis(100)).await;
    }
    let calls = tokio::task::spawn_blocking(move || target.go());
    while !calls.is_finished() {
        look();
        sleep(Duration::from_millis(100)).await;
    }
    let truth: Truth = match calls.await {
        Ok(truth) => truth.map_err(Failure::system("ground-truth"))?,
        Err(error) => return Err(Failure::format("ground-truth")(error)),
    };
    // The last report has what it did last.
    sleep(3 * REPORT).await;
    let instances = agent.instances();
    let counted = counted(&instances);
    let states = states(&instances);
    println!("{threads} threads: {states:#?}");
    for probe in first_of(&instances).flat_map(|one| &one.probes) {
        println!(
            "stacks: {:?} {} lost {:?}",
            probe.state, probe.message, probe.lost
        );
    }
    let [samples, complete] = ["samples", "complete"].map(|name| stacks(&instances, name));
    let found = vec![
        ("threads", threads as f64),
        ("samples", samples as f64),
        ("complete", complete as f64),
        ("answered", answered(&instances).count() as f64),
        ("measured", measured(&instances).count() as f64),
        ("rss", rss),
        ("account", account.most_mb()?),
        ("deaths", f64::from(u8::from(!agent.process.is_alive()))),
        ("calls", truth.calls() as f64),
        ("astray", truth.calls().abs_diff(counted) as f64),
    ];
    agent.stop().await?;
    Ok(found)
}

/// Eight probes, none of which is the same as another CkbProbe's.
fn hostile_order(number: u64, of: &Container) -> Result<Assignment> {
    let threshold = format!("{}us", 1 + number);
    let window = |more: u64| format!("{}ms", 10_000 + 100 * number + more);
    let probes = json!([
        { "name": "tcp", "tcp": {} },
        { "name": "processes", "processes": { "events": "All" } },
        { "name": "syscalls", "syscalls": { "slowThreshold": threshold } },
        { "name": "block-io", "blockIo": { "slowThreshold": threshold } },
        { "name": "functions", "functions": { "match": "*ght", "threshold": threshold } },
        { "name": "waiting", "profile": { "modes": ["OffCpu", "Threads"], "window": window(1) } },
        { "name": "all", "profile": { "modes": ["Cpu", "OffCpu", "Memory", "Threads"], "window": window(2) } },
        { "name": "threads", "profile": { "modes": ["Threads"], "window": window(3), "every": "15s" } },
    ]);
    order(
        "hostile",
        &format!("hostile-{number}"),
        &of.id,
        &of.executable,
        probes,
    )
}

/// The CkbProbe that asks first, for stacks of all modes without a pause, and its pod.
const FIRST: &str = "hostile-first";

fn deep_order(of: &Container) -> Result<Assignment> {
    let modes = ["Cpu", "OffCpu", "Memory", "Threads"];
    let stacks = json!({ "modes": modes, "window": "10s", "every": "10s" });
    let probes = json!([{ "name": "stacks", "profile": stacks }]);
    let mut order = order("hostile", FIRST, &of.id, &of.executable, probes)?;
    FIRST.clone_into(&mut order.pod.name);
    FIRST.clone_into(&mut order.pod.uid);
    Ok(order)
}

fn first_of(instances: &[InstanceReport]) -> impl Iterator<Item = &InstanceReport> {
    instances.iter().filter(|one| one.pod.name == FIRST)
}

/// Stacks that were sampled for who asked first.
fn stacks(instances: &[InstanceReport], measure: &str) -> u64 {
    let rows = first_of(instances)
        .flat_map(|one| &one.probes)
        .flat_map(|probe| &probe.rows);
    rows.filter_map(|row| row.total.count(measure)).sum()
}

fn order(
    namespace: &str,
    name: &str,
    container: &str,
    executable: &str,
    probes: Value,
) -> Result<Assignment> {
    let order = json!({
        "probe": { "namespace": namespace, "name": name, "uid": name },
        "pod": { "namespace": namespace, "name": namespace, "uid": namespace },
        "containers": [{ "name": "ckb", "id": container }],
        "executable": executable,
        "reportInterval": "1s",
        "overhead": { "maxPercent": 50.0, "onBreach": "Report" },
        "probes": probes,
    });
    serde_json::from_value(order).map_err(Failure::format("an order"))
}

const fn all_probes() -> usize {
    (CKB_PROBES * PROBES) as usize
}

fn of_hostile(instances: &[InstanceReport]) -> impl Iterator<Item = &ProbeReport> {
    let hostile = instances.iter().filter(|one| one.pod.name == "hostile");
    hostile.flat_map(|one| &one.probes)
}

fn measured(instances: &[InstanceReport]) -> impl Iterator<Item = &ProbeReport> {
    of_hostile(instances).filter(|probe| probe.state == InstanceState::Attached)
}

/// Those that are measured, and those of which it is said why they are not.
fn answered(instances: &[InstanceReport]) -> impl Iterator<Item = &ProbeReport> {
    of_hostile(instances).filter(|probe| {
        probe.state == InstanceState::Attached
            || matches!(
                probe.reason,
                Some(Reason::MemoryLimit | Reason::AttachFailed | Reason::SingleStepped)
            )
    })
}

/// How many probes are how, for who wants to know why.
fn states(instances: &[InstanceReport]) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    for probe in of_hostile(instances) {
        let why: String = probe.message.chars().take(100).collect();
        let state = format!("{:?}, {:?}, {why}", probe.state, probe.reason);
        *states.entry(state).or_default() += 1;
    }
    states
}

/// Calls that were counted of the neighbour.
fn counted(instances: &[InstanceReport]) -> u64 {
    let neighbour = instances.iter().filter(|one| one.pod.name == "neighbour");
    let probes = neighbour.flat_map(|one| &one.probes);
    let rows = probes.flat_map(|probe| &probe.rows);
    rows.map(|row| rows::calls(&row.total)).sum()
}

/// The kernel's account of a process and of the maps that it makes from then on, with the same limit as the chart's: beyond it the kernel
/// kills.
struct MemoryAccount {
    folder: PathBuf,
    most: &'static str,
}

impl MemoryAccount {
    fn new() -> Result<Self> {
        let name = format!("ckb-probe-crowded-{}", std::process::id());
        let (root, limit, most) = match Path::new("/sys/fs/cgroup/memory").is_dir() {
            true => (
                "/sys/fs/cgroup/memory",
                "memory.limit_in_bytes",
                "memory.max_usage_in_bytes",
            ),
            false => ("/sys/fs/cgroup", "memory.max", "memory.peak"),
        };
        let folder = Path::new(root).join(name);
        fs::create_dir(&folder).map_err(Failure::at(&folder))?;
        let account = Self { folder, most };
        account.write(limit, &LIMIT.to_string())?;
        Ok(account)
    }

    fn adopt(&self, pid: i32) -> Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    fn write(&self, name: &str, value: &str) -> Result<()> {
        let file = self.folder.join(name);
        fs::write(&file, value).map_err(Failure::at(&file))
    }

    fn most_mb(&self) -> Result<f64> {
        let text = read(self.folder.join(self.most))?;
        let bytes: f64 = text.trim().parse().map_err(Failure::format(self.most))?;
        Ok(bytes / 1e6)
    }
}

impl Drop for MemoryAccount {
    fn drop(&mut self) {
        // The agent has ended, or is ending: the kernel keeps it until then.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// How many processes and threads there may be on this machine: raised for a while.
struct Numbers {
    before: u64,
    most: u64,
}

const MOST_NUMBERS: &str = "/proc/sys/kernel/pid_max";

impl Numbers {
    fn raise() -> Result<Self> {
        let text = read(Path::new(MOST_NUMBERS))?;
        let before = text.trim().parse().map_err(Failure::format(MOST_NUMBERS))?;
        let wanted = PROCESSES * THREADS + OTHERS;
        // Where that is not to be changed there are fewer threads, and the figure says how many.
        let raised = before < wanted && fs::write(MOST_NUMBERS, (2 * wanted).to_string()).is_ok();
        let most = if raised { 2 * wanted } else { before };
        Ok(Self { before, most })
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        if self.most != self.before {
            let _ = fs::write(MOST_NUMBERS, self.before.to_string());
        }
    }
}
