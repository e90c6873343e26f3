//! Stacks in windows of time, through the agent's loop: of a program that spends its time in a known way.

use std::{collections::BTreeMap, sync::Arc};

use ckb_probe_crds::{ProfileMode, kinds::profile::ProfileProbe};
use ckb_probe_profiles::{Profile, Stack};

use super::*;

const SECRET: &[u8] = b"S3cr3tPw";

fn program(folder: &Folder) -> PathBuf {
    folder.compile_optimised("profiled")
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Windows of so long, once or every so often.
pub fn windows(modes: &[ProfileMode], window: Duration, every: Option<Duration>) -> ProfileProbe {
    ProfileProbe {
        modes: modes.to_vec(),
        window: window.into(),
        every: every.map(Into::into),
        ..ProfileProbe::default()
    }
}

/// What the CkbProbe of this name asks.
pub fn order(name: &str, of: &Container, asked: &ProfileProbe, max_percent: f64) -> Assignment {
    let probes = vec![Probe::new("flames", asked.clone().into())];
    Assignment {
        overhead: Overhead {
            max_percent,
            on_breach: Breach::Sample,
            ..Overhead::default()
        },
        asks: format!("asks-{name}"),
        ..order_of(name, &of.id, &of.executable, probes)
    }
}

/// Goes on until so many windows were finished.
async fn finished(agent: &mut Agent, count: usize) -> Vec<Delivery> {
    let mut all = Vec::new();
    agent
        .until(PATIENCE, |agent| {
            all.extend(agent.finished());
            all.len() >= count
        })
        .await;
    all
}

fn stacks(of: &Delivery) -> &Arc<Profile> {
    of.finished.stacks.as_ref().unwrap()
}

/// What part of a thread's weight has this function innermost, in percent.
fn shares(profile: &Profile, thread: &str) -> BTreeMap<String, f64> {
    let place = profile.stacks.shown();
    let own = || profile.stacks.iter().filter(|stack| stack.thread == thread);
    let all: u64 = own().map(|stack| stack.weights[place]).sum();
    let innermost = |stack: &Stack| {
        let own = stack.frames.iter().rev();
        let mut own = own.filter(|frame| !frame.is_kernel());
        own.next().map_or("none", |frame| frame.name).to_string()
    };
    let mut shares = BTreeMap::new();
    for stack in own() {
        *shares.entry(innermost(&stack)).or_default() +=
            stack.weights[place] as f64 * 100.0 / all as f64;
    }
    shares
}

/// All texts that are in it.
fn texts(profile: &Profile) -> Vec<u8> {
    format!("{profile:?}").into_bytes()
}

fn has(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|window| window == what)
}

#[tokio::test]
async fn windows_come_one_after_the_other_each_with_where_the_time_went() {
    let folder = Folder::new();
    let target = Container::run(501, &program(&folder));
    let modes = [ProfileMode::Cpu, ProfileMode::OffCpu, ProfileMode::Threads];
    let every = secs(4);
    let asked = windows(&modes, secs(3), Some(every));
    let mut agent = Agent::start();
    agent.assign(vec![order("one", &target, &asked, 20.0)]);
    let all = finished(&mut agent, 6).await;

    let of = |mode| all.iter().filter(move |one| one.finished.mode == mode);
    for mode in modes {
        let numbers: Vec<u64> = of(mode).map(|one| one.finished.window.number).collect();
        assert_eq!(numbers.len(), 2, "{all:?}");
        // On a machine that stands still for a while some are missed.
        assert!(numbers[1] > numbers[0], "{numbers:?}");
    }
    for one in &all {
        let Delivery { to, finished } = one;
        assert_eq!(
            (to.asks.as_str(), to.probe.as_str()),
            ("asks-one", "flames")
        );
        assert_eq!(
            (&to.pod.name, to.container.as_str()),
            (&target.id, "target")
        );
        let began = finished.window.began_at.0.as_millisecond() as u64;
        let late = began - finished.window.number * 4_000;
        assert!(
            late < 1_600,
            "a window begins at a multiple of the clock: {late} ms late"
        );
        // Who waits for a processor may get it while its stack is copied: on a busy machine one in twenty did.
        let least = match finished.mode {
            ProfileMode::OffCpu => 80,
            _ => 95,
        };
        assert!(
            finished.counts.complete * 100 >= finished.counts.samples * least,
            "{finished:?}"
        );
        assert!(finished.counts.samples > 0, "{finished:?}");
        // What is on stacks stays there, and so does all of it that the agent's books know.
        assert!(!has(&texts(stacks(one)), SECRET));
        assert!(!has(format!("{one:?}").as_bytes(), SECRET));
    }
    let cpu = of(ProfileMode::Cpu).next_back().unwrap();
    assert!(
        (1_300..=3_100).contains(&cpu.finished.window.milliseconds),
        "{cpu:?}"
    );
    let found = shares(stacks(cpu), "burner");
    for (name, share) in [("heavy", 70.0), ("middling", 20.0), ("light", 10.0)] {
        let part = found.get(name).copied().unwrap_or_default();
        assert!((part - share).abs() < 12.0, "{name}: {share} %, {found:?}");
    }
    let asleep = of(ProfileMode::OffCpu).next().unwrap();
    assert!(has(&texts(stacks(asleep)), b"with_secret"));
    let dump = of(ProfileMode::Threads).next().unwrap();
    assert_eq!(
        dump.finished.counts.samples, 3,
        "main, burner and secretive"
    );

    // And the report has how it divides.
    agent
        .until(PATIENCE, |agent| {
            let report = agent.report_to("one", &target).unwrap();
            let rows = &report.probes[0].rows;
            rows.iter().any(|row| {
                let time = row.total.levels.get("time").copied().unwrap_or_default();
                row.key == "Cpu" && time > 0 && row.parts.iter().any(|part| part.key == "other")
            })
        })
        .await;
    let report = agent.report_to("one", &target).unwrap();
    assert_eq!(
        (report.state, report.probes[0].message.as_str()),
        (InstanceState::Attached, "")
    );
    let text = serde_json::to_string(&report).unwrap();
    assert!(!has(text.as_bytes(), SECRET));
    assert!(!text.contains("with_secret"), "stacks are in no report");
}

#[tokio::test]
async fn the_same_question_is_sampled_once_and_told_to_all_that_ask() {
    let folder = Folder::new();
    let target = Container::run(502, &program(&folder));
    let asked = windows(&[ProfileMode::Cpu], secs(2), None);
    // What is kept of it is not what is sampled.
    let longer = ProfileProbe {
        keep: 7,
        ..asked.clone()
    };
    let mut agent = Agent::start();
    agent.assign(vec![
        order("one", &target, &asked, 20.0),
        order("same", &target, &asked, 20.0),
        order("longer", &target, &longer, 20.0),
    ]);
    let all = finished(&mut agent, 3).await;
    let mut asks: Vec<&str> = all.iter().map(|one| one.to.asks.as_str()).collect();
    asks.sort_unstable();
    assert_eq!(asks, ["asks-longer", "asks-one", "asks-same"]);
    for one in &all[1..] {
        assert!(Arc::ptr_eq(stacks(&all[0]), stacks(one)), "one sampler");
        assert_eq!(one.finished.window.number, 0);
    }
}

#[tokio::test]
async fn a_window_is_not_cut_short_where_somebody_else_joins() {
    let folder = Folder::new();
    let target = Container::run(503, &program(&folder));
    let asked = windows(&[ProfileMode::Cpu], secs(4), None);
    let one = order("one", &target, &asked, 20.0);
    let mut agent = Agent::start();
    agent.assign(vec![one.clone()]);
    let attached = |agent: &mut Agent, name: &str| {
        let report = agent.report_to(name, &target);
        report.is_some_and(|report| report.state == InstanceState::Attached)
    };
    agent.until(PATIENCE, |agent| attached(agent, "one")).await;
    let began = Instant::now();
    let other = windows(&[ProfileMode::Threads], secs(1), None);
    agent.assign(vec![one, order("other", &target, &other, 20.0)]);
    agent
        .until(PATIENCE, |agent| attached(agent, "other"))
        .await;
    assert!(began.elapsed() < secs(3), "the machine is too busy to tell");
    let all = finished(&mut agent, 2).await;
    let told = |asks: &str| {
        let mut own = all.iter().filter(|one| one.to.asks == asks);
        own.next()
            .map(|one| (one.finished.mode, one.finished.window.milliseconds))
    };
    let (mode, milliseconds) = told("asks-one").unwrap();
    assert_eq!(mode, ProfileMode::Cpu);
    assert!((3_500..=6_000).contains(&milliseconds), "{milliseconds}");
    assert_eq!(told("asks-other").unwrap().0, ProfileMode::Threads);
}

#[tokio::test]
async fn a_small_budget_has_it_look_less_often() {
    let folder = Folder::new();
    let target = Container::run(504, &program(&folder));
    let asked = windows(&[ProfileMode::Cpu], secs(3), None);
    let mut rates = Vec::new();
    for (name, max_percent) in [("generous", 20.0), ("frugal", 0.01)] {
        let mut agent = Agent::start();
        agent.assign(vec![order(name, &target, &asked, max_percent)]);
        let all = finished(&mut agent, 1).await;
        rates.push(all[0].finished.counts.millihertz);
    }
    // 99 a second, as far as the kernel ticks; and a half of a ten-thousandth of its time by samples of 20 us.
    assert!((60_000..=110_000).contains(&rates[0]), "{rates:?}");
    assert!((1..=10_000).contains(&rates[1]), "{rates:?}");
}

#[tokio::test]
async fn the_end_of_the_process_ends_the_window() {
    let folder = Folder::new();
    let target = Container::run(505, &program(&folder));
    let asked = windows(&[ProfileMode::Cpu, ProfileMode::OffCpu], secs(600), None);
    let mut agent = Agent::start();
    agent.assign(vec![order("one", &target, &asked, 20.0)]);
    // It is met, at a cost.
    agent
        .until(PATIENCE, |agent| {
            let report = agent.report_to("one", &target);
            report.is_some_and(|report| report.overhead_millipercent > Some(0))
        })
        .await;
    kill_process(Pid::from_raw(target.pid() as i32).unwrap(), Signal::KILL).unwrap();
    let all = finished(&mut agent, 2).await;
    for one in &all {
        let lasted = one.finished.window.milliseconds;
        assert!((1..600_000).contains(&lasted), "{one:?}");
        assert!(one.finished.counts.samples > 0, "{one:?}");
    }
    assert!(shares(stacks(&all[0]), "burner").contains_key("heavy"));
}

#[tokio::test]
async fn what_cannot_be_sampled_is_told_in_words() {
    let folder = Folder::new();
    let target = Container::run(506, &program(&folder));
    let mut agent = Agent::start();
    // The API server refuses it in a CkbProbe.
    let both = windows(
        &[ProfileMode::Threads, ProfileMode::SlowCalls],
        secs(1),
        None,
    );
    agent.assign(vec![order("both", &target, &both, 20.0)]);
    let all = finished(&mut agent, 2).await;
    let mut slow = all
        .iter()
        .filter(|one| one.finished.mode == ProfileMode::SlowCalls);
    let why = slow.next().unwrap().finished.stacks.as_ref().unwrap_err();
    assert!(why.contains("slow calls"), "{why}");
    let report = agent.report_to("both", &target).unwrap();
    assert!(
        report.probes[0].lacks(Reason::UnsupportedByKernel),
        "{report:?}"
    );
    let alone = windows(&[ProfileMode::SlowCalls], secs(1), None);
    agent.assign(vec![order("both", &target, &alone, 20.0)]);
    agent
        .until(PATIENCE, |agent| {
            let report = agent.report_to("both", &target).unwrap();
            report.state == InstanceState::Failed
        })
        .await;
}

#[tokio::test]
async fn memory_is_told_by_who_touches_it_first() {
    let folder = Folder::new();
    let program = folder.compile_optimised("grows");
    let target = Container::run(507, &program);
    let asked = windows(&[ProfileMode::Memory], secs(4), None);
    let mut agent = Agent::start();
    agent.assign(vec![order("one", &target, &asked, 20.0)]);
    let all = finished(&mut agent, 1).await;
    let counts = &all[0].finished.counts;
    assert!(counts.samples > 100, "{counts:?}");
    assert!(counts.complete * 100 >= counts.samples * 95, "{counts:?}");
    let profile = stacks(&all[0]);
    let grew = counts.resident_after.unwrap() - counts.resident_before.unwrap();
    let place = profile.stacks.shown();
    let told = profile.stacks.total(place);
    // Sampling begins a moment after the one look, and ends before the other.
    let part = told as f64 / grew as f64;
    assert!((0.8..=1.2).contains(&part), "{told} of {grew}");
    let by = |name: &str| -> u64 {
        let all = profile.stacks.iter();
        let own = all.filter(|stack| stack.frames.iter().any(|frame| frame.name == name));
        own.map(|stack| stack.weights[place]).sum()
    };
    let most = by("hoard") as f64 * 100.0 / told as f64;
    // Some two hundred samples, of which a few stand for more than others: four standard errors.
    assert!((most - 75.0).abs() < 14.0, "{most} % of 75: {counts:?}");
}
