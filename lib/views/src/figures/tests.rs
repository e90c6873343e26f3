use ckb_probe_crds::CkbProbe;

use super::*;

fn probe() -> CkbProbe {
    serde_yaml::from_str(include_str!("../diagnosis/tests/objects/ckbprobe.yaml")).unwrap()
}

#[test]
fn a_status_is_a_table_of_80_columns() {
    let mut probe = probe();
    let status = probe.status.as_mut().unwrap();
    status.probes[0].events = vec![EventStatus {
        time: Some(serde_json::from_str("\"2026-11-22T12:16:32.156226Z\"").unwrap()),
        pod: "ckb-0".to_owned(),
        row: "TxnPut".to_owned(),
        part: Some("BLOCK_HEADER".to_owned()),
        thread: "ChainService".to_owned(),
        text: "2.29ms, 272 bytes".to_owned(),
        ..EventStatus::default()
    }];
    let figures = of(&probe).unwrap();
    assert!(figures.ready);
    assert_eq!(
        figures.text(8),
        "e2e-soak/steady   costs 0.4% of the CPU time\n\
         \n\
         storage: 733/s p99 96.3us\n\
         OPERATION                PER SECOND        P50        P99        MAX    SAMPLED\n\
         Get                             733     1.82us     96.3us     98.1us       100%\n\
         TxnCommit                         0          -          -          -       100%\n\
         12:16:32.156 ckb-0 TxnPut BLOCK_HEADER: 2.29ms, 272 bytes (ChainService)\n"
    );
    assert!(figures.text(1).contains("\nand 1 rows more\n"));
}

#[test]
fn nothing_is_wider_than_a_terminal_whatever_it_is() {
    let mut probe = probe();
    let status = probe.status.as_mut().unwrap();
    status.probes[0].headline = "x".repeat(300);
    status.probes[0].rows[0].key = "a name\u{1b}[2J".repeat(20);
    let text = of(&probe).unwrap().text(8);
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'));
}

#[test]
fn progress_is_what_the_operator_says_of_being_ready() {
    let mut probe = probe();
    assert_eq!(progress(&probe), "Firing: 1 of 1 targets fires");
    probe.status = None;
    assert_eq!(progress(&probe), "the operator has yet to answer");
    assert_eq!(of(&probe), None);
}
