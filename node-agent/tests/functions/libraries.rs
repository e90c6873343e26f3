//! Libraries in which a process has something else by now: in another file of their path, or in the same.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf, thread::sleep, time::Duration};

use ckb_probe_testkit::{Fixture, Folder, Probe, words};
use serde_json::Value;

/// A process that has a library open, and what counts the calls of its function.
struct Opened {
    folder: Folder,
    library: PathBuf,
    process: Fixture,
    probe: Probe,
}

fn count(line: &Value) -> u64 {
    line["figures"]["count"].as_str().unwrap().parse().unwrap()
}

impl Opened {
    fn begin() -> Self {
        let folder = Folder::new();
        let library = folder.compile("cc", "opened.c", "opened.so", &["-shared", "-fPIC"]);
        let program = folder.compile("cc", "opens.c", "opens", &["-ldl"]);
        let mut process = Fixture::start_with(&program, &[library.to_str().unwrap()]);
        process.tell("open");
        let arguments = words("functions --json --match opened --library opened.so");
        let mut probe = Probe::start(process.pid(), &arguments);
        probe.is_attached();
        process.tell("call 50");
        Self {
            folder,
            library,
            process,
            probe,
        }
    }

    fn is_counted(&mut self, calls: u64) {
        self.probe.line_while(|line| count(line) == calls, || {});
    }

    /// It opens the library, in which there is something else, and is measured anew, which is said in this sentence. So many calls were
    /// counted before.
    fn expect_anew(mut self, before: u64, has: &str) {
        self.process.tell("open");
        let said = format!(
            "ckb-probe: process {} has {has}, which is measured anew: what it called until then is not counted\n",
            self.process.pid(),
        );
        self.probe.says(&said);
        let mut told = 0;
        let seen = self.probe.line_while(
            |line| count(line) > before,
            || {
                self.process.tell("call 1");
                told += 1;
            },
        );
        self.process.tell("call 2000");
        let (rows, all) = self.probe.rows();
        let counted = rows.counts()["opened"] - 2_000;
        assert!(
            (count(&seen)..=before + told).contains(&counted),
            "{counted}"
        );
        assert_eq!(all, said);
    }
}

#[test]
fn one_that_is_opened_anew_is_measured_in_the_file_that_it_is_by_then() {
    let mut opened = Opened::begin();
    // The same file, wherever it is mapped, goes on being counted; and so it does while another has taken its path.
    for order in ["close", "open", "call 30"] {
        opened.process.tell(order);
    }
    let other = opened.folder.path("other.so");
    fs::copy(&opened.library, &other).unwrap();
    fs::rename(&other, &opened.library).unwrap();
    opened.process.tell("call 20");
    sleep(Duration::from_secs(2));
    opened.is_counted(100);
    opened.process.tell("close");
    let has = format!("opened another file as {} by now", opened.library.display());
    opened.expect_anew(100, &has);
}

#[test]
fn one_that_is_written_over_in_place_is_measured_as_what_it_is_by_then() {
    let mut opened = Opened::begin();
    // The function is elsewhere in it.
    let moved = ["-shared", "-fPIC", "-DMOVED"];
    let other = opened.folder.compile("cc", "opened.c", "other.so", &moved);
    opened.is_counted(50);
    opened.process.tell("close");
    // As `cp` does.
    let inode = |path| fs::metadata(path).unwrap().ino();
    let before = inode(&opened.library);
    fs::copy(&other, &opened.library).unwrap();
    assert_eq!(inode(&opened.library), before);
    let has = format!(
        "{} open, which was written to by now",
        opened.library.display()
    );
    opened.expect_anew(50, &has);
}
