use super::*;

fn slot_of(role: u8) -> u32 {
    let mut roles = FUNCTIONS.iter().map(|one| one.role);
    roles.position(|known| known == role).unwrap() as u32
}

fn judged(held: u8, cause: u16) -> (HealthKey, HealthSums) {
    let key = HealthKey {
        slot: slot_of(role::JUDGE),
        judgement: Judgement {
            held,
            has_cause: 1,
            cause,
        },
        family: 11,
        name: *b"10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ..HealthKey::default()
    };
    let sums = HealthSums {
        count: 2,
        time_ns: 5,
    };
    (key, sums)
}

fn rows(rows: Vec<(HealthKey, HealthSums)>) -> Vec<(String, String, u64)> {
    let read = HealthReading {
        rows,
        ..HealthReading::default()
    };
    let rows = RocksDbHealth.rows(&read).into_iter();
    rows.map(|row| (row.row, row.part.1, row.figures.sums[&STALLED.key()]))
        .collect()
}

#[test]
fn there_are_as_many_functions_as_slots_at_most_and_each_is_there_once() {
    assert!(FUNCTIONS.len() <= crate::mechanism::health::SLOTS);
    for (place, function) in FUNCTIONS.iter().enumerate() {
        let mut others = FUNCTIONS[..place].iter();
        assert!(others.all(|other| other.name != function.name && other.symbol != function.symbol));
    }
}

#[test]
fn causes_are_named_by_the_number_that_no_cause_has() {
    let told = |none, cause| rows(vec![judged(held::NOT, none), judged(held::STOPPED, cause)]);
    let one = |row: &str| vec![(row.to_string(), "10".to_string(), 5)];
    for (none, first) in [(0, 1), (6, 0)] {
        assert_eq!(told(none, first), one("StoppedByMemtables"));
        assert_eq!(told(none, first + 1), one("StoppedByLevel0Files"));
        assert_eq!(told(none, first + 2), one("StoppedByPendingBytes"));
        assert_eq!(told(none, first + 3), one("StoppedByUnknown"));
    }
    assert_eq!(told(4, 1), one("StoppedByUnknown"));
    assert_eq!(rows(vec![judged(held::DELAYED, 1)]), one("DelayedByUnknown"));
    // Two numbers for none are no numbering.
    let both = vec![judged(held::NOT, 0), judged(held::NOT, 6), judged(held::DELAYED, 1)];
    assert_eq!(rows(both), one("DelayedByUnknown"));
}

#[test]
fn keys_of_one_name_are_one_row() {
    let unknown = vec![judged(held::STOPPED, 1), judged(held::STOPPED, 2)];
    let sum = vec![("StoppedByUnknown".to_string(), "10".to_string(), 10)];
    assert_eq!(rows(unknown), sum);
}

#[test]
fn a_failure_has_the_words_of_rocksdb() {
    let words = |code, subcode, severity| {
        failure(StatusHead {
            code,
            subcode,
            severity,
            is_unknown: 0,
        })
    };
    assert_eq!(words(14, 0, 0), "CompactionTooLarge");
    assert_eq!(words(5, 4, 2), "IOError/NoSpace hard");
    assert_eq!(words(2, 0, 4), "Corruption unrecoverable");
    assert_eq!(words(23, 31, 7), "code 23/subcode 31 severity 7");
}

fn told(role: u8, status: StatusHead, text: &str) -> Option<HealthIncident> {
    let mut bytes = [0; 256];
    bytes[..text.len()].copy_from_slice(text.as_bytes());
    RocksDbHealth.event(&HealthEvent {
        time_ns: 0,
        duration_ns: 0,
        key: HealthKey {
            slot: slot_of(role),
            reason: 1,
            status,
            ..HealthKey::default()
        },
        numbers: [3, 4],
        thread: 1,
        padding: 0,
        thread_name: [0; 16],
        text: bytes,
    })
}

#[test]
fn an_error_is_told_with_its_text_and_before_any_slow_call() {
    let hard = StatusHead {
        code: 5,
        subcode: 4,
        severity: 2,
        is_unknown: 0,
    };
    let incident = told(role::ERROR, hard, "no room: \u{1b}[2J").unwrap();
    assert_eq!(incident.row, "BackgroundError");
    assert_eq!(
        incident.details,
        [
            (
                "error",
                Detail::Text("Compaction IOError/NoSpace hard: no room: \\u{1b}[2J".to_string())
            ),
            (NOTABLE, Detail::Mark)
        ]
    );
    let hour = 3_600_000_000_000;
    assert!(incident.weight > hour);
    assert!(incident.weight < MOST_WEIGHT);
    let soft = StatusHead { severity: 1, ..hard };
    let soft = told(role::ERROR, soft, "").unwrap();
    assert!(soft.weight < incident.weight);
    assert_eq!(soft.details.len(), 1);
}

#[test]
fn what_is_no_failure_is_not_told() {
    for (code, subcode) in [(8, 0), (11, 0), (15, 0), (7, 11)] {
        let status = StatusHead {
            code,
            subcode,
            ..StatusHead::default()
        };
        assert_eq!(told(role::OUTCOME, status, ""), None, "{code}/{subcode}");
    }
}

#[test]
fn numbers_of_another_line_are_not_told() {
    let details = |text| told(role::ROOM, StatusHead::default(), text).unwrap().details;
    let line = "[%s:199] free space [%lu bytes] is less than needed headroom [%zu bytes]\n";
    let names = |text| details(text).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(line), ["columnFamily", "freeBytes", "neededBytes"]);
    assert_eq!(names("[%s:12] something else %lu"), ["columnFamily"]);
}
