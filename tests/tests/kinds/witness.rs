//! What the kernel's own kprobes count, as `perf stat -e probe:…` has them made and reads them.
//!
//! By way of tracefs itself: perf is a package for each kernel, and bpftrace brings LLVM; what either would ask of the kernel is two
//! lines of text. A histogram by thread, and not the event's count alone: others call the kernel's functions too.

use std::{
    fs::{self, File},
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
};

/// Where it is mounted on most machines.
const TRACEFS: &str = "/sys/kernel/tracing";

const HISTOGRAM: &str = "hist:keys=common_pid";

/// Counts the calls of one function, by thread.
pub struct DiskstatsCheck {
    event: String,
}

impl DiskstatsCheck {
    /// From now on.
    pub fn of(function: &str) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let event = format!("ckb_probe/witness_{}_{number}", std::process::id());
        append("kprobe_events", &format!("p:{event} {function}"));
        let witness = Self { event };
        append(&witness.file("trigger"), HISTOGRAM);
        witness
    }

    /// The calls of a thread. The kernel missed none.
    pub fn calls(&self, thread: u32) -> u64 {
        let histogram = read(&self.file("hist"));
        let dropped = histogram
            .lines()
            .find_map(|line| line.trim().strip_prefix("Dropped: "));
        assert_eq!(dropped, Some("0"), "{histogram}");
        let name = self.event.split('/').next_back().unwrap();
        let profile = read("kprobe_profile");
        let mut lines = profile
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|words| words[0] == name).unwrap();
        assert_eq!(line[2], "0", "{profile}");
        // { common_pid:        120 } hitcount:       5000
        let counts = histogram.lines().filter_map(|line| {
            let (key, count) = line.split_once("} hitcount:")?;
            let (_, counted) = key.split_once("common_pid:")?;
            let is_it = counted.trim().parse() == Ok(thread);
            is_it.then(|| count.trim().parse::<u64>().unwrap())
        });
        counts.sum()
    }

    fn file(&self, name: &str) -> String {
        format!("events/{}/{name}", self.event)
    }
}

impl Drop for DiskstatsCheck {
    fn drop(&mut self) {
        append(&self.file("trigger"), &format!("!{HISTOGRAM}"));
        append("kprobe_events", &format!("-:{}", self.event));
    }
}

fn path(name: &str) -> PathBuf {
    [TRACEFS, name].iter().collect()
}

fn append(name: &str, line: &str) {
    let file = File::options().append(true).open(path(name));
    let mut file =
        file.unwrap_or_else(|error| panic!("{name}: {error}: mount tracefs at {TRACEFS}"));
    let written = file.write_all(format!("{line}\n").as_bytes());
    written.unwrap_or_else(|error| panic!("{line}: {error}"));
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}
