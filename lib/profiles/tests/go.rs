//! What Go's own reader of pprof makes of our profiles. Go is there wherever the test cluster was built.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where it panics, a test fails"
)]

use std::{path::Path, process::Command};

use ckb_probe_profiles::{Frame, Profile, ProfileMode, Stack, Window, pprof::Limits};

fn profile() -> Profile {
    let mut profile = Profile::of(ProfileMode::Cpu);
    profile.window = Window {
        start_ns: 1_700_000_000_000_000_000,
        duration_ns: 30_000_000_000,
    };
    profile.period = 10_101_010;
    let main = Frame::user("main", "/usr/bin/ckb");
    let execute = Frame::user("ckb_vm_x64_execute", "/usr/bin/ckb");
    let write = Frame::user("rocksdb::DBImpl::WriteImpl", "/usr/bin/ckb");
    for (thread, frames, samples) in [
        ("verify_blocks", vec![main, execute], 60),
        (
            "verify_blocks",
            vec![main, write, Frame::kernel("ksys_write")],
            30,
        ),
        ("GlobalRt-1", vec![main], 10),
    ] {
        profile.stacks.add(&Stack {
            frames,
            thread,
            target: "default/ckb-0/ckb",
            weights: &[samples, samples * 10_000_000],
            ..Stack::default()
        });
    }
    profile
}

fn go_tool_pprof(file: &Path, arguments: &[&str]) -> String {
    let mut go = Command::new("go");
    // Neither its settings nor a browser of whoever runs this.
    go.args(["tool", "pprof"])
        .args(arguments)
        .arg(file)
        .env("PPROF_TMPDIR", file.parent().unwrap());
    let output = go
        .output()
        .expect("Go is needed, as for building the test cluster: scripts/setup.sh cluster");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn go_reads_what_is_written_and_its_own_is_read() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go");
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("cpu.pb.gz");
    std::fs::write(&file, profile().to_pprof()).unwrap();

    let top = go_tool_pprof(&file, &["-top"]);
    for line in [
        "File: ckb",
        "Type: cpu",
        "Duration: 30s, Total samples = 1000ms ( 3.33%)",
        "600ms 60.00% 60.00%      600ms 60.00%  ckb_vm_x64_execute",
        "300ms 30.00% 90.00%      300ms 30.00%  ksys_write",
        "100ms 10.00%   100%     1000ms   100%  main",
        "0     0%   100%      300ms 30.00%  rocksdb::DBImpl::WriteImpl",
    ] {
        assert!(top.contains(line), "{line}:\n{top}");
    }
    let samples = go_tool_pprof(&file, &["-top", "-sample_index=samples"]);
    assert!(
        samples.contains("60 60.00% 60.00%         60 60.00%  ckb_vm_x64_execute"),
        "{samples}"
    );
    let tags = go_tool_pprof(&file, &["-tags"]);
    for tag in [
        "verify_blocks",
        "GlobalRt-1",
        "default/ckb-0/ckb",
        "scripts",
        "rocksdb write",
    ] {
        assert!(tags.contains(tag), "{tag}:\n{tags}");
    }
    let focused = go_tool_pprof(&file, &["-top", "-tagfocus=heading=scripts"]);
    assert!(
        focused.contains("ckb_vm_x64_execute") && !focused.contains("WriteImpl"),
        "{focused}"
    );

    // Merged with itself and written by Go.
    let both = folder.join("both.pb.gz");
    let (first, output) = (
        file.to_str().unwrap(),
        format!("-output={}", both.display()),
    );
    go_tool_pprof(&file, &["-proto", &output, first]);
    let mut expected = profile();
    expected.merge(&profile()).unwrap();
    let read = Profile::from_pprof(&std::fs::read(&both).unwrap(), &Limits::FILE).unwrap();
    assert_eq!(read.stacks, expected.stacks);
}
