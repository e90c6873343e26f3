//! USDT probes.

use ckb_probe_crds::kinds::usdt::{UsdtProbe, default_limit};
use ckb_probe_testkit::{Fixture, wait_until};

use crate::way::{in_every_way, lost, rows_of, total};

fn question(names: &[&str]) -> UsdtProbe {
    UsdtProbe {
        provider: "fixture".to_string(),
        names: names.iter().map(ToString::to_string).collect(),
        limit: default_limit(),
    }
}

/// A program that meets its probes as often as it is told: `PROBE TIMES`.
fn fixture() -> Fixture {
    Fixture::named("usdt", &[])
}

#[test]
fn each_hit_is_counted_of_the_target_alone() {
    in_every_way(question(&["*"]), |way| {
        let (mut chosen, mut other) = (fixture(), fixture());
        let mut session = way.attach(chosen.pid());
        for fixture in [&mut chosen, &mut other] {
            for order in [
                "plain 20000",
                "five 3000",
                "ten 400",
                "guarded 321",
                "twice 77",
            ] {
                fixture.tell(order);
            }
        }
        session.read().unwrap();
        let counted = rows_of(&session)
            .into_iter()
            .map(|name| (name, total(&session, name).sums["hits"]));
        assert_eq!(
            counted.collect::<Vec<_>>(),
            [
                ("five", 3000),
                ("guarded", 321),
                ("plain", 20_000),
                ("ten", 400),
                ("twice", 154),
            ]
        );
        assert_eq!(lost(&session), 0);
    });
}

#[test]
fn semaphores_are_raised_while_a_probe_is_attached_to_and_no_longer() {
    in_every_way(question(&["guarded"]), |way| {
        let (mut chosen, mut other) = (fixture(), fixture());
        assert_eq!(chosen.tell("semaphores"), "0 0");
        let session = way.attach(chosen.pid());
        assert_eq!(chosen.tell("semaphores"), "1 0");
        assert_eq!(other.tell("semaphores"), "0 0");
        drop(session);
        wait_until("nobody is attached", || chosen.tell("semaphores") == "0 0");
    });
}
