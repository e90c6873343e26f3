//! What is measured of a process is told or counted, whoever else begins or ends to ask something of it.

use ckb_probe_crds::RowReport;

use super::*;

/// Calls that the fixture makes of each function, and microseconds between them.
const CALLS: usize = 3_000;
const BETWEEN: &str = "1000";

/// Calls that are counted before anything changes, and after it has: within an interval of the reports.
const SOME: u64 = 300;

/// The CkbProbe that is there all the time.
const FIRST: &str = "first";

/// One that comes, or goes.
const SECOND: &str = "second";

#[tokio::test]
async fn while_another_joins_what_is_missed_is_told() {
    let first = [(FIRST, vec![Operation::Get])];
    let both = [first[0].clone(), (SECOND, vec![Operation::Write])];
    change(401, &first, &both).await;
}

#[tokio::test]
async fn while_another_leaves_what_is_missed_is_told() {
    let first = [(FIRST, vec![Operation::Get])];
    let both = [first[0].clone(), (SECOND, vec![Operation::Write])];
    change(402, &both, &first).await;
}

#[tokio::test]
async fn while_it_asks_for_more_itself_what_is_missed_is_told() {
    let less = (FIRST, vec![Operation::Get]);
    let more = (FIRST, vec![Operation::Get, Operation::Put]);
    change(403, &[less], &[more]).await;
}

/// Who asks for which operations.
type Asked = [(&'static str, Vec<Operation>)];

/// Changes what is asked while the target calls, and looks whether the first can account for each of its calls.
async fn change(number: u32, before: &Asked, after: &Asked) {
    let folder = Folder::new();
    let program = folder.compile("cc", "paced.c", "paced", &[]);
    let times = folder.path("times");
    let arguments = [times.to_str().unwrap(), &CALLS.to_string(), BETWEEN];
    let target = Container::run_with(number, &program, &arguments, None);
    let mut agent = Agent::start();
    agent.assign(orders(&target, before));
    let is_attached = |agent: &mut Agent, asked: &Asked| {
        let mut asked = asked.iter();
        asked.all(|(name, operations)| {
            agent.report_to(name, &target).is_some_and(|report| {
                let probe = &report.probes[0];
                report.state == InstanceState::Attached && probe.rows.len() == operations.len()
            })
        })
    };
    agent
        .until(PATIENCE, |agent| is_attached(agent, before))
        .await;
    kill_process(Pid::from_raw(target.pid() as i32).unwrap(), Signal::USR1).unwrap();
    agent
        .until(PATIENCE, |agent| counted(&of_first(agent, &target)) >= SOME)
        .await;
    assert_eq!(of_first(&mut agent, &target).gap_milliseconds, 0);

    agent.assign(orders(&target, after));
    let seen = counted(&of_first(&mut agent, &target));
    let mut holes = Duration::ZERO;
    agent
        .until(PATIENCE, |agent| {
            let report = of_first(agent, &target);
            holes = holes.max(hole(&report));
            is_attached(agent, after) && counted(&report) >= seen + SOME
        })
        .await;
    agent.until(PATIENCE, |_| times.exists()).await;
    let windows = agent.windows;
    agent
        .until(PATIENCE, |agent| {
            holes = holes.max(hole(&of_first(agent, &target)));
            agent.windows >= windows + 4
        })
        .await;

    let report = of_first(&mut agent, &target);
    let times = read(&times);
    assert_eq!(times.len(), CALLS);
    let lost = CALLS as u64 - counted(&report);
    let gap = Duration::from_millis(report.gap_milliseconds);
    println!(
        "of {CALLS} calls {lost} were not counted, in a gap of {gap:?} and holes of {holes:?}"
    );
    // The one call that was being made as it began, too.
    assert!(
        lost <= most_within(&times, gap) + 1,
        "{lost} in {gap:?}: no such time had as many"
    );
    assert_eq!(
        lost > 0,
        !gap.is_zero(),
        "{lost} calls were lost in {gap:?}"
    );
    assert_eq!(gap.is_zero(), holes.is_zero(), "{gap:?}, {holes:?}");
}

fn orders(target: &Container, asked: &Asked) -> Vec<Assignment> {
    let orders = asked.iter().map(|(name, operations)| {
        let calls = RocksDbProbe {
            operations: operations.clone(),
            ..RocksDbProbe::default()
        };
        let probes = vec![Probe::new("storage", calls.into())];
        without_budget(order_of(name, &target.id, &target.executable, probes))
    });
    orders.collect()
}

fn of_first(agent: &mut Agent, target: &Container) -> InstanceReport {
    agent.report_to(FIRST, target).unwrap()
}

fn gets(report: &InstanceReport) -> Option<&RowReport> {
    let mut rows = report.probes[0].rows.iter();
    rows.find(|row| row.key == "Get")
}

fn counted(report: &InstanceReport) -> u64 {
    let gets = gets(report).and_then(|row| row.total.count("duration"));
    gets.unwrap_or_default()
}

/// How much of the last interval was not recorded.
fn hole(report: &InstanceReport) -> Duration {
    let missed = gets(report).map(|row| row.window.milliseconds - row.window.recorded_milliseconds);
    Duration::from_millis(missed.unwrap_or_default())
}

fn read(times: &PathBuf) -> Vec<Duration> {
    let text = fs::read_to_string(times).unwrap();
    let times = text.lines().map(|line| line.parse().unwrap());
    times.map(Duration::from_nanos).collect()
}

/// The most of these that lie within so long a time, wherever that is.
fn most_within(times: &[Duration], lasts: Duration) -> u64 {
    let within = times.iter().enumerate().map(|(first, begin)| {
        let end = times.partition_point(|time| *time <= *begin + lasts);
        end - first
    });
    within.max().unwrap_or_default() as u64
}
