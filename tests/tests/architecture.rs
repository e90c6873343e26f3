//! What each crate promises of itself, held by Cargo's own graph; and two promises that only the sources can break.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Crates with an effect: the kernel's interfaces, a runtime, a client, a server. (`libc` is declarations, which compressing has too.)
const EFFECTS: &[&str] = &[
    "aya",
    "aya-obj",
    "ckb-probe-bpf",
    "ckb-probe-k8s",
    "crossterm",
    "hyper",
    "kube-client",
    "kube-runtime",
    "nix",
    "procfs",
    "rustix",
    "seccompiler",
    "tokio",
];

/// What a crate depends on by no way.
const FORBIDDEN: &[(&str, &[&str])] = &[
    ("ckb-probe-common", EFFECTS),
    ("ckb-probe-figures", EFFECTS),
    ("ckb-probe-profiles", EFFECTS),
    ("ckb-probe-report", EFFECTS),
    ("ckb-probe-symbols", EFFECTS),
    ("ckb-probe-traces", EFFECTS),
    ("ckb-probe-views", EFFECTS),
    ("ckb-probe-screen", EFFECTS),
    ("ckb-probe-core", EFFECTS),
    ("ckb-probe-crds", EFFECTS),
    (
        "ckb-probe-operator",
        &[
            "aya",
            "aya-obj",
            "ckb-probe-bpf",
            "ckb-probe-common",
            "crossterm",
            "ratatui-core",
        ],
    ),
    (
        "ckb-probe-kubectl",
        &[
            "aya",
            "aya-obj",
            "ckb-probe-bpf",
            "ckb-probe-common",
            "ckb-probe-agent",
        ],
    ),
    ("ckb-probe-k8s", &["ckb-probe-crds", "ckb-probe-bpf"]),
    (
        "ckb-probe-otlp",
        &["ckb-probe-crds", "ckb-probe-bpf", "kube-client"],
    ),
    (
        "ckb-probe-bpf",
        &["ckb-probe-crds", "ckb-probe-core", "kube-client"],
    ),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What a crate depends on, near (`--depth 1`) or far: with the features that it asks for itself, and without what only its tests or
/// its build need.
fn dependencies(name: &str, options: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges=normal"])
        .args(["--prefix=none", "--format={p}", "--package", name])
        .args(options)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names
        .filter(|one| *one != name)
        .map(str::to_string)
        .collect()
}

#[test]
fn pure_crates_depend_on_no_effect() {
    for (name, forbidden) in FORBIDDEN {
        let all = dependencies(name, &[]);
        let strays: Vec<_> = forbidden.iter().filter(|one| all.contains(**one)).collect();
        assert!(strays.is_empty(), "{name} depends on {strays:?}");
    }
}

/// All crates of the agent and of what it stands on, but the one that may.
const OTHERS: [&str; 15] = [
    "ckb-probe-agent",
    "ckb-probe-common",
    "ckb-probe-core",
    "ckb-probe-crds",
    "ckb-probe-figures",
    "ckb-probe-k8s",
    "ckb-probe-kubectl",
    "ckb-probe-operator",
    "ckb-probe-otlp",
    "ckb-probe-profiles",
    "ckb-probe-report",
    "ckb-probe-screen",
    "ckb-probe-symbols",
    "ckb-probe-traces",
    "ckb-probe-views",
];

#[test]
fn one_crate_alone_names_what_loads_programs() {
    let loads = |name: &str| {
        let near = dependencies(name, &["--depth=1"]);
        near.contains("aya") || near.contains("aya-obj")
    };
    assert!(loads("ckb-probe-bpf"));
    for name in OTHERS {
        assert!(!loads(name), "{name} names aya");
    }
}

/// The sources of the agent's crates, without tests, by their paths in the repository.
fn sources(folders: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = folders.iter().map(|one| root().join(one)).collect();
    while let Some(folder) = next.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                next.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push((in_repository(&path), code(&path)));
            }
        }
    }
    found.retain(|(path, _)| !path.contains("tests"));
    assert!(found.len() > 10, "{folders:?} have sources");
    found
}

fn in_repository(path: &Path) -> String {
    let path = path.strip_prefix(root()).unwrap();
    path.to_str().unwrap().to_string()
}

/// A file without comments and tests.
fn code(path: &Path) -> String {
    let source = fs::read_to_string(path).unwrap();
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = source.lines();
    lines
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Messages that name a file of /proc read none.
const MESSAGES: [&str; 2] = [
    "node-agent/src/preflight/checks.rs",
    "node-agent/src/mechanism/kernel_functions.rs",
];

#[test]
fn processes_are_looked_at_in_one_module_alone() {
    for (path, code) in sources(&[
        "node-agent/src",
        "node-agent/core/src",
        "node-agent/symbols/src",
    ]) {
        let may = path.starts_with("node-agent/src/observe") || MESSAGES.contains(&path.as_str());
        assert!(may || !code.contains("/proc/"), "{path} names /proc");
        assert!(may || !code.contains("procfs::"), "{path} uses procfs");
    }
}

#[test]
fn one_crate_of_the_agent_holds_what_is_unsafe() {
    for (path, code) in sources(&[
        "crds/src",
        "lib",
        "node-agent/src",
        "node-agent/core/src",
        "node-agent/symbols/src",
        "operator/src",
    ]) {
        assert!(!code.contains("unsafe {"), "{path} has an unsafe block");
        assert!(
            !code.contains("allow(unsafe_code)"),
            "{path} allows unsafe code"
        );
    }
}
