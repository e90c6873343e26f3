//! A file can have many functions of one name, and many may ask for it: what is attached to is bounded in all.

use std::iter::repeat_n;

use ckb_probe_crds::ProbeReport;

use super::*;

/// As many places as a file may have of a name, and as are attached to in all.
const PLACES: u64 = 64;
const SITES: u64 = 1_024;

/// As many CkbProbes as have room, each with another threshold and so another place in the maps.
const ROOM: u64 = SITES / PLACES;

#[tokio::test]
async fn names_times_places_times_slots_are_capped_in_all_and_who_has_no_room_is_told() {
    let folder = Folder::new();
    let namesake = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/namesake.c");
    let objects: Vec<&str> = repeat_n(namesake, PLACES as usize).collect();
    let program = folder.compile("cc", "namesakes.c", "namesakes", &objects);
    let target = Container::run(300, &program);
    let mut agent = Agent::start();
    let names: Vec<String> = (0..=ROOM)
        .map(|number| format!("probe-{number:02}"))
        .collect();
    let orders = (1..).zip(&names);
    let orders = orders.map(|(threshold, name)| order(name, threshold, &target));
    agent.assign(orders.collect());
    let probe = |agent: &mut Agent, name: &String| -> Option<ProbeReport> {
        agent.report_to(name, &target)?.probes.pop()
    };
    let (last, others) = names.split_last().unwrap();
    let counted = |probe: &ProbeReport| {
        let rows = probe.rows.iter();
        rows.map(|row| row.total.count("duration").unwrap())
            .sum::<u64>()
    };
    agent
        .until(PATIENCE, |agent| {
            let mut others = others.iter().map(|name| probe(agent, name));
            others.all(|probe| probe.is_some_and(|probe| counted(&probe) > 0))
        })
        .await;
    for name in others {
        let probe = probe(&mut agent, name).unwrap();
        assert_eq!(probe.state, InstanceState::Attached, "{probe:?}");
        assert_eq!(probe.lacks, []);
    }
    let refused = probe(&mut agent, last).unwrap();
    assert_eq!(
        (refused.state, refused.reason),
        (InstanceState::Failed, Some(Reason::TooManyMatches))
    );
    assert_eq!(
        refused.message,
        format!(
            "what is asked of the process is in {} places of its files or more ({PLACES} of Get), and no more than {SITES} are \
             attached to in all: ask for fewer functions",
            SITES + PLACES
        )
    );
}

fn order(name: &str, threshold: u64, target: &Container) -> Assignment {
    let calls = RocksDbProbe {
        operations: vec![Operation::Get],
        slow_threshold: Duration::from_millis(threshold).into(),
        ..RocksDbProbe::default()
    };
    let probes = vec![Probe::new("storage", calls.into())];
    without_budget(order_of(name, &target.id, &target.executable, probes))
}
