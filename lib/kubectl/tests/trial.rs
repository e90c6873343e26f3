//! `kubectl ckbprobe try`, against an API server that is played: in a real terminal, and without one.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod played;

use std::{
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_testkit::terminal::Terminal;
use ckb_probe_views::document::{Document, View};
use played::Server;

const PATIENCE: Duration = Duration::from_secs(60);

fn asked(server: &Server, arguments: &[&str]) -> Command {
    let mut command = server.plugin();
    command
        .args(["try", "storage", "-l", "app=ckb"])
        .args(arguments);
    command
}

/// The only CkbProbe that was made, which is gone.
fn made_and_removed(server: &Server) -> String {
    let state = server.state.lock().unwrap();
    assert_eq!(state.probes.len(), 1, "only steady is left");
    assert_eq!(state.deleted.len(), 1);
    state.deleted[0].clone()
}

#[test]
fn it_is_made_shown_and_removed() {
    let server = Server::start();
    let output = asked(&server, &["--for", "1s", "-o", "json"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    let name = made_and_removed(&server);
    assert!(name.starts_with("try-storage-"), "{name}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            format!("made CkbProbe e2e-soak/{name}"),
            "AgentStarting: agent pod ckb-probe-agent-node0 is starting".to_owned(),
            format!("removed CkbProbe e2e-soak/{name}"),
        ]
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let View::Figures(figures) = Document::read(text.lines().next().unwrap()).unwrap().view else {
        panic!("{text}");
    };
    assert!(figures.ready);
    assert_eq!(figures.headline, "storage 733/s p99 96.3us");
}

#[test]
fn what_never_counts_is_told_why_and_removed() {
    let server = Server::start();
    server.state.lock().unwrap().stuck = true;
    let output = asked(&server, &["--wait", "1s"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let name = made_and_removed(&server);
    assert!(
        said.contains("\n× pods: no pod of namespace e2e-soak matches app=nobody\n"),
        "{said}"
    );
    assert!(
        said.contains(&format!("× broken first: pods of e2e-soak/{name}\n")),
        "{said}"
    );
}

#[test]
fn whoever_may_not_make_one_is_told_so_in_a_sentence() {
    let server = Server::start();
    server.state.lock().unwrap().forbidden = true;
    let output = asked(&server, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.starts_with("ckbprobe: you may not make a CkbProbe in namespace e2e-soak: "),
        "{said}"
    );
    assert_eq!(server.state.lock().unwrap().deleted.len(), 0);
}

#[test]
fn what_would_be_made_is_printed_and_nothing_is_made() {
    let server = Server::start();
    let output = asked(&server, &["-n", "ckb", "--print-only"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stdout).unwrap();
    let probe: ckb_probe_crds::CkbProbe = serde_yaml::from_str(&text).unwrap();
    assert_eq!(probe.metadata.name.as_deref(), Some("try-storage"));
    assert_eq!(probe.metadata.namespace.as_deref(), Some("ckb"));
    assert_eq!(server.state.lock().unwrap().probes.len(), 1);
    let wrong = server
        .plugin()
        .args(["try", "nothing", "-l", "app=ckb"])
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        said.contains(
            "storage, latency, network, disk, flames, blocks, fiber, light-client, everything"
        ),
        "{said}"
    );
}

#[test]
fn a_preset_is_about_an_executable_of_its_own_unless_another_is_named() {
    let server = Server::start();
    let executable = |arguments: &[&str]| {
        let mut command = server.plugin();
        command.arg("try").args(arguments);
        let output = command
            .args(["-l", "app=node", "--print-only"])
            .output()
            .unwrap();
        let probe: ckb_probe_crds::CkbProbe = serde_yaml::from_slice(&output.stdout).unwrap();
        probe.spec.target.executable
    };
    assert_eq!(executable(&["storage"]), "ckb");
    assert_eq!(executable(&["fiber"]), "fnn");
    assert_eq!(executable(&["light-client"]), "ckb-light-client");
    assert_eq!(executable(&["fiber", "--executable", "ckb"]), "ckb");
}

#[test]
fn signals_of_each_kind_remove_it() {
    for signal in ["INT", "TERM", "HUP"] {
        let server = Server::start();
        let mut child = asked(&server, &[])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until(|| server.state.lock().unwrap().probes.len() == 2);
        thread::sleep(Duration::from_millis(100));
        let told = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status();
        assert!(told.unwrap().success());
        child.wait().unwrap();
        made_and_removed(&server);
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "it did not come to that");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn in_a_terminal_it_is_redrawn_and_ctrl_c_removes_it() {
    let server = Server::start();
    let terminal = Terminal::open(80, 24);
    terminal.run(&format!(
        "clear; KUBECONFIG={} {} try storage -l app=ckb; echo code $?",
        server.kubeconfig.display(),
        env!("CARGO_BIN_EXE_kubectl-ckbprobe"),
    ));
    terminal.until("that it begins", |seen| {
        seen.contains(" s  AgentStarting: agent pod ckb-probe-agent-node0 is starting")
    });
    let figures = "storage: 733/s p99 96.3us";
    terminal.until("figures", |seen| seen.contains(figures));
    // A report later it is drawn over.
    thread::sleep(Duration::from_secs(2));
    let shown = terminal.screen();
    let lines: Vec<&str> = shown.trim_end().lines().collect();
    assert_eq!(lines.len(), 7, "{shown}");
    assert!(
        lines[0].starts_with("made CkbProbe e2e-soak/try-storage-"),
        "{shown}"
    );
    assert!(
        lines[1].ends_with("   costs 0.4% of the CPU time"),
        "{shown}"
    );
    assert_eq!(
        lines[3..6],
        [
            figures,
            "OPERATION                PER SECOND        P50        P99        MAX    SAMPLED",
            "Get                             733     1.82us     96.3us     98.1us       100%",
        ]
    );
    terminal.press("C-c");
    terminal.until("that it is removed", |seen| {
        seen.contains("removed CkbProbe e2e-soak/") && seen.contains("code 0")
    });
    made_and_removed(&server);
}
