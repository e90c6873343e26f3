//! Who is told of which windows, without a kernel.

use std::sync::mpsc::TryRecvError;

use ckb_probe_crds::{Figures, ProfileCounts, ProfileWindow};
use ckb_probe_profiles::Profile;

use super::*;

const CPU: ProfileMode = ProfileMode::Cpu;

fn seen(mode: ProfileMode, weight: u64) -> Weighed {
    Weighed {
        mode,
        weight,
        freed: 0,
        samples: weight / 10,
        complete: weight / 20,
    }
}

fn finished(number: u64) -> Finished {
    Finished {
        mode: CPU,
        window: ProfileWindow {
            number,
            began_at: k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(
                k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            ),
            milliseconds: 1_000,
        },
        counts: ProfileCounts {
            lost: 1,
            ..ProfileCounts::default()
        },
        stacks: Ok(Arc::new(Profile::of(ckb_probe_profiles::ProfileMode::Cpu))),
    }
}

fn told(receiver: &Receiver<Finished>) -> Vec<u64> {
    receiver.try_iter().map(|one| one.window.number).collect()
}

#[test]
fn totals_add_up_and_the_last_window_is_how_things_stand() {
    let mut totals = Totals::default();
    totals.add(
        CPU,
        &[("scripts", seen(CPU, 100)), ("rpc", seen(CPU, 40))].into(),
        2,
    );
    totals.add(CPU, &[("scripts", seen(CPU, 60))].into(), 0);
    let sums = |all, last| Sums {
        all: seen(CPU, all),
        last: seen(CPU, last),
    };
    // What was not seen in the last window is not there now.
    let rows = [
        ((CPU, "scripts"), sums(160, 60)),
        ((CPU, "rpc"), sums(40, 0)),
    ];
    assert_eq!(totals.rows, rows.into());
    assert_eq!(totals.lost, 2);
    // What another mode does leaves this one as it is.
    let mut rows = BTreeMap::from(rows);
    let mut memory = seen(ProfileMode::Memory, 50);
    totals.add(ProfileMode::Memory, &[("rpc", memory)].into(), 0);
    let sums = Sums {
        all: memory,
        last: memory,
    };
    rows.insert((ProfileMode::Memory, "rpc"), sums);
    assert_eq!(totals.rows, rows);
    // A mode that has never seen anything is told all the same.
    totals.add(ProfileMode::OffCpu, &BTreeMap::new(), 0);
    memory = seen(ProfileMode::OffCpu, 0);
    let sums = Sums {
        all: memory,
        last: memory,
    };
    rows.insert((ProfileMode::OffCpu, OTHER), sums);
    assert_eq!(totals.rows, rows);
}

#[test]
fn a_window_goes_on_while_what_measures_the_process_is_replaced() {
    let sampled = Arc::<SharedSampler>::default();
    let mut first = SamplerHandle::of(&sampled, Some(0.01));
    let heard = first.receiver();
    sampled.finish(finished(1), &[("scripts", seen(CPU, 100))].into());
    assert_eq!(told(&heard), [1]);
    assert_eq!(first.totals().rows[&(CPU, "scripts")].all.weight, 100);
    drop(first);
    // Nobody is there, but whoever was is told, as where the process has ended.
    sampled.finish(finished(2), &[("scripts", seen(CPU, 30))].into());
    assert_eq!(told(&heard), [2]);
    let mut second = SamplerHandle::of(&sampled, None);
    let then = second.receiver();
    sampled.finish(finished(3), &[("scripts", seen(CPU, 20))].into());
    assert_eq!((told(&heard), told(&then)), (vec![], vec![3]));
    let from_zero = Sums {
        all: seen(CPU, 20),
        last: seen(CPU, 20),
    };
    assert_eq!(second.totals().rows, [((CPU, "scripts"), from_zero)].into());
    assert_eq!(second.totals().lost, 1);
    // Whoever asks anew is told in the stead of itself.
    let again = second.receiver();
    sampled.finish(finished(4), &BTreeMap::new());
    assert_eq!((told(&then), told(&again)), (vec![], vec![4]));
    sampled.close();
    assert_eq!(again.try_recv().unwrap_err(), TryRecvError::Disconnected);
}

#[test]
fn what_nobody_was_told_of_waits_and_not_for_ever() {
    let sampled = Arc::<SharedSampler>::default();
    let mut holder = SamplerHandle::of(&sampled, None);
    for number in 0..20 {
        sampled.finish(finished(number), &BTreeMap::new());
    }
    assert_eq!(told(&holder.receiver()), (12..20).collect::<Vec<u64>>());
}

#[test]
fn the_same_question_of_a_process_has_one_sampler() {
    let ask = |window| ProfileConfig {
        modes: vec![CPU],
        frequency: 99,
        passes: 19,
        window: Duration::from_secs(window),
        // Far off: nothing is sampled here.
        every: Some(Duration::from_secs(1 << 40)),
        occasional: false,
        figures: |_| Figures::default(),
    };
    let process = crate::observe::ProcessId {
        pid: std::process::id(),
        start_ticks: crate::observe::process(std::process::id(), |_| true)
            .unwrap()
            .unwrap()
            .id
            .start_ticks,
    };
    let registry = Arc::new(Mutex::new(Registry::default()));
    let enroll = |window| Registry::enroll(&registry, process, &ask(window), None, None).unwrap();
    let (one, same, other) = (enroll(1), enroll(1), enroll(2));
    let is_one =
        |one: &SamplerHandle, other: &SamplerHandle| Arc::ptr_eq(&one.sampled, &other.sampled);
    assert!(is_one(&one, &same) && !is_one(&one, &other));
    assert_eq!(one.sampled.sharing(), 2, "two share what the budget pays");
    // One that somebody has stays, unless its process is gone.
    assert!(!Registry::forget(&registry, &other.sampled, false));
    assert!(is_one(&other, &enroll(2)));
    assert!(Registry::forget(&registry, &other.sampled, true));
    assert_eq!(one.sampled.sharing(), 1);
    assert!(is_one(&one, &enroll(1)) && !is_one(&other, &enroll(2)));
}

#[test]
fn a_sampler_outlasts_those_who_have_it_by_a_moment() {
    let sampled = Arc::<SharedSampler>::default();
    let patience = |after| sampled.state().patience(Instant::now() + after);
    let (first, mut second) = (
        SamplerHandle::of(&sampled, None),
        SamplerHandle::of(&sampled, None),
    );
    drop(first);
    assert_eq!(patience(PATIENCE), Duration::MAX, "somebody has it");
    second.leave();
    assert!(!sampled.is_over());
    assert!((PATIENCE / 2..=PATIENCE).contains(&patience(Duration::ZERO)));
    assert_eq!(patience(PATIENCE), Duration::ZERO);
    let left = sampled.state().left;
    drop(second);
    assert_eq!(sampled.state().left, left, "it is nobody's since then");
    let _third = SamplerHandle::of(&sampled, None);
    assert_eq!(patience(PATIENCE), Duration::MAX);
    sampled.state().left = Instant::now().checked_sub(PATIENCE);
    assert!(sampled.is_over());
}

#[test]
fn who_comes_or_goes_is_noticed_at_once() {
    let sampled = Arc::<SharedSampler>::default();
    let mut holder = SamplerHandle::of(&sampled, None);
    let begun = Instant::now();
    let waiting = thread::spawn({
        let sampled = Arc::clone(&sampled);
        move || {
            sampled.wait(Duration::from_secs(60));
            sampled.wait(Duration::from_secs(60));
        }
    });
    thread::sleep(Duration::from_millis(100));
    holder.leave();
    thread::sleep(Duration::from_millis(100));
    let _next = SamplerHandle::of(&sampled, None);
    waiting.join().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
    let begun = Instant::now();
    sampled.wait(Duration::from_millis(50));
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn who_has_a_sampler_pays_for_what_it_cost_since() {
    let ms = Duration::from_millis;
    let sampled = Arc::<SharedSampler>::default();
    let first = SamplerHandle::of(&sampled, Some(0.01));
    assert_eq!(sampled.ratio(), Some(0.01));
    sampled.spend(ms(3));
    let second = SamplerHandle::of(&sampled, None);
    assert_eq!(sampled.ratio(), None, "the budget is that of now");
    sampled.spend(ms(2));
    assert_eq!((first.cost(), second.cost()), (ms(5), ms(2)));
}

#[test]
fn a_window_that_failed_is_told_and_counts_for_nothing() {
    let sampled = Arc::<SharedSampler>::default();
    let mut holder = SamplerHandle::of(&sampled, None);
    let heard = holder.receiver();
    let failed = Finished {
        stacks: Err("no room".to_string()),
        ..finished(1)
    };
    sampled.finish(failed, &[("scripts", seen(CPU, 20))].into());
    assert_eq!(told(&heard), [1]);
    assert_eq!(holder.totals(), Totals::default());
}

#[test]
fn a_mode_without_stacks_is_known_until_it_has_some() {
    let sampled = Arc::<SharedSampler>::default();
    let holder = SamplerHandle::of(&sampled, None);
    let failure = Failure {
        reason: Reason::MemoryLimit,
        why: "no room".to_string(),
    };
    sampled.fails(CPU, Some(failure.clone()));
    sampled.fails(ProfileMode::OffCpu, None);
    assert_eq!(holder.failures(), [(CPU, failure)].into());
    sampled.fails(CPU, None);
    assert_eq!(holder.failures(), BTreeMap::new());
}

#[test]
fn a_sampler_that_works_or_waits_for_a_cpu_is_not_held_up_and_one_that_waits_for_something_else_is()
{
    const PATIENCE: Duration = Duration::from_millis(300);
    let sampled = Arc::<SharedSampler>::default();
    // What becomes of it while it does that, and is looked at, for so long at the most.
    let is_held_up = |most: Duration, work: fn(&Receiver<()>)| {
        let (release, held) = channel();
        let (begun, begins) = channel();
        let own = Arc::clone(&sampled);
        let thread = thread::spawn(move || {
            own.begins(true);
            let _ = begun.send(());
            work(&held);
            own.begins(false);
        });
        begins.recv().unwrap();
        let began = Instant::now();
        let mut held_up = false;
        while began.elapsed() < most && !held_up {
            thread::sleep(PATIENCE / 10);
            held_up = sampled.is_held_up(PATIENCE);
        }
        drop(release);
        thread.join().unwrap();
        held_up
    };
    assert!(!is_held_up(5 * PATIENCE, |held| {
        while held.try_recv() != Err(TryRecvError::Disconnected) {
            std::hint::spin_loop();
        }
    }));
    // Whoever looks may be kept waiting himself.
    assert!(is_held_up(200 * PATIENCE, |held| {
        let _ = held.recv();
    }));
    assert!(!sampled.is_held_up(Duration::ZERO), "it does nothing now");
}
