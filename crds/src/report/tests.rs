use serde_json::{Value, json};

use super::*;
use crate::Distribution;
use crate::figures::MAX_MEASURES;

fn row(key: &str) -> RowReport {
    let duration = Distribution {
        histogram: [(104, 5), (105, 7)].into_iter().collect(),
        sum: 12_000,
        unmeasured: 1,
    };
    RowReport {
        key: key.to_owned(),
        total: Figures {
            sums: [("bytes".into(), 7)].into(),
            distributions: [("duration".into(), duration)].into(),
            ..Figures::default()
        },
        parts: vec![PartReport {
            key: "a \"part\"".to_owned(),
            ..PartReport::default()
        }],
        ..RowReport::default()
    }
}

fn of(rows: Vec<RowReport>) -> ProbeReport {
    ProbeReport {
        name: "storage".to_owned(),
        rows,
        ..ProbeReport::default()
    }
}

fn read(rows: &Value) -> Result<ProbeReport, String> {
    let report = json!({
        "name": "storage", "kind": "rocksdb", "state": "Attached", "rowsJson": rows.to_string(),
    });
    serde_json::from_value(report).map_err(|error| error.to_string())
}

#[test]
fn rows_are_one_text_whatever_they_hold() {
    let report = of(vec![row("Get"), row("Write")]);
    let written = serde_json::to_value(&report).unwrap();
    let text = written["rowsJson"].as_str().unwrap();
    let rows: Vec<RowReport> = serde_json::from_str(text).unwrap();
    assert_eq!(rows, report.rows);
    assert_eq!(written.get("rows"), None);
    assert_eq!(
        serde_json::from_value::<ProbeReport>(written).unwrap(),
        report
    );
    // From a stream, too, where the text cannot be borrowed.
    let stream = serde_json::to_vec(&report).unwrap();
    assert_eq!(
        serde_json::from_reader::<_, ProbeReport>(&*stream).unwrap(),
        report
    );
}

#[test]
fn no_rows_are_not_written() {
    let written = serde_json::to_value(of(Vec::new())).unwrap();
    assert_eq!(written.get("rowsJson"), None);
    assert_eq!(
        serde_json::from_value::<ProbeReport>(written).unwrap().rows,
        []
    );
}

#[test]
fn more_than_an_agent_writes_is_not_read() {
    let rows = |count: usize| json!(vec![json!({ "key": "Get" }); count]);
    assert_eq!(
        read(&rows(MAX_ROWS + 1)).map(|report| report.rows.len()),
        Ok(MAX_ROWS + 1)
    );
    let refused = |what: &str| Err(format!("rowsJson has more {what} than a report may have"));
    assert_eq!(read(&rows(MAX_ROWS + 2)), refused("rows"));
    let parts = |count: usize| json!([{ "key": "Get", "parts": rows(count) }]);
    assert!(read(&parts(MAX_PARTS + 1)).is_ok());
    assert_eq!(read(&parts(MAX_PARTS + 2)), refused("parts of a row"));
    let sums = |count: usize| -> Value {
        let sums: BTreeMap<String, u64> = (0..count).map(|one| (format!("{one}"), 1)).collect();
        json!({ "sums": sums })
    };
    assert!(read(&json!([{ "key": "Get", "total": sums(MAX_MEASURES) }])).is_ok());
    assert_eq!(
        read(&json!([{ "key": "Get", "total": sums(MAX_MEASURES + 1) }])),
        refused("measures")
    );
    let deep = json!([{ "key": "Get", "parts": [{ "key": "x", "window": { "figures": sums(MAX_MEASURES + 1) } }] }]);
    assert_eq!(read(&deep), refused("measures"));
    assert!(
        read(&json!("no list"))
            .unwrap_err()
            .contains("expected a sequence")
    );
}

#[test]
fn a_report_says_what_it_lacks_and_whether_anything_is_left_out() {
    let mut report = of(Vec::new());
    assert!(!report.lacks(Reason::ReportTruncated));
    for reason in [Reason::SymbolNotFound, Reason::ReportTruncated] {
        report.lacks.push(Lack {
            reason,
            items: Vec::new(),
        });
    }
    assert!(report.lacks(Reason::ReportTruncated) && report.lacks(Reason::SymbolNotFound));
    assert!(!report.lacks(Reason::MemoryLimit));
    assert!(Omitted::default().is_nothing());
    let omitted = Omitted {
        events: 1,
        ..Omitted::default()
    };
    assert!(!omitted.is_nothing());
}
