use super::*;

fn stopped(family: u32) -> HealthKey {
    HealthKey {
        family,
        judgement: Judgement {
            held: held::STOPPED,
            ..Judgement::default()
        },
        ..HealthKey::default()
    }
}

fn row(key: HealthKey, time_ns: u64) -> (HealthKey, HealthSums) {
    (key, HealthSums { count: 1, time_ns })
}

#[test]
fn what_lasts_is_longer_each_time_and_never_shorter() {
    let mut told = HashMap::new();
    let state = |since_ns| FamilyState {
        since_ns,
        key: stopped(1),
        ..FamilyState::default()
    };
    let mut time = |time_ns, since_ns, now_ns| {
        let mut read = HealthReading {
            rows: vec![row(stopped(1), time_ns), row(stopped(2), 7)],
            families: vec![state(since_ns)],
            now_ns,
            ..HealthReading::default()
        };
        complete(&mut read, &mut told);
        assert_eq!(read.rows[1], row(stopped(2), 7));
        read.rows[0].1.time_ns
    };
    assert_eq!(time(0, 100, 150), 50);
    assert_eq!(time(0, 100, 190), 90);
    // Judged again between two maps that were read: what was until then is in neither.
    assert_eq!(time(0, 200, 210), 90);
    assert_eq!(time(100, 200, 230), 130);
}

#[test]
fn a_family_that_is_not_held_back_takes_no_time() {
    let mut read = HealthReading {
        rows: vec![row(HealthKey::default(), 0)],
        families: vec![FamilyState::default()],
        now_ns: 1000,
        ..HealthReading::default()
    };
    complete(&mut read, &mut HashMap::new());
    assert_eq!(read.rows[0].1.time_ns, 0);
}
