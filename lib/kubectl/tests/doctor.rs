//! `kubectl ckbprobe doctor`, against an API server that is played.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod played;

use std::{
    process::Output,
    thread,
    time::{Duration, Instant},
};

use ckb_probe_views::{
    diagnosis::{Diagnosis, Mark, Place},
    document::{Document, View},
};
use played::Server;
use serde_json::json;

fn doctor(server: &Server, arguments: &[&str]) -> (Output, String) {
    let output = server
        .plugin()
        .arg("doctor")
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

fn diagnosis(text: &str) -> Diagnosis {
    match Document::read(text).unwrap().view {
        View::Diagnosis(diagnosis) => diagnosis,
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn all_is_well_at_each_place_and_the_exit_code_says_so() {
    let server = Server::start();
    let (output, text) = doctor(&server, &["steady"]);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.ends_with("√ all is as it should be\n"), "{text}");
    assert!(
        text.contains("\n√ pods: 1 pod of app=steady runs\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "command line 0.1.0, API server v1.34.4, operator 0.1.0, agent on node0 0.1.0"
        ),
        "{text}"
    );
    let (output, text) = doctor(&server, &["steady", "-o", "short"]);
    assert_eq!((output.status.code(), text.as_str()), (Some(0), ""));
}

#[test]
fn what_is_broken_first_is_in_the_json_that_our_own_reader_takes() {
    let server = Server::start();
    let stop = |probe: &mut serde_json::Value| {
        probe["status"]["targets"]["attached"] = json!(0);
        let instance = &mut probe["status"]["instances"][0];
        instance["state"] = json!("Failed");
        instance["reason"] = json!("SymbolNotFound");
        instance["message"] = json!("the executable is stripped");
    };
    stop(
        &mut server
            .state
            .lock()
            .unwrap()
            .probes
            .get_mut("steady")
            .unwrap()
            .0,
    );
    let (output, text) = doctor(&server, &["-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let found = diagnosis(&text);
    let first = found.first_failure().unwrap();
    assert_eq!(
        (first.place, first.subject.as_deref()),
        (Place::Symbols, Some("e2e-soak/steady"))
    );
    assert_eq!(first.next, ["kubectl -n e2e-soak edit ckbprobe steady"]);
    let (output, text) = doctor(&server, &["-A", "-o", "short"]);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let (_, missing) = doctor(&server, &["other"]);
    assert!(
        missing.contains("× there is no CkbProbe other in namespace e2e-soak: it has steady\n"),
        "{missing}"
    );
}

#[test]
fn without_a_cluster_that_is_the_finding() {
    let server = Server::start();
    // Nobody listens there.
    let config = std::fs::read_to_string(&server.kubeconfig).unwrap();
    let port = config
        .split("127.0.0.1:")
        .nth(1)
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    std::fs::write(&server.kubeconfig, config.replace(port, "1")).unwrap();
    let (output, text) = doctor(&server, &["-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let found = diagnosis(&text);
    assert_eq!(found.findings.len(), 1);
    let text = &found.findings[0].text;
    assert!(
        text.starts_with("the API server cannot be reached: ") && text.contains("refused"),
        "{text}"
    );

    let output = server
        .plugin()
        .args(["doctor", "--kubeconfig", "/nowhere", "-o", "short"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("× cluster: cannot find a cluster: "),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(1));
    let output = server
        .plugin()
        .args(["doctor", "--output", "none"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn it_waits_until_all_is_well_and_no_longer() {
    let server = Server::start();
    let break_it = |attached: u32| {
        let mut state = server.state.lock().unwrap();
        let probe = &mut state.probes.get_mut("steady").unwrap().0;
        probe["metadata"]["generation"] = json!(2 - attached);
    };
    break_it(0);
    let began = Instant::now();
    let (output, _) = doctor(&server, &["steady", "--wait", "3s"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(began.elapsed() > Duration::from_secs(1), "it looked once");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_secs(1));
            break_it(1);
        });
        let (output, text) = doctor(&server, &["steady", "--wait", "1m", "-o", "json"]);
        assert_eq!(output.status.code(), Some(0), "{text}");
        assert!(
            diagnosis(&text)
                .findings
                .iter()
                .all(|one| one.mark == Mark::Passed)
        );
    });
    assert!(began.elapsed() < Duration::from_secs(30));
}
