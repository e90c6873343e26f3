//! One program, three names: what it does goes by the one that it is called by.
#![allow(clippy::unwrap_used, reason = "where it panics, a test fails")]

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// What it prints under this name.
fn printed(name: &str, arguments: &[&str]) -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("names");
    fs::create_dir_all(&folder).unwrap();
    let link = folder.join(name);
    drop(fs::remove_file(&link));
    symlink(CKB_PROBE, &link).unwrap();
    let mut command = Command::new(link);
    // No cluster, wherever this runs.
    command.args(arguments).env("KUBECONFIG", "/nowhere");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs that its help lists.
fn verbs(help: &str) -> Vec<&str> {
    let listed = help.split("Commands:\n").nth(1).unwrap();
    let listed = listed.split("\n\n").next().unwrap();
    let lines = listed
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    lines
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

#[test]
fn for_kubectl_it_has_only_the_verbs_that_talk_to_a_cluster() {
    let plugin = printed("kubectl-ckbprobe", &["--help"]);
    assert!(
        plugin.contains("Usage: kubectl ckbprobe <COMMAND>"),
        "{plugin}"
    );
    let of_cluster = verbs(&plugin);
    for verb in [
        "try",
        "doctor",
        "slow",
        "histogram",
        "cost",
        "completion",
        "man",
        "flamegraph",
        "threads",
        "diff",
    ] {
        assert!(of_cluster.contains(&verb), "{verb}: {of_cluster:?}");
    }
    let whole = printed("ckb-probe", &["--help"]);
    let all = verbs(&whole);
    for verb in ["rocksdb", "check", "profile"] {
        assert!(all.contains(&verb) && !of_cluster.contains(&verb), "{verb}");
    }
    assert!(of_cluster.iter().all(|verb| all.contains(verb)), "{all:?}");
    // On a host there is more whose cost can be measured.
    let measured = printed("ckb-probe", &["cost", "--help"]);
    let measured = verbs(&measured);
    for what in ["rocksdb", "ckbprobe"] {
        assert!(measured.contains(&what), "{what}: {measured:?}");
    }
    assert_eq!(
        printed("kubectl_complete-ckbprobe", &["doc"]),
        "doctor\tLook at each place from the API server to the figures: what is broken first, and what to type next\n:4\n"
    );
}

#[test]
fn each_of_its_own_verbs_is_completed_by_bash_and_has_a_page() {
    let script = format!(
        "source <({CKB_PROBE} completion bash)\n\
         COMP_WORDS=(ckb-probe check --pre) COMP_CWORD=2\n\
         _ckb__probe ckb-probe --pre check\n\
         echo \"${{COMPREPLY[@]}}\"\n"
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "--preset\n");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("names/man");
    printed("ckb-probe", &["man", folder.to_str().unwrap()]);
    let help = printed("ckb-probe", &["--help"]);
    for verb in verbs(&help) {
        let page = folder.join(format!("ckb-probe-{verb}.1"));
        assert!(verb == "help" || page.exists(), "{}", page.display());
    }
}

#[test]
fn verbs_and_options_are_completed_by_fish() {
    let script = format!(
        "{CKB_PROBE} completion fish | source; complete -C 'ckb-probe sysc'; complete -C 'ckb-probe blocks --thr'"
    );
    let output = Command::new("fish").args(["-c", &script]).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    let words: Vec<_> = told
        .lines()
        .filter_map(|line| line.split('\t').next())
        .collect();
    assert_eq!(words, ["syscalls", "--threshold"]);
}

/// As somebody types in it, who has a terminal.
#[test]
fn verbs_and_options_are_completed_by_zsh() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("names/zsh");
    std::fs::create_dir_all(&folder).unwrap();
    let script = printed("ckb-probe", &["completion", "zsh"]);
    std::fs::write(folder.join("_ckb-probe"), script).unwrap();
    let typed = r#"
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell "PS1=; fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; echo is-ready"
        until [[ $all == *$'is-ready\r\n'* ]]; do zpty -r shell one || exit 1; all+=$one; done
        for line in 'ckb-probe sysc' $'\C-uckb-probe blocks --thr'; do
          zpty -n -w shell "$line"$'\t'
          for (( tries = 0; tries < 3000; tries++ )); do
            while zpty -r -t shell one; do all+=$one; done
            sleep 0.01
            [[ $line == *sysc && $all == *syscalls* || $line == *thr && $all == *--threshold* ]] && break
          done
        done
        print -r -- "$all"
    "#;
    let output = Command::new("zsh")
        .args(["-f", "-c", typed, "zsh"])
        .arg(&folder)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    for expected in ["ckb-probe syscalls", "ckb-probe blocks --threshold"] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
}
