use serde_json::{Value, json};

use super::{super::statistics::summary, *};

fn machine() -> Machine {
    Machine {
        cpu: "A | B".to_string(),
        cores: 2,
        memory_bytes: 3 << 30,
        kernel: "6.18.0".to_string(),
        ckb_probe: "0123456789ab".to_string(),
        ckb: Some("ckb 0.210.0".to_string()),
        bpftrace: Some("bpftrace v0.17.0".to_string()),
        rustc: "rustc 1.95.0".to_string(),
    }
}

fn report() -> Report {
    let mut report = Report::default();
    let mut add = |name: &str, values: &[f64], bound| {
        let figure = summary(values.iter().copied()).unwrap();
        report.figure(name.to_string(), figure, "x", bound);
    };
    add("met", &[1.0, 3.0, 2.0], Some(Bound::AtMost(2.0)));
    add("missed", &[2.10049], Some(Bound::AtMost(2.0)));
    add("for comparison", &[9.0], None);
    report
}

#[test]
fn a_row_says_what_was_measured_and_whether_that_is_enough() {
    let report = report();
    assert_eq!(report.tally(), (1, 1));
    assert!(report.is_complete());
    let rows = serde_json::to_value(&report.rows).unwrap();
    assert_eq!(
        rows[0],
        json!({
            "name": "met", "value": 2.0, "unit": "x", "bound": "<= 2", "met": true,
            "spread": [1.0, 3.0], "values": 3, "why": null,
        })
    );
    assert_eq!(
        (&rows[1]["value"], &rows[1]["met"]),
        (&json!(2.1), &json!(false))
    );
    assert_eq!(
        (&rows[2]["bound"], &rows[2]["met"]),
        (&Value::Null, &Value::Null)
    );
}

#[test]
fn what_could_not_be_measured_is_a_row_with_the_reason() {
    let mut report = report();
    report.failure("mining".to_string(), "no node".to_string());
    assert!(!report.is_complete());
    assert_eq!(report.tally(), (1, 2));
    assert_eq!(report.rows[3].why.as_deref(), Some("no node"));
}

#[test]
fn what_the_machine_does_not_have_is_a_row_with_the_reason_and_no_fault() {
    let mut report = report();
    report.absent("kernel-functions".to_string(), "no kprobes".to_string());
    assert!(report.is_complete());
    assert_eq!(report.tally(), (1, 1));
    assert_eq!(
        line(&report.rows[3]),
        "        kernel-functions: not there\n                   no kprobes"
    );
}

#[test]
fn both_files_say_machine_kernel_versions_and_every_row() {
    let folder = tempfile::tempdir().unwrap();
    let report = report();
    report.write(folder.path(), &machine()).unwrap();
    let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
    let json: Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(json["machine"]["kernel"], "6.18.0");
    assert_eq!(json["machine"]["memoryBytes"], 3_221_225_472_u64);
    assert_eq!(json["rows"].as_array().unwrap().len(), 3);
    let markdown = read("report.md");
    for fact in [
        r"A \| B, 2 cores",
        "3.0 GiB",
        "6.18.0",
        "0123456789ab",
        "ckb 0.210.0",
        "v0.17.0",
        "1.95.0",
    ] {
        assert!(markdown.contains(fact), "{fact} in {markdown}");
    }
    assert!(
        markdown.contains("| met | 2 x | <= 2 | yes | 1 to 3 | 3 |  |\n"),
        "{markdown}"
    );
    assert!(
        markdown.contains("| missed | 2.1 x | <= 2 | **no** |  | 1 |  |\n"),
        "{markdown}"
    );
}
