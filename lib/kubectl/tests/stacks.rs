//! `kubectl ckbprobe flamegraph`, `threads` and `diff`, against an API server that is played.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod played;

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use ckb_probe_crds::{CkbProfile, ProfileMode, label};
use ckb_probe_profiles::{Frame, Profile, Stack};
use ckb_probe_testkit::{Terminal, assert_contains, window_of};
use ckb_probe_views::document::{Document, View};
use played::Server;
use serde_json::{Value, json};

/// A window of the probe `flames`, by the samples of functions of each of two pods.
fn window(number: u64, mode: ProfileMode, of: &[(&str, [u64; 2])]) -> Value {
    let mut profile = Profile::of(mode);
    for (name, samples) in of {
        for (pod, samples) in samples.iter().enumerate() {
            profile.stacks.add(&Stack {
                frames: vec![Frame::user("main", "ckb"), Frame::user(name, "ckb")],
                thread: "verify_blocks",
                target: &format!("e2e-soak/ckb-{pod}/ckb"),
                state: if mode == ProfileMode::Threads {
                    "sleeping"
                } else {
                    ""
                },
                wait: if mode == ProfileMode::Threads {
                    "[futex]"
                } else {
                    ""
                },
                weights: &[*samples, samples * 10_000_000],
            });
        }
    }
    let name = format!("steady.flames.{}.{number}", mode.as_str().to_lowercase());
    let began = 600 * i64::try_from(number).unwrap();
    let spec = window_of("steady", mode, number, began, profile.to_pprof());
    let mut object = serde_json::to_value(CkbProfile::new(&name, spec)).unwrap();
    object["metadata"]["namespace"] = json!("e2e-soak");
    object["metadata"]["labels"] = json!({
        label::CKB_PROBE: "steady", label::PROBE: "flames", label::MODE: mode.as_str(), label::WINDOW: number.to_string(),
    });
    object
}

/// A server with a CkbProbe that profiles, and these windows.
fn server(windows: Vec<Value>) -> Server {
    let server = Server::start();
    {
        let mut state = server.state.lock().unwrap();
        let probe = &mut state.probes.get_mut("steady").unwrap().0;
        let profile = json!({ "modes": ["Cpu", "Threads"], "every": "10s", "window": "1s" });
        let flames = json!({ "name": "flames", "profile": profile });
        probe["spec"]["probes"].as_array_mut().unwrap().push(flames);
        for window in windows {
            let name = window["metadata"]["name"].as_str().unwrap().to_owned();
            state.profiles.insert(name, window);
        }
    }
    server
}

fn two_windows() -> Vec<Value> {
    vec![
        window(
            9,
            ProfileMode::Cpu,
            &[
                ("read", [150, 150]),
                ("old", [200, 0]),
                ("rest", [250, 250]),
            ],
        ),
        window(
            10,
            ProfileMode::Cpu,
            &[
                ("read", [155, 155]),
                ("new", [0, 150]),
                ("rest", [270, 270]),
            ],
        ),
    ]
}

fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn asked(server: &Server, arguments: &[&str]) -> (Option<i32>, String, String) {
    run(server.plugin().args(arguments))
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn the_newest_window_is_printed_saved_in_each_form_and_told_as_a_document() {
    // By its number: 10 is after 9, though not by letters.
    let server = server(two_windows());
    let (code, text, said) = asked(&server, &["flamegraph", "steady"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        text,
        "e2e-soak/steady.flames.cpu.10: cpu 10.00 s, 30 s from 1970-01-01T01:40:00Z\n\
         Cpu: verification 100 %\n\n   TOTAL    SELF  FUNCTION\n  100.0%    0.0%  main\n   54.0%   54.0%  rest\n   \
         31.0%   31.0%  read\n   15.0%   15.0%  new\n"
    );
    let one = asked(
        &server,
        &["flamegraph", "steady", "ckb-0/cpu", "-o", "json"],
    )
    .1;
    let View::Profile(told) = Document::read(&one).unwrap().view else {
        panic!("{one}");
    };
    assert_eq!((told.mode.as_str(), told.total), ("Cpu", 4_250_000_000));
    assert_eq!(told.target.as_deref(), Some("ckb-0"));
    assert_eq!(told.functions[0].total_percent, "100.0");
    let folder = folder("flamegraph");
    for (name, begins) in [
        ("x.svg", "<?xml"),
        ("x.html", "<!doctype html>"),
        ("x.folded", "verify_blocks;main;new 1500000000\n"),
        ("x.speedscope.json", "{"),
    ] {
        let file = folder.join(name);
        let (code, text, said) = asked(
            &server,
            &["flamegraph", "steady", "-o", file.to_str().unwrap()],
        );
        assert_eq!((code, text.as_str()), (Some(0), ""), "{said}");
        assert_contains(&said, &format!("written to {}", file.display()));
        let written = fs::read_to_string(&file).unwrap();
        assert!(written.starts_with(begins), "{name}: {}", &written[..100]);
    }
    let pprof = folder.join("x.pb.gz");
    let (code, ..) = asked(
        &server,
        &["flamegraph", "steady", "-o", pprof.to_str().unwrap()],
    );
    assert_eq!(code, Some(0));
    let read = Profile::from_pprof(
        &fs::read(&pprof).unwrap(),
        &ckb_probe_profiles::pprof::Limits::FILE,
    );
    assert_eq!(read.unwrap().stacks.total(0), 1000);
    let (code, _, said) = asked(&server, &["flamegraph", "steady", "-o", "x.png"]);
    assert_eq!(code, Some(1));
    assert_contains(
        &said,
        "let its name end in .svg, .html, .folded, .pb.gz or .speedscope.json",
    );
}

#[test]
fn it_is_opened_by_what_the_desktop_opens_files_with() {
    let server = server(two_windows());
    let folder = folder("opened");
    let program = folder.join("xdg-open");
    let opened = folder.join("opened");
    fs::write(
        &program,
        format!("#!/bin/sh\necho \"$1\" > {}\n", opened.display()),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), env::var("PATH").unwrap());
    // Where it could be guessed, somebody else might have led it elsewhere.
    let other = folder.join("other");
    fs::write(&other, "kept").unwrap();
    let guessed = folder.join("e2e-soak-steady.flames.cpu.10.html");
    std::os::unix::fs::symlink(&other, guessed).unwrap();
    let mut plugin = server.plugin();
    plugin.args(["flamegraph", "steady", "--open"]);
    let (code, _, said) = run(plugin.env("PATH", path).env("TMPDIR", &folder));
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
    let page = fs::read_to_string(&opened).unwrap();
    let page = Path::new(page.trim());
    let name = page.file_name().unwrap().to_str().unwrap();
    assert!(
        name.starts_with("e2e-soak-steady.flames.cpu.10.") && name.ends_with(".html"),
        "{name}"
    );
    assert!(
        fs::read_to_string(page)
            .unwrap()
            .starts_with("<!doctype html>")
    );
    // Where there is no desktop the file is there all the same.
    let mut plugin = server.plugin();
    plugin.args(["flamegraph", "steady", "--open"]);
    let (code, _, said) = run(plugin.env("PATH", "/nonexistent").env("TMPDIR", &folder));
    assert_eq!(code, Some(1));
    assert_contains(&said, "is written, and xdg-open cannot open it");
}

#[test]
fn where_there_is_none_the_next_window_is_waited_for_or_that_is_said() {
    let server = server(Vec::new());
    let (code, _, said) = asked(&server, &["flamegraph", "steady", "cpu", "--latest"]);
    assert_eq!(code, Some(1));
    assert_contains(&said, "e2e-soak/steady has no CkbProfile of Cpu yet");
    let coming = window(11, ProfileMode::Cpu, &[("read", [1, 1])]);
    server.state.lock().unwrap().coming = Some((2, coming));
    let (code, text, said) = asked(&server, &["flamegraph", "steady", "cpu"]);
    assert_eq!(code, Some(0), "{said}");
    assert_contains(&text, "steady.flames.cpu.11");
    assert_contains(&said, "e2e-soak/steady Cpu: [");
    assert_eq!(
        said.lines().count(),
        1,
        "a log is not filled by a bar: {said}"
    );
    // Though there is one, if that is asked for.
    let coming = window(12, ProfileMode::Cpu, &[("read", [1, 1])]);
    server.state.lock().unwrap().coming = Some((2, coming));
    let (code, text, _) = asked(&server, &["flamegraph", "steady", "cpu", "--next"]);
    assert_eq!(code, Some(0));
    assert_contains(&text, "steady.flames.cpu.12");
    let (code, _, said) = asked(&server, &["flamegraph", "steady", "memory"]);
    assert_eq!(code, Some(1));
    assert_contains(
        &said,
        "no such probe makes profiles of Memory, but of Cpu, Threads",
    );
    let (code, _, said) = asked(&server, &["flamegraph", "steady", "ckb-7/cpu"]);
    assert_eq!(code, Some(1));
    assert_contains(
        &said,
        "has nothing of the target ckb-7: it has e2e-soak/ckb-0/ckb, e2e-soak/ckb-1/ckb",
    );
}

#[test]
fn in_a_terminal_the_bar_is_drawn_over_and_gone_in_the_end() {
    let server = server(Vec::new());
    let coming = window(11, ProfileMode::Cpu, &[("read", [1, 1])]);
    server.state.lock().unwrap().coming = Some((4, coming));
    let terminal = Terminal::open(80, 24);
    let plugin = env!("CARGO_BIN_EXE_kubectl-ckbprobe");
    let kubeconfig = server.kubeconfig.display();
    terminal.run(&format!(
        "clear; KUBECONFIG={kubeconfig} {plugin} flamegraph steady cpu"
    ));
    terminal.until("a bar", |seen| seen.contains("e2e-soak/steady Cpu: ["));
    let seen = terminal.until("its functions", |seen| seen.contains("SELF  FUNCTION"));
    assert!(!seen.contains("Cpu: ["), "{seen}");
    assert_contains(
        &seen,
        "e2e-soak/steady.flames.cpu.11: cpu 0.02 s, 30 s from",
    );
}

#[test]
fn threads_that_do_the_same_are_listed_together() {
    let server = server(vec![window(9, ProfileMode::Threads, &[("read", [2, 1])])]);
    let (code, text, said) = asked(&server, &["threads", "steady"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(
        text,
        "e2e-soak/steady.flames.threads.9: threads 3, 30 s from 1970-01-01T01:30:00Z\n\
         \n3 threads sleeping, waits for futex\n  verify_blocks (3 of them)\n      main  (ckb)\n      read  (ckb)\n"
    );
    let one = asked(&server, &["threads", "steady", "ckb-1"]).1;
    assert_contains(
        &one,
        "\n1 thread sleeping, waits for futex\n  verify_blocks\n",
    );
}

#[test]
fn two_windows_are_compared_both_sides_what_is_gone_too_and_noise_called_noise() {
    let server = server(two_windows());
    let (code, text, said) = asked(&server, &["diff", "steady"]);
    assert_eq!(code, Some(0), "{said}");
    let table: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.contains("BEFORE"))
        .collect();
    assert_eq!(
        table[1..],
        [
            "  20.00%        -   -20.00   ±3.46  gone   old",
            "       -   15.00%   +15.00   ±3.03  new    new",
            "  50.00%   54.00%    +4.00   ±5.76  noise  rest",
            "  30.00%   31.00%    +1.00   ±5.30  noise  read",
        ]
    );
    // By their names, as a document, of one pod alone.
    let names = ["diff", "steady.flames.cpu.9", "steady.flames.cpu.10"];
    let line = asked(
        &server,
        &[&names[..], &["--of", "ckb-1", "-o", "json"]].concat(),
    )
    .1;
    let View::Difference(found) = Document::read(&line).unwrap().view else {
        panic!("{line}");
    };
    assert_eq!(found.before, "e2e-soak/steady.flames.cpu.9");
    assert_eq!(
        (found.samples_before, found.samples_after),
        (Some(400), Some(575))
    );
    let word = |name: &str| {
        let mut functions = found.functions.iter();
        functions
            .find(|one| one.name == name)
            .map(|one| one.is.as_str())
    };
    assert_eq!((word("old"), word("new")), (None, Some("new")));
    // A picture, and a file that was kept beside what there is now.
    let folder = folder("diff");
    let kept = folder.join("kept.pb.gz");
    let svg = folder.join("x.svg");
    let (kept, svg) = (kept.to_str().unwrap(), svg.to_str().unwrap());
    asked(&server, &["flamegraph", "steady", "-o", kept]);
    let (code, _, said) = asked(&server, &["diff", kept, "steady.flames.cpu.9", "-o", svg]);
    assert_eq!(code, Some(0), "{said}");
    assert_contains(
        &fs::read_to_string(svg).unwrap(),
        "new [gone] (15.00% before, 0.00% after: -15.00)",
    );
    let (code, text, _) = asked(&server, &["diff", kept, "steady", "--folded"]);
    assert_eq!(code, Some(0));
    assert_contains(&text, "verify_blocks;main;read 3100000000 3100000000\n");
    let (code, _, said) = asked(&server, &["diff", "steady", "--of", "threads"]);
    assert_eq!(code, Some(1));
    assert_contains(&said, "has 0 of the two CkbProfiles of Threads");
}
