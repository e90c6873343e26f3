//! `ckb-probe render` and `ckb-probe diff`, and what a browser makes of what they write.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "where it panics, a test fails"
)]

mod browser;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use ckb_probe_profiles::{Frame, Profile, ProfileMode, Stack};

const CKB_PROBE: &str = env!("CARGO_BIN_EXE_ckb-probe");

/// A folder of a test's own.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("flames")
        .join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A profile of lines such as `verify_blocks;main;ksys_write_[k] 30`, in samples of 10 ms.
fn profile(mode: ProfileMode, lines: &[&str]) -> Vec<u8> {
    let mut profile = Profile::of(mode);
    for line in lines {
        let (stack, samples) = line.rsplit_once(' ').unwrap();
        let (thread, frames) = stack.split_once(';').unwrap();
        let samples: u64 = samples.parse().unwrap();
        profile.stacks.add(&Stack {
            frames: frames
                .split(';')
                .map(|name| match name.strip_suffix("_[k]") {
                    Some(name) => Frame::kernel(name),
                    None => Frame::user(name, "ckb"),
                })
                .collect(),
            thread,
            target: "default/ckb-0/ckb",
            weights: &[samples, samples * 10_000_000],
            ..Stack::default()
        });
    }
    profile.to_pprof()
}

const BEFORE: &[&str] = &[
    "verify_blocks;start_thread;ckb_chain::verify::ConsumeUnverifiedBlocks::start;ckb_script::scheduler::Scheduler<DL, V, M>::run;ckb_vm_x64_execute 41",
    "verify_blocks;start_thread;ckb_chain::verify::ConsumeUnverifiedBlocks::start;rocksdb_get_pinned_cf;rocksdb::DBImpl::GetImpl;rocksdb::BlockBasedTable::Get 22",
    "verify_blocks;start_thread;ckb_chain::verify::ConsumeUnverifiedBlocks::start;rocksdb_transaction_commit;rocksdb::DBImpl::WriteImpl;write;ksys_write_[k];ext4_file_write_iter_[k] 10",
    "GlobalRt-1;start_thread;tokio::runtime::scheduler::multi_thread::worker::Context::park_internal;epoll_wait;do_epoll_wait_[k] 7",
    "rocksdb:low0;start_thread;rocksdb::DBImpl::BackgroundCallCompaction;rocksdb::CompactionJob::Run;rocksdb::MergingIterator::Next 20",
];

/// Twice as long: fewer reads, no compaction, and somebody asks.
const AFTER: &[&str] = &[
    "verify_blocks;start_thread;ckb_chain::verify::ConsumeUnverifiedBlocks::start;ckb_script::scheduler::Scheduler<DL, V, M>::run;ckb_vm_x64_execute 120",
    "verify_blocks;start_thread;ckb_chain::verify::ConsumeUnverifiedBlocks::start;rocksdb_get_pinned_cf;rocksdb::DBImpl::GetImpl;rocksdb::BlockBasedTable::Get 20",
    "verify_blocks;start_thread;ckb_chain::verify::ConsumeUnverifiedBlocks::start;rocksdb_transaction_commit;rocksdb::DBImpl::WriteImpl;write;ksys_write_[k];ext4_file_write_iter_[k] 20",
    "GlobalRt-1;start_thread;tokio::runtime::scheduler::multi_thread::worker::Context::park_internal;epoll_wait;do_epoll_wait_[k] 14",
    "GlobalRt-1;start_thread;tokio::runtime::task::raw::poll;ckb_rpc::module::chain::ChainRpcImpl::get_block 26",
];

fn ckb_probe(folder: &Path, arguments: &str) -> Output {
    let mut command = Command::new(CKB_PROBE);
    command
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdin(Stdio::null());
    command.output().unwrap()
}

/// What it printed, when it succeeded.
fn printed(folder: &Path, arguments: &str) -> String {
    let output = ckb_probe(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(errors, "", "{arguments:?}");
    assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it said, when it failed.
fn refused(folder: &Path, arguments: &str) -> String {
    let output = ckb_probe(folder, arguments);
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    String::from_utf8(output.stderr).unwrap()
}

/// Both profiles, in a folder.
fn profiles(name: &str) -> PathBuf {
    let folder = folder(name);
    fs::write(
        folder.join("before.pb.gz"),
        profile(ProfileMode::Cpu, BEFORE),
    )
    .unwrap();
    fs::write(folder.join("after.pb.gz"), profile(ProfileMode::Cpu, AFTER)).unwrap();
    folder
}

#[test]
fn a_profile_is_printed_as_text_or_written_as_what_the_name_says() {
    let folder = profiles("render");
    let text = printed(&folder, "render before.pb.gz");
    assert_eq!(text.lines().count(), BEFORE.len());
    let line = "rocksdb:low0;start_thread;rocksdb::DBImpl::BackgroundCallCompaction;rocksdb::CompactionJob::Run;rocksdb::MergingIterator::Next 200000000\n";
    assert!(text.contains(line), "{text}");
    let text = printed(&folder, "render before.pb.gz --type samples --by heading");
    assert!(text.contains("compaction;start_thread;"), "{text}");
    assert!(text.contains("::Next 20\n"), "{text}");

    printed(&folder, "render before.pb.gz -o x.folded");
    assert_eq!(
        fs::read_to_string(folder.join("x.folded")).unwrap(),
        printed(&folder, "render before.pb.gz")
    );
    printed(
        &folder,
        "render before.pb.gz -o x.svg --target default/ckb-0/ckb",
    );
    let svg = fs::read_to_string(folder.join("x.svg")).unwrap();
    assert!(svg.contains("<title>ckb_vm_x64_execute (410 ms, 41.00%)</title>"));
    assert!(svg.contains("before.pb.gz, cpu"));
    assert!(svg.contains(
        "Cpu: scripts 41 %, rocksdb read 22 %, compaction 20 %, rocksdb write 10 %, tokio idle 7 %"
    ));
    printed(&folder, "render before.pb.gz -o x.html --title import");
    let page = fs::read_to_string(folder.join("x.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("<title>import</title>"));
}

#[test]
fn another_program_s_names_are_made_readable() {
    let folder = folder("names");
    let mangled = "t;_ZN9ckb_chain6verify3run17h0123456789abcdefE;_ZN7rocksdb6DBImpl7SyncWALEv 1";
    fs::write(
        folder.join("x.pb.gz"),
        profile(ProfileMode::Cpu, &[mangled]),
    )
    .unwrap();
    assert_eq!(
        printed(&folder, "render x.pb.gz"),
        "t;ckb_chain::verify::run;rocksdb::DBImpl::SyncWAL 10000000\n"
    );
}

#[test]
fn a_difference_is_printed_or_drawn() {
    let folder = profiles("diff");
    let text = printed(
        &folder,
        "diff before.pb.gz after.pb.gz --type samples --folded",
    );
    for line in [
        "ckb_vm_x64_execute 82 120\n",
        "rocksdb:low0 [gone];start_thread [gone];rocksdb::DBImpl::BackgroundCallCompaction [gone];rocksdb::CompactionJob::Run [gone];rocksdb::MergingIterator::Next [gone] 40 0\n",
        "GlobalRt-1;start_thread;tokio::runtime::task::raw::poll [new];ckb_rpc::module::chain::ChainRpcImpl::get_block [new] 0 26\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let table = printed(&folder, "diff before.pb.gz after.pb.gz");
    assert!(
        table.starts_with("before.pb.gz -> after.pb.gz: cpu\n"),
        "{table}"
    );
    for line in [
        "gone   rocksdb::CompactionJob::Run\n",
        "new    ckb_rpc::module::chain::",
    ] {
        assert!(table.contains(line), "{line}: {table}");
    }
    printed(&folder, "diff before.pb.gz after.pb.gz -o x.svg");
    let svg = fs::read_to_string(folder.join("x.svg")).unwrap();
    assert!(svg.contains("before.pb.gz → after.pb.gz, cpu"));
    assert!(svg.contains("1000 ms before") && svg.contains("2000 ms after"));
    printed(&folder, "diff before.pb.gz after.pb.gz -o x.html");
}

#[test]
fn what_cannot_be_drawn_is_refused_with_what_to_do() {
    let folder = profiles("refused");
    fs::write(
        folder.join("wait.pb.gz"),
        profile(ProfileMode::OffCpu, BEFORE),
    )
    .unwrap();
    fs::write(folder.join("none.pb.gz"), profile(ProfileMode::Cpu, &[])).unwrap();
    fs::write(folder.join("text.txt"), "main;run 5\n").unwrap();
    for (arguments, message) in [
        (
            "render missing.pb.gz",
            "cannot read missing.pb.gz: No such file or directory (os error 2)",
        ),
        (
            "render text.txt",
            "text.txt is no profile: it is text, not a pprof. What is read is pprof, such as `ckb-probe profile`, Go or perf_to_profile write",
        ),
        (
            "render missing.pb.gz -o x.png",
            "cannot tell what x.png shall be: let its name end in .svg, .html, .folded, .pb.gz or .speedscope.json",
        ),
        (
            "render before.pb.gz --type heap",
            "before.pb.gz has no sample type heap: it has samples, cpu",
        ),
        (
            "render before.pb.gz --target x",
            "before.pb.gz has nothing of the target x: it has default/ckb-0/ckb",
        ),
        (
            "render none.pb.gz -o x.svg",
            "none.pb.gz: there is nothing to draw: no stack of the profile has any cpu",
        ),
        (
            "render before.pb.gz -o missing/x.svg",
            "cannot write missing/x.svg: No such file or directory (os error 2)",
        ),
        (
            "diff before.pb.gz after.pb.gz -o missing/x.svg",
            "cannot write missing/x.svg: No such file or directory (os error 2)",
        ),
        (
            "diff before.pb.gz",
            "before.pb.gz is one file, and two are compared: name the other, too",
        ),
        // Before half a minute is spent on it.
        (
            "flamegraph --pid 999999999 -o missing/x.svg",
            "cannot write missing/x.svg: No such file or directory (os error 2)",
        ),
        (
            "flamegraph --pid 999999999 -o text.txt/x.svg",
            "cannot write text.txt/x.svg: Not a directory (os error 20)",
        ),
        (
            "flamegraph --pid 999999999 cpu off-cpu",
            "of a process one mode is sampled, and not cpu and off-cpu: name one, and ask for the other afterwards",
        ),
        (
            "diff before.pb.gz wait.pb.gz",
            "before.pb.gz and wait.pb.gz cannot be compared: a profile of samples/count and cpu/nanoseconds and one of wait/nanoseconds cannot be put together: take two of the same mode",
        ),
    ] {
        assert_eq!(
            refused(&folder, arguments),
            format!("ckb-probe: {message}\n")
        );
    }
    let output = ckb_probe(&folder, "render before.pb.gz --by process");
    assert_eq!(output.status.code(), Some(2));
}
