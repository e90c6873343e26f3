//! What a process may do to whoever takes its stacks, and what must come of it: on this machine's kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "where it panics, a test fails"
)]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::Instant,
};

use ckb_probe_testkit::{
    Fixture, Folder, PATIENCE, assert_begins, assert_contains, ckb_probe, is_linked, mount::Mount,
    wait_until,
};

fn fixture(folder: &Folder) -> PathBuf {
    folder.compile_optimised("stacks")
}

fn probe(fixture: &Fixture, arguments: &[&str]) -> Child {
    Command::new(ckb_probe())
        .args(arguments)
        .args(["--pid", &fixture.pid().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What it prints, and what it says besides, when it ends well.
fn printed(child: Child) -> (String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    (printed, said)
}

#[test]
fn names_are_told_also_where_the_executable_is_replaced_while_it_is_sampled_and_the_process_gone_before_the_end()
 {
    let folder = Folder::new();
    let program = fixture(&folder);
    let mut fixture = Fixture::start(&program);
    let sampling = probe(
        &fixture,
        &["profile", "--frequency", "999", "--duration", "10m"],
    );
    wait_until("it attaches", || is_linked(sampling.id()));
    fs::remove_file(&program).unwrap();
    fs::write(&program, "something else").unwrap();
    fixture.tell("burn 2");
    fs::remove_file(&program).unwrap();
    fixture.tell("burn 2");
    drop(fixture);
    let (folded, said) = printed(sampling);
    for name in ["heavy", "middling", "light"] {
        assert!(
            folded.contains(&format!(";{name} ")),
            "{name}: {folded}{said}"
        );
    }
}

#[test]
fn threads_that_come_and_go_by_the_thousand_do_no_harm() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    let arguments = |mode| {
        [
            "profile",
            "--mode",
            mode,
            "--frequency",
            "200",
            "--duration",
            "4s",
        ]
    };
    let sampling = ["cpu", "off-cpu"].map(|mode| probe(&fixture, &arguments(mode)));
    wait_until("it attaches", || is_linked(sampling[0].id()));
    let dumping = {
        let pid = fixture.pid().to_string();
        thread::spawn(move || {
            let dump = || {
                let output = Command::new(ckb_probe())
                    .args(["threads", "--pid", &pid])
                    .output();
                output.unwrap()
            };
            [dump(), dump(), dump()]
        })
    };
    let threads: u64 = fixture.tell("churn 5").parse().unwrap();
    assert!(threads > 1000, "{threads}");
    for dump in dumping.join().unwrap() {
        let said = String::from_utf8_lossy(&dump.stderr);
        assert_eq!(dump.status.code(), Some(0), "{said}");
        let listed = String::from_utf8_lossy(&dump.stdout);
        assert_begins(&listed, "process ");
    }
    for sampling in sampling {
        let (folded, said) = printed(sampling);
        assert!(
            folded.contains("churn") || folded.contains("main"),
            "{folded}{said}"
        );
    }
}

#[test]
fn stacks_that_point_anywhere_are_cut_and_do_no_harm() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    fixture.tell("astray");
    let duration = ["--frequency", "200", "--duration", "1s"];
    let cpu = [&["profile", "--mode", "cpu"][..], &duration].concat();
    let (folded, _) = printed(probe(&fixture, &cpu));
    let line = folded.lines().find(|line| line.starts_with("astray;"));
    assert!(
        line.unwrap()
            .starts_with("astray;[truncated];astray_running "),
        "{folded}"
    );
    let off_cpu = [&["profile", "--mode", "off-cpu"][..], &duration].concat();
    let (folded, _) = printed(probe(&fixture, &off_cpu));
    let expected = "astray asleep;[truncated];astray_asleep;";
    assert_contains(&folded, expected);
    let (listed, _) = printed(probe(&fixture, &["threads"]));
    assert_contains(
        &listed,
        "      astray_asleep  (stacks)\n      [truncated]\n",
    );
}

#[test]
fn a_file_system_that_hangs_is_given_up_and_said() {
    let folder = Folder::new();
    let program = fixture(&folder);
    for command in ["profile", "threads"] {
        let mount = Mount::with(&program, &folder.path("mounted"));
        let fixture = Fixture::start(&mount.program());
        mount.fall_silent();
        let begun = Instant::now();
        let mut child = probe(&fixture, &[command]);
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        errors.read_line(&mut said).unwrap();
        let took = begun.elapsed();
        let expected = format!(
            "ckb-probe: the files of process {} did not answer for 10 s, and without them its stacks have no names: see whether a file \
             system hangs from which it has its executable or a library\n",
            fixture.pid()
        );
        assert_eq!(said, expected);
        assert!(took < PATIENCE / 2, "{took:?}");
        // The kernel lets nobody go who waits for such an answer: it ends when there is one, or the mount is gone.
        mount.speak();
        assert_eq!(child.wait().unwrap().code(), Some(1));
        errors.read_to_string(&mut said).unwrap();
        assert_eq!(said, expected);
        drop(fixture);
    }
}

#[test]
fn an_idle_pool_is_one_function_unless_it_is_asked_for() {
    let (_folder, mut fixture) = Fixture::made(fixture);
    fixture.tell("pool");
    let arguments = ["profile", "--mode", "off-cpu", "--duration", "1s"];
    let (folded, _) = printed(probe(&fixture, &arguments));
    let of_pool: Vec<&str> = folded
        .lines()
        .filter(|line| line.starts_with("rocksdb:low;") && !line.contains("[a CPU]"))
        .collect();
    assert_eq!(of_pool.len(), 1, "{folded}");
    assert!(
        of_pool[0].starts_with("rocksdb:low;[idle rocksdb] "),
        "{folded}"
    );
    let asked = [&arguments[..], &["--idle"]].concat();
    let (folded, _) = printed(probe(&fixture, &asked));
    assert_contains(&folded, ";rocksdb::ThreadPoolImpl::Impl::BGThread;");
    assert!(!folded.contains("[idle"), "{folded}");
}
