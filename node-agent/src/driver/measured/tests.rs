//! On this machine's kernel, as root; and by a mechanism that is [played], which needs neither.

mod played;

use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use ckb_probe_crds::{
    InstanceState, Lack, Reason,
    kinds::rocksdb::{Operation, RocksDbProbe},
};

use super::{
    super::{measurement::Total, played::hold_up},
    *,
};
use crate::{
    kernel::CalibratedTier,
    observe,
    preflight::preflight,
    state::{
        fixtures::count,
        instance::{EARLY_DEATH, Terms},
        slow_calls,
    },
    target::InstanceKey,
};

/// Calls one function so many times as a line says first, and another so many times as it says then. The first instruction of
/// the second must be single-stepped. Before each call of the first it does so much work of its own as the line says last.
const PROGRAM: &str = r#"
#include <stdio.h>
__asm__(".globl rocksdb_get_pinned_cf\n.type rocksdb_get_pinned_cf, @function\n"
        "rocksdb_get_pinned_cf: push %rbp\nxor %eax, %eax\npop %rbp\nret\n"
        ".size rocksdb_get_pinned_cf, .-rocksdb_get_pinned_cf\n"
        ".globl rocksdb_iter_seek\n.type rocksdb_iter_seek, @function\n"
        "rocksdb_iter_seek: sub $8, %rsp\nadd $8, %rsp\nret\n"
        ".size rocksdb_iter_seek, .-rocksdb_iter_seek\n");
void *rocksdb_get_pinned_cf(void);
void rocksdb_iter_seek(void);
int main(void) {
    int gets, seeks, work;
    while (scanf("%d %d %d", &gets, &seeks, &work) == 3) {
        while (gets-- > 0) {
            for (volatile int done = 0; done < work; done++);
            rocksdb_get_pinned_cf();
        }
        while (seeks-- > 0) rocksdb_iter_seek();
        puts("done");
        fflush(stdout);
    }
}
"#;

struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start() -> Self {
        let mut child = Command::new(executable())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut program = Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        // It has mapped its libraries by then.
        program.call(0, 0);
        program
    }

    fn call(&mut self, gets: u64, seeks: u64) {
        self.call_and_work(gets, seeks, 0);
    }

    fn call_and_work(&mut self, gets: u64, seeks: u64, work: u64) {
        writeln!(self.input, "{gets} {seeks} {work}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn executable() -> &'static PathBuf {
    static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();
    EXECUTABLE.get_or_init(|| {
        let path = std::env::temp_dir().join("ckb-probe-measured");
        let made = path.with_extension(std::process::id().to_string());
        let mut compiler = Command::new("cc")
            .args(["-x", "c", "-", "-o"])
            .arg(&made)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut source = compiler.stdin.take().unwrap();
        source.write_all(PROGRAM.as_bytes()).unwrap();
        drop(source);
        assert!(compiler.wait().unwrap().success());
        // Others may be running the one of before.
        std::fs::rename(made, &path).unwrap();
        path
    })
}

fn means() -> CalibratedTier {
    static MEANS: OnceLock<CalibratedTier> = OnceLock::new();
    *MEANS.get_or_init(|| preflight(None).means.unwrap())
}

fn process(pid: u32) -> ProcessId {
    let mut all = observe::processes(|_| true).unwrap().processes.into_iter();
    all.find(|process| process.id.pid == pid).unwrap().id
}

fn instance(include_single_stepped: bool, now: Duration) -> Instance {
    let kind = RocksDbProbe {
        operations: vec![Operation::Get, Operation::IteratorSeek],
        include_single_stepped,
        ..RocksDbProbe::default()
    };
    asking(kind, now)
}

fn asking(kind: RocksDbProbe, now: Duration) -> Instance {
    let terms = Terms {
        interval: Duration::from_secs(10),
        overhead: overhead(1.0, Breach::Report),
        early_death: EARLY_DEATH,
        profile_window: slow_calls::WINDOW,
    };
    let probe = Instrumented::new("storage", kind);
    Instance::new(InstanceKey::default(), vec![probe], terms, now)
}

fn overhead(max_percent: f64, on_breach: Breach) -> Overhead {
    Overhead {
        max_percent,
        on_breach,
        ..Overhead::default()
    }
}

/// Has it measure what is asked, and waits until it does.
fn measure(
    measured: &mut Measured,
    tools: &Tools,
    views: &mut [(&mut Instance, usize)],
    clock: Clock,
) {
    measured.ask(tools, views, clock);
    let end = clock.now() + PATIENCE;
    while measured.arrive(tools, views, clock) != Arrival::Answered {
        assert!(clock.now() < end, "it is not answered");
        std::thread::sleep(WAIT);
    }
}

/// Reads what was counted, for all that look.
fn read(measured: &mut Measured, tools: &Tools, views: &mut [&mut Instance], clock: Clock) {
    let measurement = measured.measurement(tools).unwrap();
    measurement.read(clock.now()).unwrap();
    for entry in measurement.entries() {
        for view in &mut *views {
            view.take(&entry);
        }
    }
}

fn counts(instance: &Instance, clock: Clock) -> Vec<(String, u64)> {
    let mut report = instance.report(clock.now());
    let rows = report.probes.remove(0).rows.into_iter();
    rows.map(|row| (row.key, count(&row.total))).collect()
}

fn named<const N: usize>(counts: [(&str, u64); N]) -> Vec<(String, u64)> {
    counts.map(|(name, count)| (name.to_string(), count)).into()
}

#[test]
fn all_that_ask_share_the_greatest_budget_and_sampling_is_for_all() {
    let (one, two) = (overhead(1.0, Breach::Report), overhead(2.5, Breach::Detach));
    let budget = |percent, sampled| Budget {
        percent,
        sampled,
        floor: 0.1,
    };
    assert_eq!(combined(&[&one, &two], None, None), budget(2.5, None));
    let sampled = overhead(0.5, Breach::Sample);
    let all = combined(&[&one, &sampled, &two], None, None);
    assert_eq!(all, budget(2.5, Some(2.5)));
    assert_eq!(combined(&[&sampled], None, None), budget(0.5, Some(0.5)));
}

#[test]
fn nobody_who_asks_gets_above_the_ceiling() {
    let budget = |percent, sampled| Budget {
        percent,
        sampled,
        floor: 0.1,
    };
    let ceiling = Some(5.0);
    let (greedy, modest) = (
        overhead(50.0, Breach::Sample),
        overhead(1.0, Breach::Sample),
    );
    assert_eq!(
        combined(&[&greedy, &modest], ceiling, None),
        budget(5.0, ceiling)
    );
    assert_eq!(combined(&[&modest], ceiling, None), budget(1.0, Some(1.0)));
    // Whoever does not want it sampled has it so at the ceiling.
    let whatever = overhead(1.0, Breach::Report);
    assert_eq!(combined(&[&whatever], ceiling, None), budget(1.0, ceiling));
    let all = [
        &overhead(50.0, Breach::Report),
        &overhead(2.0, Breach::Detach),
    ];
    assert_eq!(combined(&all, ceiling, None), budget(5.0, ceiling));
}

#[test]
fn the_floor_is_the_greatest_that_anybody_asks_and_no_more_than_the_installation_grants() {
    let asks = |floor| Overhead {
        floor,
        ..Overhead::default()
    };
    let floor = |asked: &[f64], most| {
        let all: Vec<_> = asked.iter().copied().map(asks).collect();
        combined(&all.iter().collect::<Vec<_>>(), None, most).floor
    };
    assert_eq!(Overhead::default().floor, 0.1);
    assert_eq!(floor(&[0.1, 0.4, 0.0], None), 0.4);
    assert_eq!(floor(&[0.1, 0.4], Some(0.2)), 0.2);
    assert_eq!(floor(&[0.1], Some(0.2)), 0.1);
    assert_eq!(floor(&[0.1], Some(0.0)), 0.0);
}

#[tokio::test]
async fn two_views_of_a_process_share_what_they_ask_alike_and_keep_what_they_do_not() {
    let mut program = Program::start();
    let tools = Tools::new(Ok(means()));
    let clock = Clock::start();
    let mut measured = Measured::new(process(program.child.id())).unwrap();
    let (mut cheap, mut dear) = (instance(false, clock.now()), instance(true, clock.now()));
    measure(
        &mut measured,
        &tools,
        &mut [(&mut cheap, 0), (&mut dear, 0)],
        clock,
    );
    program.call(1_000, 10);
    read(&mut measured, &tools, &mut [&mut cheap, &mut dear], clock);
    assert_eq!(counts(&cheap, clock), named([("Get", 1_000)]));
    assert_eq!(
        counts(&dear, clock),
        named([("Get", 1_000), ("IteratorSeek", 10)])
    );
    let left_out = Lack {
        reason: Reason::SingleStepped,
        items: vec!["rocksdb_iter_seek".to_string()],
    };
    let report = cheap.report(clock.now());
    assert!(report.probes[0].lacks.contains(&left_out), "{report:?}");
    assert!(!dear.report(clock.now()).probes[0].lacks(Reason::SingleStepped));
    // One leaves: the process is measured anew, for the other.
    measure(&mut measured, &tools, &mut [(&mut cheap, 0)], clock);
    program.call(500, 10);
    // Less than ten milliseconds would stand for nothing yet.
    std::thread::sleep(Duration::from_millis(20));
    read(&mut measured, &tools, &mut [&mut cheap], clock);
    cheap.close_interval(clock.now(), None);
    let rows = cheap.report(clock.now()).probes.remove(0).rows;
    assert_eq!((rows.len(), rows[0].window.samples), (1, 1_500));
    let window = &rows[0].window;
    assert!(window.recorded_milliseconds < window.milliseconds);
    assert!(count(&rows[0].total) >= 1_500);
}

#[tokio::test]
async fn probes_that_ask_the_same_stand_on_one_load() {
    let program = Program::start();
    let tools = Tools::new(Ok(means()));
    let clock = Clock::start();
    let mut measured = Measured::new(process(program.child.id())).unwrap();
    let (mut one, mut other) = (instance(true, clock.now()), instance(true, clock.now()));
    let slower = RocksDbProbe {
        operations: vec![Operation::Get],
        slow_threshold: Duration::from_millis(7).into(),
        ..RocksDbProbe::default()
    };
    let mut third = asking(slower, clock.now());
    let mut views = [(&mut one, 0), (&mut other, 0), (&mut third, 0)];
    measure(&mut measured, &tools, &mut views, clock);
    let groups = |instance: &Instance| -> Vec<u16> {
        let series = instance.probes[0].series.iter();
        series.map(|series| series.subscription.group.0).collect()
    };
    assert_eq!((groups(&one), groups(&other)), (vec![0, 1], vec![0, 1]));
    assert_eq!(groups(&third), [2]);
}

#[tokio::test]
async fn what_is_measured_goes_on_while_file_systems_of_others_hold_up_too_much() {
    let mut program = Program::start();
    let tools = Tools::new(Ok(means()));
    let clock = Clock::start();
    let mut measured = Measured::new(process(program.child.id())).unwrap();
    let mut view = instance(false, clock.now());
    measure(&mut measured, &tools, &mut [(&mut view, 0)], clock);
    let mut joins = instance(true, clock.now());
    assert!(!measured.goes_on(&tools, &mut [(&mut view, 0), (&mut joins, 0)], clock));
    let releases = hold_up(&tools.workers);
    assert!(measured.goes_on(&tools, &mut [(&mut view, 0), (&mut joins, 0)], clock));
    let report = joins.report(clock.now());
    assert_eq!(report.state, InstanceState::Failed);
    assert!(report.message.contains(TOO_MANY), "{}", report.message);
    program.call(100, 0);
    let measurement = measured.measurement(&tools).unwrap();
    measurement.read(clock.now()).unwrap();
    for entry in measured.entries() {
        view.take(&entry);
    }
    let report = view.report(clock.now());
    assert_eq!(
        (report.state, report.gap_milliseconds),
        (InstanceState::Attached, 0)
    );
    assert_eq!(count(&report.probes[0].rows[0].total), 100);
    drop(releases);
    // Tried again, once nothing is held up any more.
    let end = clock.now() + PATIENCE;
    while !measured.look_again(&tools) {
        assert!(clock.now() < end, "it is not asked again");
        std::thread::sleep(WAIT);
    }
    assert!(!tools.workers.are_stuck(""));
}

const WAIT: Duration = Duration::from_millis(1);

/// However slow the machine is.
const PATIENCE: Duration = Duration::from_secs(120);

/// Says so when it is dropped.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn fifty_one_that_ask_for_different_things_together_cost_no_more_than_the_ceiling() {
    const CEILING: f64 = 5.0;
    // Some 200 µs between two calls: all of them together would take a quarter of its time. Of one that did nothing else most would be
    // off, and a single slice of the others takes seconds.
    const WORK: u64 = 100_000;
    let mut program = Program::start();
    let mut tools = Tools::new(Ok(means()));
    tools.ceiling = Some(CEILING);
    let clock = Clock::start();
    let mut measured = Measured::new(process(program.child.id())).unwrap();
    // Each of them would have all of it measured, all of the time.
    let view = |milliseconds| {
        let kind = RocksDbProbe {
            operations: vec![Operation::Get],
            slow_threshold: Duration::from_millis(milliseconds).into(),
            ..RocksDbProbe::default()
        };
        asking(kind, clock.now())
    };
    let mut views: Vec<Instance> = (1..=51).map(view).collect();
    let mut looking: Vec<_> = views.iter_mut().map(|view| (view, 0)).collect();
    measure(&mut measured, &tools, &mut looking, clock);
    let over = AtomicBool::new(false);
    let run = |measured: &mut Measured, time: Duration| {
        let end = clock.now() + time;
        while clock.now() < end {
            let step = measured.next_step().unwrap().min(end);
            std::thread::sleep(step.saturating_sub(clock.now()));
            measured.step(&tools, clock).unwrap();
            measured.measurement(&tools).unwrap();
        }
        measured.measurement(&tools).unwrap().total(clock.now())
    };
    let end = clock.now() + PATIENCE;
    let (before, after) = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                program.call_and_work(50, 0, WORK);
            }
        });
        // Also where the rest panics.
        let _end = End(&over);
        // What it costs until the first look is owed, and paid back.
        let before = run(&mut measured, Duration::from_secs(2));
        let mut after = run(&mut measured, Duration::from_secs(8));
        // On a slow machine a slice lasts longer, and it takes more of them until they are paid for; or what was owed takes all of
        // the time, so that there was none.
        let is_told = |after: &Total| {
            let ratio = after.ratio_since(&before);
            ratio.is_some_and(|ratio| ratio > 0.0 && ratio * 100.0 < CEILING * 1.5)
        };
        while !is_told(&after) && clock.now() < end {
            after = run(&mut measured, Duration::from_secs(1));
        }
        (before, after)
    });
    let ratio = after.ratio_since(&before).unwrap();
    assert!(ratio * 100.0 < CEILING * 1.5, "{} %", ratio * 100.0);
    let measurement = measured.measurement(&tools).unwrap();
    let groups: Vec<_> = views.iter().map(Instance::loads).collect();
    assert!(
        groups
            .iter()
            .flatten()
            .all(|group| measurement.is_sampled(*group))
    );
    // Each has its own part of it; in a few seconds not all have had their turn.
    let parts = groups
        .iter()
        .map(|groups| after.part_since(&before, groups).unwrap());
    let parts: Vec<f64> = parts.collect();
    assert!(parts.iter().all(|part| *part < ratio / 3.0), "{parts:?}");
    assert!((parts.iter().sum::<f64>() - ratio).abs() < ratio / 1000.0);
    assert!(views.iter().all(|view| view.budget_percent == 1.0));
}

#[tokio::test]
async fn a_young_process_is_looked_at_again_and_again_before_it_is_said_to_lack_anything() {
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    let tools = Tools::new(Ok(means()));
    let clock = Clock::start();
    let mut measured = Measured::new(process(child.id())).unwrap();
    let mut view = instance(false, clock.now());
    measure(&mut measured, &tools, &mut [(&mut view, 0)], clock);
    let began = Instant::now();
    let mut looks = 0;
    while !view.probes[0].is_answered() {
        let at = measured.retry_at().unwrap();
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        let mut asks = measured.look_again(&tools);
        while !asks && measured.is_pending() {
            asks = measured.arrive(&tools, &mut [(&mut view, 0)], clock) == Arrival::Again;
            std::thread::sleep(WAIT);
        }
        if asks {
            measure(&mut measured, &tools, &mut [(&mut view, 0)], clock);
        }
        looks += 1;
    }
    // After 5 ms, after 10, and then every 20 ms or, on a slow machine, less often; for a second in all.
    assert!((3..=52).contains(&looks), "{looks}");
    assert!(began.elapsed() >= Duration::from_secs(1));
    let report = view.report(clock.now());
    assert_eq!(report.reason, Some(Reason::SymbolNotFound));
    let next = measured.retry_at().unwrap();
    assert!(next.saturating_duration_since(Instant::now()) > Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
}
