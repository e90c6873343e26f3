//! `kubectl ckbprobe slow` and `histogram`, against an API server that is played.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod played;

use ckb_probe_views::document::{Document, View};
use played::Server;
use serde_json::json;

#[test]
fn what_is_listed_individually_comes_once_in_its_order() {
    let server = Server::start();
    let event = |time: &str, text: &str| json!({ "time": time, "pod": "steady", "container": "fixture", "row": "TxnPut", "part": "CELL", "text": text });
    {
        let mut state = server.state.lock().unwrap();
        let probe = &mut state.probes.get_mut("steady").unwrap().0;
        probe["status"]["probes"][0]["events"] = json!([
            event("2026-11-22T12:16:33.000000Z", "9ms"),
            event("2026-11-22T12:16:32.156226Z", "2.29ms"),
        ]);
        probe["status"]["probes"][0]["rows"] = json!([
            { "key": "TxnPut", "samplingPercent": "100" },
            { "key": "Get", "samplingPercent": "4.2" },
        ]);
    }
    let slow = |arguments: &[&str]| {
        let mut command = server.plugin();
        command.args(["slow", "--for", "2s"]).args(arguments);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (printed, said) = slow(&[]);
    // A list says once what is not in it.
    assert_eq!(
        said,
        "ckbprobe: e2e-soak/steady: for a part of the time these were not watched, and what came then is not listed: Get\n"
    );
    assert_eq!(
        printed,
        "12:16:32.156 steady TxnPut CELL: 2.29ms\n12:16:33.000 steady TxnPut CELL: 9ms\n"
    );
    let (printed, _) = slow(&["-o", "json"]);
    let views: Vec<View> = printed
        .lines()
        .map(|line| Document::read(line).unwrap().view)
        .collect();
    let texts: Vec<&str> = views
        .iter()
        .filter_map(|view| match view {
            View::Event(one) => Some(one.event.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["2.29ms", "9ms"]);
}

#[test]
fn how_long_a_row_takes_is_shown_by_what_the_agents_told() {
    let server = Server::start();
    let histogram = |arguments: &[&str]| {
        let mut command = server.plugin();
        command.args(["histogram", "steady"]).args(arguments);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            said,
        )
    };
    let (code, _, said) = histogram(&[]);
    assert_eq!(code, Some(1));
    assert!(
        said.starts_with("ckbprobe: nothing was measured of that in the last report interval"),
        "{said}"
    );
    // Bucket 112 begins at 1,024 ns.
    let rows = json!([{ "key": "Get", "window": { "milliseconds": 1000, "recordedMilliseconds": 1000, "figures":
        { "distributions": { "duration": { "histogram": "112:3 176:1", "sum": 9 } } } } }]);
    server.state.lock().unwrap().rows = Some(rows.to_string());
    let (code, text, _) = histogram(&["--row", "Get"]);
    assert_eq!(code, Some(0));
    assert_eq!(text.lines().count(), 5, "{text}");
    assert!(text.starts_with("e2e-soak/steady storage: Get: duration of 4, in the last report interval\n      1us - 2us "), "{text}");
    let (code, _, said) = histogram(&["--row", "Nosuch"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("interval; there is Get: see kubectl ckbprobe"),
        "{said}"
    );
    let (_, line, _) = histogram(&["-o", "json"]);
    let View::Distribution(found) = Document::read(&line).unwrap().view else {
        panic!("{line}");
    };
    assert_eq!((found.count, found.bars.len()), (4, 4));
    assert_eq!(found.bars[0].count, 3);
}
