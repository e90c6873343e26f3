//! `ckb-probe render --from-cluster` against an API server that knows little.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where it panics, a test fails"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
};

use ckb_probe_crds::{CkbProfile, ProfileMode};
use ckb_probe_profiles::{Frame, Profile, Stack};
use ckb_probe_testkit::{assert_begins, assert_contains, window_of};
use serde_json::{Value, json};

/// With samples of two pods.
fn profile(name: &str, samples: [u64; 2]) -> Value {
    let mut profile = Profile::of(ProfileMode::Cpu);
    for (number, samples) in samples.into_iter().enumerate() {
        profile.stacks.add(&Stack {
            frames: vec![Frame::user("rocksdb_get_pinned_cf", "ckb")],
            thread: "verify_blocks",
            target: &format!("default/ckb-{number}/ckb"),
            weights: &[samples, samples * 10_000_000],
            ..Stack::default()
        });
    }
    let spec = window_of("ckb", ProfileMode::Cpu, 7, 1_000, profile.to_pprof());
    let mut object = serde_json::to_value(CkbProfile::new(name, spec)).unwrap();
    object["metadata"]["namespace"] = "default".into();
    object
}

const PROFILES: &str = "/apis/ckbprobe.dev/v1alpha1/namespaces/default/ckbprofiles";

/// What it answers to a path.
fn answer(path: &str) -> (u16, Value) {
    let refusal = |code: u16, reason: &str| {
        let message = format!("{reason} it is");
        let status = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message });
        (code, status)
    };
    let path = path.split('?').next().unwrap();
    match path.strip_prefix(PROFILES) {
        Some("/ckb.flames.cpu.7") => (200, profile("ckb.flames.cpu.7", [3, 5])),
        Some("/ckb.flames.cpu.8") => (200, profile("ckb.flames.cpu.8", [6, 2])),
        Some("") => {
            let item = |number: u32| {
                json!({ "metadata": {
                    "name": format!("ckb.flames.cpu.{number}"),
                    "creationTimestamp": format!("2026-11-22T12:00:{number:02}Z"),
                } })
            };
            let list = json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {},
                "items": (0..23).map(item).collect::<Vec<_>>(),
            });
            (200, list)
        }
        _ if path.contains("/namespaces/forbidden/") => refusal(403, "Forbidden"),
        _ if path.ends_with("/namespaces/empty/ckbprofiles") => {
            let list = json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "items": [] });
            (200, list)
        }
        _ => refusal(404, "NotFound"),
    }
}

/// Reads requests without a body, and answers each.
fn serve(stream: &TcpStream) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut stream = stream;
    while let Some(Ok(first)) = lines.next() {
        while lines
            .next()
            .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
        {}
        let (code, object) = answer(first.split(' ').nth(1).unwrap());
        let body = object.to_string();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {code} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        if stream.write_all((head + &body).as_bytes()).is_err() {
            return;
        }
    }
}

/// A kubeconfig for it.
fn kubeconfig() -> PathBuf {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            thread::spawn(move || serve(&stream));
        }
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
    });
    let path =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kubeconfig-{}", address.port()));
    fs::write(&path, config.to_string()).unwrap();
    path
}

fn ckb_probe(kubeconfig: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ckb-probe"));
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn printed(kubeconfig: &Path, arguments: &[&str]) -> String {
    let output = ckb_probe(kubeconfig, arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    String::from_utf8(output.stdout).unwrap()
}

fn refused(kubeconfig: &Path, arguments: &[&str]) -> String {
    let output = ckb_probe(kubeconfig, arguments);
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap().trim().to_owned()
}

#[test]
fn what_a_cluster_has_is_drawn_compared_and_taken_apart_by_target() {
    let kubeconfig = kubeconfig();
    let seven = "default/ckb.flames.cpu.7";
    let render =
        |more: &[&str]| printed(&kubeconfig, &[&["render", "--from-cluster"], more].concat());
    assert_eq!(
        render(&[seven]),
        "verify_blocks;rocksdb_get_pinned_cf 80000000\n"
    );
    // The namespace of the kubeconfig's context.
    assert_eq!(render(&["ckb.flames.cpu.7"]), render(&[seven]));
    let one = render(&[seven, "--target", "default/ckb-1/ckb", "--type", "samples"]);
    assert_eq!(one, "verify_blocks;rocksdb_get_pinned_cf 5\n");
    let by = render(&[seven, "--by", "target", "--type", "samples"]);
    assert_eq!(
        by,
        "default/ckb-0/ckb;rocksdb_get_pinned_cf 3\ndefault/ckb-1/ckb;rocksdb_get_pinned_cf 5\n"
    );
    let diff = [
        "diff",
        "--from-cluster",
        seven,
        "default/ckb.flames.cpu.8",
        "--by",
        "target",
        "--folded",
    ];
    let diff = printed(&kubeconfig, &diff);
    assert_contains(&diff, "default/ckb-0/ckb");
}

#[test]
fn what_is_not_there_is_told_with_what_is() {
    let kubeconfig = kubeconfig();
    let refused = |name: &str| refused(&kubeconfig, &["render", "--from-cluster", name]);
    let missing = refused("default/ckb.flames.cpu.99");
    let newest = (3..23)
        .rev()
        .map(|number| format!("ckb.flames.cpu.{number}"));
    let newest: Vec<String> = newest.collect();
    assert_eq!(
        missing,
        format!(
            "ckb-probe: there is no CkbProfile ckb.flames.cpu.99 in namespace default: it has {}, and 3 more",
            newest.join(", ")
        )
    );
    assert_eq!(
        refused("empty/x"),
        "ckb-probe: there is no CkbProfile x in namespace empty, and no other: a CkbProbe with a probe of the kind profile makes \
         them, when its first window is over"
    );
    assert!(refused("elsewhere/x").starts_with("ckb-probe: the API server has no CkbProfiles: "));
    let forbidden = refused("forbidden/x");
    assert_begins(
        &forbidden,
        "ckb-probe: you may not read CkbProfiles in namespace forbidden: ",
    );
    for name in ["../x", "a/b/c", "A/b", "a/"] {
        let error = refused(name);
        assert!(
            error.contains("is no name of a CkbProfile"),
            "{name}: {error}"
        );
    }
}

#[test]
fn without_a_cluster_the_error_says_where_it_was_looked_for() {
    let error = refused(
        Path::new("/nonexistent/kubeconfig"),
        &["render", "--from-cluster", "a/b"],
    );
    assert_begins(&error, "ckb-probe: cannot find a cluster: ");
    assert_contains(&error, "KUBECONFIG");
}
