//! Who is told of which windows, without a kernel.

use std::sync::Mutex;

use super::{
    shared::{Registry, Sampled, Totals},
    *,
};

const CPU: ProfileMode = ProfileMode::Cpu;

fn seen(mode: ProfileMode, weight: u64) -> Weighed {
    Weighed {
        mode,
        weight,
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
        stacks: Ok(Arc::new(Profile::of(ckb_probe_profiles::Mode::Cpu))),
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
    let before = totals.clone();
    totals.add(CPU, &[("scripts", seen(CPU, 60))].into(), 0);
    let sums = |totals: &Totals, heading| {
        let sums = totals.rows[&(CPU, heading)];
        (sums.all.weight, sums.last.weight)
    };
    assert_eq!(sums(&totals, "scripts"), (160, 60));
    assert_eq!(sums(&totals, "rpc"), (40, 0), "it is not there now");
    assert_eq!(totals.lost, 2);
    // What another mode does leaves this one as it is.
    totals.add(ProfileMode::Threads, &BTreeMap::new(), 0);
    assert_eq!(sums(&totals, "scripts"), (160, 60));
    assert_ne!(before, totals);
}

#[test]
fn a_window_goes_on_while_what_measures_the_process_is_replaced() {
    let sampled = Arc::<Sampled>::default();
    let mut first = Enrolled::of(&sampled, Some(0.01));
    let heard = first.receiver();
    sampled.finish(finished(1), &[("scripts", seen(CPU, 100))].into());
    assert_eq!(told(&heard), [1]);
    assert_eq!(first.totals().rows[&(CPU, "scripts")].all.weight, 100);
    drop(first);
    assert!(!sampled.is_over(), "somebody may come yet");
    // Nobody is there, but whoever was is told, as where the process has ended.
    sampled.finish(finished(2), &[("scripts", seen(CPU, 30))].into());
    assert_eq!(told(&heard), [2]);
    let mut second = Enrolled::of(&sampled, None);
    let then = second.receiver();
    sampled.finish(finished(3), &[("scripts", seen(CPU, 5))].into());
    assert_eq!((told(&heard), told(&then)), (vec![], vec![3]));
    let sums = second.totals().rows[&(CPU, "scripts")];
    assert_eq!((sums.all.weight, sums.last.weight), (5, 5), "from zero");
    assert_eq!(second.totals().lost, 1);
    assert_eq!(sampled.ratio(), None, "the budget is that of now");
}

#[test]
fn what_nobody_was_told_of_waits_and_not_for_ever() {
    let sampled = Arc::<Sampled>::default();
    let mut holder = Enrolled::of(&sampled, None);
    for number in 0..20 {
        sampled.finish(finished(number), &BTreeMap::new());
    }
    assert_eq!(told(&holder.receiver()), (12..20).collect::<Vec<u64>>());
}

#[test]
fn the_same_question_of_a_process_has_one_sampler() {
    let ask = |window| Ask {
        modes: vec![CPU],
        frequency: 99,
        passes: 19,
        window: Duration::from_secs(window),
        // Far off: nothing is sampled here.
        every: Some(Duration::from_secs(1 << 40)),
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
    let enroll = |window| Registry::enroll(&registry, process, &ask(window), None).unwrap();
    let (one, same, other) = (enroll(1), enroll(1), enroll(2));
    assert!(one.shares_with(&same));
    assert!(!one.shares_with(&other));
    assert_eq!(one.sharing(), 2, "two share what the budget pays");
}

#[test]
fn modes_that_cannot_be_sampled_are_told_in_words() {
    let all = [
        CPU,
        ProfileMode::OffCpu,
        ProfileMode::Threads,
        ProfileMode::Memory,
        ProfileMode::SlowCalls,
    ];
    let told = all.map(|mode| lacking(mode).is_some());
    assert_eq!(told, [false, false, false, false, true]);
}
