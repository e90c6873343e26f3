//! What a process pays that nobody asks about, while functions of the kernel that it calls all the time are probed for another, and what is asked
//! changes five times a second.
//!
//! On a machine whose time passes with its instructions, which `scripts/test-kernels.sh` emulates: elsewhere other work decides what it takes to
//! pass a byte. It has one processor, since several would share that time, and it is the bystander's own CPU time that is measured.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ckb_probe_agent::{
    driver::engine::Engine,
    mechanism::{NodePolicy, Refusal, kernel_functions::ADMITTED},
};
use ckb_probe_crds::{
    Assignment, Breach, Overhead, PodReference, Probe, ProbeReference, Reason,
    kinds::kernel_functions::KernelFunctionsProbe,
};
use ckb_probe_testkit::{container::Container, fixtures};
use tokio::{
    runtime::Builder,
    time::{sleep_until, timeout_at},
};

use crate::kernel_tiers::{attach, kernel_tiers};

/// How long each round lasts.
const ROUND: Duration = Duration::from_secs(60);

/// And each between them.
const FREE: Duration = Duration::from_secs(8);

/// Between two changes of what is asked.
const BETWEEN: Duration = Duration::from_millis(200);

/// What is attached at the end of a round goes in so long, which is the round's.
const DETACHING: Duration = Duration::from_secs(2);

/// So many of these make a second.
const A_SECOND: u32 = 5;

/// How much more CPU time a bystander may take.
const MOST: f64 = 1.02;

/// The chart's `agent.maxNodePercent`, of two processors: a bystander that calls what is probed all of the time pays for all of it.
const NODE: f64 = 0.02;

/// All of them are a part of what passes a byte through a pipe, or are not called at all.
const PATTERNS: [&str; 2] = ["vfs_[rw]*", "__x64_sys_[rw]*"];

/// What becomes of what is asked.
#[derive(Clone, Copy, Debug)]
enum Round {
    /// Nothing is asked.
    Free,
    /// It stays.
    Stays,
    /// The threshold changes.
    Edited,
    /// The CkbProbe is deleted, and made anew.
    MadeAnew,
}

impl Round {
    fn assignments(self, change: u32, target: &Container) -> Vec<Assignment> {
        match self {
            Self::Free => Vec::new(),
            Self::Stays => vec![order(0, target)],
            Self::Edited => vec![order(change, target)],
            Self::MadeAnew if change.is_multiple_of(2) => Vec::new(),
            Self::MadeAnew => vec![order(0, target)],
        }
    }
}

fn order(change: u32, target: &Container) -> Assignment {
    let probes = PATTERNS.iter().enumerate().map(|(place, pattern)| {
        let kind = KernelFunctionsProbe {
            r#match: pattern.to_string(),
            limit: 50,
            threshold: Some(Duration::from_millis(u64::from(100 + change)).into()),
        };
        Probe::new(&format!("probe-{place}"), kind.into())
    });
    Assignment {
        probe: ProbeReference {
            namespace: "tests".to_string(),
            name: "bystander".to_string(),
            uid: "bystander".to_string(),
        },
        pod: PodReference {
            namespace: "tests".to_string(),
            name: target.id.clone(),
            uid: format!("uid-{}", target.id),
        },
        containers: vec![ckb_probe_crds::Container {
            name: "target".to_string(),
            id: Some(target.id.clone()),
        }],
        executable: target.executable.clone(),
        report_interval: Duration::from_secs(1).into(),
        // More than what others may pay: that is what binds.
        overhead: Overhead {
            max_percent: 50.0,
            on_breach: Breach::Sample,
            ..Overhead::default()
        },
        probes: probes.collect(),
        traces: None,
        asks: String::new(),
        expires_at: None,
    }
}

/// A process that passes a byte to itself.
struct Pipe {
    container: Container,
    file: PathBuf,
}

impl Pipe {
    fn start(number: u32, folder: &Path) -> Self {
        let file = folder.join(number.to_string());
        let program = fixtures().join("pipe");
        let arguments = [file.to_str().unwrap()];
        Self {
            container: Container::run_with(number, &program, &arguments, None),
            file,
        }
    }

    /// Its CPU time, and how often the byte came back.
    fn spent(&self) -> (Duration, u64) {
        let times = fs::read(&self.file).unwrap();
        let times = u64::from_ne_bytes(times.try_into().unwrap());
        (self.container.cpu_time(), times)
    }
}

/// Nanoseconds of CPU time for each pass since then.
fn each(pipe: &Pipe, (cpu, times): (Duration, u64)) -> f64 {
    let (cpu_now, times_now) = pipe.spent();
    (cpu_now - cpu).as_nanos() as f64 / (times_now - times) as f64
}

async fn go_on(engine: &mut Engine, end: Instant) {
    loop {
        let (scan, window, step) = (engine.next_scan(), engine.next_window(), engine.next_step());
        let until = |time: Option<Instant>| sleep_until(time.unwrap_or(end).min(end).into());
        let turn = async {
            tokio::select! {
                () = engine.process_ended() => 0,
                () = engine.news() => 1,
                () = until(step) => 2,
                () = until(Some(scan)) => 3,
                () = until(window) => 4,
            }
        };
        let Ok(due) = timeout_at(end.into(), turn).await else {
            return;
        };
        match due {
            0 | 3 => drop(engine.reconcile()),
            1 => drop(engine.receive()),
            2 => drop(engine.step()),
            _ => drop(engine.close_windows()),
        }
        if Instant::now() >= end {
            return;
        }
    }
}

/// What a pass takes, second by second, in such a round.
async fn play(engine: &mut Engine, round: Round, target: &Pipe, bystander: &Pipe) -> Vec<f64> {
    let (began, mut seen) = (Instant::now(), bystander.spent());
    let lasts = match round {
        Round::Free => FREE,
        _ => ROUND,
    };
    let (mut change, mut told, mut seconds) = (0, BTreeSet::new(), Vec::new());
    while began.elapsed() < lasts + DETACHING {
        change += 1;
        let asks = match began.elapsed() < lasts {
            true => round,
            false => Round::Free,
        };
        engine.assign(asks.assignments(change, &target.container));
        go_on(engine, began + BETWEEN * change).await;
        let reports = engine.reports().into_iter();
        told.extend(reports.map(|report| format!("{:?}: {}", report.state, report.message)));
        if change.is_multiple_of(A_SECOND) {
            seconds.push(each(bystander, seen));
            seen = bystander.spent();
        }
    }
    println!("{round:?}: {seconds:.0?} ns, {told:#?}");
    let is_attached = told.iter().any(|told| told.starts_with("Attached"));
    assert!(is_attached || !matches!(round, Round::Stays), "{told:?}");
    seconds
}

fn mean(all: &[f64]) -> f64 {
    all.iter().sum::<f64>() / all.len() as f64
}

#[test]
#[ignore = "it takes a machine whose time passes with its instructions: scripts/test-kernels.sh has it"]
fn what_a_bystander_pays_is_bounded_however_often_what_is_asked_changes() {
    let best = *kernel_tiers().first().unwrap();
    let policy = NodePolicy {
        tells_others: false,
        kernel_functions: Some(ADMITTED.iter().map(ToString::to_string).collect()),
        bystanders: Some(NODE),
    };
    let no_uprobes = Refusal::new(Reason::PreflightFailed, "this was not looked at");
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    runtime.block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let bystander = Pipe::start(2, folder.path());
        let target = Pipe::start(1, folder.path());
        let mut engine = Engine::new(Err(no_uprobes))
            .with_policy(policy)
            .with_patience(Duration::ZERO);
        let mut free = mean(&play(&mut engine, Round::Free, &target, &bystander).await);
        // The functions are tried in the first of them.
        for round in [Round::Stays, Round::Edited, Round::MadeAnew] {
            let seconds = play(&mut engine, round, &target, &bystander).await;
            let again = mean(&play(&mut engine, Round::Free, &target, &bystander).await);
            let ratio = mean(&seconds) / f64::midpoint(free, again);
            println!("{round:?}: {ratio:.4} times as long");
            assert!(ratio <= MOST, "{round:?}: {ratio:.4} times as long");
            free = again;
        }
    });
    println!("passed by {}", best.as_str());
}

/// How long each number of probes is there.
const EACH: Duration = Duration::from_secs(2);

/// A part of what passes a byte.
const FUNCTION: &str = "vfs_read";

/// Of what passes a byte none.
const ELSEWHERE: &str = "vfs_mkdir";

/// The kernel goes through all probes that there are, wherever they are: the agent measures what one more elsewhere takes, and charges that for each.
#[test]
#[ignore = "it takes a machine whose time passes with its instructions: scripts/test-kernels.sh has it"]
fn each_probe_elsewhere_costs_others_no_more_than_the_first() {
    let best = *kernel_tiers().first().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bystander = Pipe::start(4, folder.path());
    let target = Pipe::start(3, folder.path());
    let attach = |function| attach(best, target.container.pid(), &[function]).unwrap();
    let takes = || {
        let before = bystander.spent();
        std::thread::sleep(EACH);
        each(&bystander, before)
    };
    let free = takes();
    let probe = attach(FUNCTION);
    let alone = takes();
    let mut elsewhere = vec![attach(ELSEWHERE)];
    let beside_one = takes();
    elsewhere.extend((1..5).map(|_| attach(ELSEWHERE)));
    let beside_five = takes();
    let same = attach(FUNCTION);
    let twice = takes();
    println!(
        "{free:.1} ns, {alone:.1} with one probe, {beside_one:.1} and {beside_five:.1} beside others elsewhere, {twice:.1} with two"
    );
    // Nothing where the kernel finds its probes by their addresses.
    let (own, more) = (alone - free, (beside_one - alone).max(0.0));
    // As the agent charges for it, of five others and of six.
    assert!(beside_five - free <= 1.02 * (own + 5.0 * more));
    assert!(twice - free <= 1.02 * 2.0 * (own + 6.0 * more));
    drop((probe, elsewhere, same));
    println!("passed by {}", best.as_str());
}
