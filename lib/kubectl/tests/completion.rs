//! Completions, by bash and by kubectl itself; and manual pages.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

mod played;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use played::Server;

const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-ckbprobe");

/// A new folder of this test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    folder
}

/// The kubectl that scripts/setup.sh built, or whichever there is.
fn kubectl() -> PathBuf {
    let home = env::var_os("HOME").unwrap_or_default();
    let cache = env::var_os("CKB_PROBE_CACHE").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| Path::new(&home).join(".cache/ckb-probe"));
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let mut programs = entries.map(|one| one.path().join("bin/kubectl"));
    let built = programs.find(|one| one.exists());
    built.unwrap_or_else(|| "kubectl".into())
}

/// What kubectl offers at the end of these words, with the plugin installed.
fn offered(server: &Server, folder: &Path, words: &[&str]) -> Vec<String> {
    let path = env::var("PATH").unwrap();
    let mut command = Command::new(kubectl());
    command
        .args(["__complete", "ckbprobe"])
        .args(words)
        .env("PATH", format!("{}:{path}", folder.display()))
        .env("KUBECONFIG", &server.kubeconfig);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(ToString::to_string).collect()
}

#[test]
fn kubectl_itself_completes_verbs_presets_and_names_once_the_links_are_made() {
    let server = Server::start();
    let folder = folder("plugin");
    let mut install = server.plugin();
    install
        .args(["completion", "kubectl", "--folder"])
        .arg(&folder);
    // The second time it replaces its own links.
    for _ in 0..2 {
        let output = install.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            said.ends_with("is not on the PATH, where kubectl looks for plugins\n"),
            "{said}"
        );
    }
    let verbs = offered(&server, &folder, &[""]);
    let known = [
        "blocks",
        "completion",
        "cost",
        "diff",
        "doctor",
        "flamegraph",
        "heatmap",
        "help",
        "histogram",
        "man",
        "report",
        "slow",
        "threads",
        "top",
        "try",
    ];
    let mut words: Vec<&str> = verbs
        .iter()
        .map(|one| one.split('\t').next().unwrap())
        .collect();
    words.sort_unstable();
    assert_eq!(words[0], ":4", "files are no verbs");
    assert_eq!(words[1..], known);
    assert_eq!(
        offered(&server, &folder, &["try", "s"]),
        [
            "storage\thow long reads, writes and commits of RocksDB take, on which data",
            ":4"
        ]
    );
    assert_eq!(
        offered(&server, &folder, &["doctor", "-n", "e2e-soak", "st"]),
        ["steady", ":4"]
    );
    assert_eq!(
        offered(&server, &folder, &["doctor", "--context", ""]),
        ["c", ":4"]
    );
    // What is there and no link is somebody's.
    let somebodys = folder.join("kubectl-ckbprobe");
    fs::remove_file(&somebodys).unwrap();
    fs::write(&somebodys, "").unwrap();
    let output = install.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(fs::symlink_metadata(&somebodys).unwrap().is_file());
}

#[test]
fn bash_completes_by_the_script_that_is_printed() {
    let script = format!(
        "source <({PLUGIN} completion bash)\n\
         COMP_WORDS=(kubectl-ckbprobe try st) COMP_CWORD=2\n\
         _kubectl__ckbprobe kubectl-ckbprobe st try\n\
         echo \"${{COMPREPLY[@]}}\"\n"
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        text,
        "storage\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (shell, first) in [
        ("zsh", "#compdef kubectl-ckbprobe"),
        ("fish", "# Print an optspec"),
    ] {
        let output = Command::new(PLUGIN)
            .args(["completion", shell])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(first), "{text}");
    }
}

#[test]
fn each_verb_has_a_manual_page_that_man_can_read() {
    let folder = folder("man");
    let output = Command::new(PLUGIN)
        .arg("man")
        .arg(&folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    for verb in [
        "try",
        "doctor",
        "slow",
        "histogram",
        "flamegraph",
        "threads",
        "diff",
        "completion",
        "man",
        "report",
    ] {
        let page = folder.join(format!("kubectl-ckbprobe-{verb}.1"));
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.contains(".SH SYNOPSIS"), "{text}");
        assert!(text.contains("Examples:"), "{verb} has no examples");
    }
}
