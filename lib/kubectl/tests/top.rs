//! `kubectl ckbprobe top`, `heatmap` and `blocks`, against an API server that is played; and a terminal that is given back.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod played;

use std::{env, process::Output};

use ckb_probe_kubectl::show_on_terminal;
use ckb_probe_testkit::Terminal;
use ckb_probe_views::document::{Document, View};
use played::Server;
use serde_json::json;

/// Bucket 112 begins at 1,024 ns.
fn tell_rows(server: &Server) {
    let rows = json!([{ "key": "Get", "window": { "milliseconds": 1000, "recordedMilliseconds": 1000, "figures":
        { "distributions": { "duration": { "histogram": "112:3 176:1", "sum": 9_000_000 } } } } }]);
    server.state.lock().unwrap().rows = Some(rows.to_string());
}

fn asked(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = server.plugin().args(arguments).output().unwrap();
    let [printed, said] = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap());
    (status.code(), printed, said)
}

#[test]
fn one_picture_of_a_cluster_has_each_target_and_its_rows() {
    let server = Server::start();
    tell_rows(&server);
    let (code, text, said) = asked(&server, &["top", "--once"]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("ckbprobe top  namespace e2e-soak  1 measured  costs 0.4%  "),
        "{text}"
    );
    assert!(lines[2].starts_with("- steady/fixture storage "), "{text}");
    let words: Vec<&str> = lines[3].split_whitespace().collect();
    assert_eq!(words[..2], ["Get", "4"], "{text}");
    assert_eq!(words[3], "0.9%", "9 ms of a second: {text}");
    let (code, line, _) = asked(&server, &["top", "steady", "-o", "json"]);
    let View::Top(top) = Document::read(&line).unwrap().view else {
        panic!("{line}");
    };
    assert_eq!(
        (code, top.targets[0].target.as_str()),
        (Some(0), "steady/fixture")
    );
    let (code, text, _) = asked(&server, &["top", "other", "--once"]);
    assert_eq!((code, text.lines().count()), (Some(1), 2), "{text}");
    // No pod has that label.
    let (code, _, _) = asked(&server, &["top", "-l", "app=other", "--once"]);
    assert_eq!(code, Some(1));
}

#[test]
fn whoever_may_not_list_nodeprobes_is_shown_all_targets_together_and_told_so() {
    let server = Server::start();
    server.state.lock().unwrap().private = true;
    let (code, text, said) = asked(&server, &["top", "--once"]);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("- e2e-soak/steady (1/1 targets) storage"),
        "{text}"
    );
    assert!(said.contains("you may not list nodeprobes"), "{said}");
}

#[test]
fn it_is_live_in_a_terminal_and_says_when_the_api_server_is_gone() {
    let server = Server::start();
    tell_rows(&server);
    let terminal = Terminal::open(80, 24);
    let program = env!("CARGO_BIN_EXE_kubectl-ckbprobe");
    terminal.run(&format!(
        "KUBECONFIG={} {program} top",
        server.kubeconfig.display()
    ));
    terminal.until("a row", |seen| seen.contains("    Get "));
    server.state.lock().unwrap().private = true;
    terminal.until("that it is private", |seen| {
        seen.contains("all targets together: ")
    });
    terminal.write("q");
    terminal.until("the shell", |seen| !seen.contains("q quit"));
    assert!(!terminal.is_taken());
    terminal.run("echo and; echo on");
    terminal.until("what is typed next", |seen| seen.contains("and\non\n"));
    for signal in ["INT", "TERM", "HUP"] {
        let pid = server.kubeconfig.with_extension("pid");
        terminal.run(&format!(
            "clear; sh -c 'echo $$ > {}; KUBECONFIG={} exec {program} top'; echo over",
            pid.display(),
            server.kubeconfig.display()
        ));
        terminal.until(signal, |seen| seen.contains("TARGET, ROW"));
        let pid = std::fs::read_to_string(pid).unwrap();
        let told = std::process::Command::new("kill")
            .args(["-s", signal, pid.trim()])
            .status();
        assert!(told.unwrap().success());
        terminal.until(signal, |seen| seen.lines().any(|line| line == "over"));
        assert!(!terminal.is_taken(), "{signal}");
    }
}

#[test]
fn a_heatmap_of_a_cluster_is_drawn_and_told() {
    let server = Server::start();
    tell_rows(&server);
    let (code, text, _) = asked(&server, &["heatmap", "steady", "Get", "--for", "1s"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("e2e-soak/steady storage: Get: duration, by report interval"),
        "{text}"
    );
    assert!(text.contains("1us |@"), "{text}");
    let (_, line, _) = asked(&server, &["heatmap", "steady", "--for", "1s", "-o", "json"]);
    let View::Distribution(one) = Document::read(line.lines().next().unwrap()).unwrap().view else {
        panic!("{line}");
    };
    assert_eq!((one.row.as_str(), one.count), ("Get", 4));
    let (code, _, said) = asked(
        &server,
        &["heatmap", "steady", "--probe", "other", "--for", "1s"],
    );
    assert_eq!(code, Some(1));
    assert!(
        said.contains("has no probe that tells how long something took"),
        "{said}"
    );
}

#[test]
fn blocks_of_a_cluster_are_listed_by_height() {
    let server = Server::start();
    let (code, _, said) = asked(&server, &["blocks", "steady"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("has no probe of the kind chain"), "{said}");
    let event = |height: u64, duration: &str| {
        json!({ "time": "2026-11-22T12:16:33.000000Z", "pod": "steady", "container": "fixture", "row": "accepted",
        "text": duration, "details": { "height": height.to_string(), "duration": duration } })
    };
    {
        let mut state = server.state.lock().unwrap();
        let probe = &mut state.probes.get_mut("steady").unwrap().0;
        probe["spec"]["probes"] = json!([{ "name": "blocks", "chain": { "threshold": "0s" } }]);
    }
    let (code, _, said) = asked(&server, &["blocks", "steady"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("no block is listed"), "{said}");
    server.state.lock().unwrap().events = Some(json!([event(7, "9ms"), event(8, "2ms")]));
    let (code, text, _) = asked(&server, &["blocks", "steady"]);
    assert_eq!(code, Some(0));
    let heights: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(first, _)| first)
        .collect();
    assert_eq!(
        heights[1..],
        ["HEIGHT", "8", "7", "HEIGHT", "7", "8"],
        "{text}"
    );
    let (_, lines, _) = asked(&server, &["blocks", "steady", "-o", "json"]);
    let View::Event(one) = Document::read(lines.lines().next().unwrap()).unwrap().view else {
        panic!("{lines}");
    };
    assert_eq!(one.event.details["height"], "7");
}

/// What this program is told where it is to take a terminal and to panic.
const PANICS: &str = "CKB_PROBE_TEST_PANICS";

#[test]
fn after_a_panic_the_terminal_is_as_it_was() {
    if env::var_os(PANICS).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (_told, tells) = tokio::sync::mpsc::channel(1);
        runtime.block_on(async {
            tokio::select! {
                biased;
                shown = show_on_terminal("a title".to_owned(), tells, async || None) => shown.unwrap(),
                () = tokio::time::sleep(std::time::Duration::from_millis(1_500)) => panic!("something is wrong"),
            }
        });
        return;
    }
    let terminal = Terminal::open(80, 24);
    terminal.run("stty -a | cksum");
    let before = terminal.until("a checksum", |seen| seen.lines().any(is_checksum));
    let own = env::current_exe().unwrap();
    terminal.run("clear");
    terminal.run(&format!(
        "RUST_BACKTRACE=0 {PANICS}=1 {} --exact after_a_panic_the_terminal_is_as_it_was --nocapture",
        own.display()
    ));
    terminal.until("the screen", |seen| seen.starts_with("a title"));
    assert!(terminal.is_taken());
    terminal.until("what it says", |seen| seen.contains("something is wrong"));
    assert!(!terminal.is_taken());
    terminal.run("clear; stty -a | cksum");
    let after = terminal.until("a checksum", |seen| seen.lines().any(is_checksum));
    assert_eq!(checksum(&before), checksum(&after));
}

fn is_checksum(line: &str) -> bool {
    let mut words = line.split(' ');
    words
        .next()
        .is_some_and(|first| first.len() > 5 && first.parse::<u64>().is_ok())
}

fn checksum(seen: &str) -> Option<&str> {
    seen.lines().find(|line| is_checksum(line))
}
