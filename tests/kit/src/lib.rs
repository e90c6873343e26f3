//! What the tests of all crates stand on: programs that do a known thing as often as they are told, containers and disks for
//! them, and the command line that looks at them. Where something of it fails no test can go on, so it panics.

pub mod collector;
pub mod container;
pub mod cpu_limit;
pub mod disk;
pub mod fixture;
pub mod jeprof;
pub mod mount;
pub mod number;
mod parent;
pub mod probe;
pub mod prometheus;
pub mod terminal;
mod truth;
mod window;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
    thread::sleep,
    time::{Duration, Instant},
};

pub use collector::{CollectedPoint, CollectedSpan, CollectedStack, Collector, Tls};
pub use container::Container;
pub use cpu_limit::CpuLimit;
pub use fixture::{Fixture, Folder};
pub use parent::Parent;
pub use probe::{Probe, Rows, ckb_probe, folded, refusal, works};
pub use prometheus::Prometheus;
pub use terminal::Terminal;
pub use truth::{Call, EVERY_FUNCTION, FunctionTruth, GroundTruth, SlowCall, Truth};
pub use window::window_of;

/// However busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What an agent looks at on its node before it touches any target, as documented: of a node where something is measured, in the order in
/// which it tells of them.
pub const PREFLIGHT_CHECKS: [&str; 11] = [
    "Kernel",
    "PidNamespace",
    "Btf",
    "Capabilities",
    "PerfEventParanoid",
    "Lockdown",
    "UprobePmu",
    "session",
    "uprobe-multi",
    "perf-event",
    "SeccompReturn",
];

/// The repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where what takes long to build is kept between clones, as for scripts/lib.sh.
pub fn cache() -> PathBuf {
    let home = || Path::new(&std::env::var("HOME").unwrap_or_default()).join(".cache/ckb-probe");
    std::env::var_os("CKB_PROBE_CACHE").map_or_else(home, PathBuf::from)
}

/// The folder with the compiled fixtures. What is older than its source is compiled first, but in a folder that
/// `CKB_PROBE_FIXTURES` names: that one is for machines without a compiler.
///
/// # Panics
/// When they do not compile.
pub fn fixtures() -> &'static Path {
    static FIXTURES: OnceLock<PathBuf> = OnceLock::new();
    FIXTURES.get_or_init(|| {
        if let Some(folder) = std::env::var_os("CKB_PROBE_FIXTURES") {
            return folder.into();
        }
        let folder = repository().join("target/fixtures");
        run(Command::new(repository().join("tests/fixtures/build.sh")).arg(&folder));
        folder
    })
}

/// Runs a command to its good end.
///
/// # Panics
/// When it does not come to one.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output
}

/// Arguments as they are typed, none of which has a space in it.
pub fn words(arguments: &str) -> Vec<&str> {
    arguments.split(' ').collect()
}

/// A text has this in it.
///
/// # Panics
/// When it has not.
#[track_caller]
pub fn assert_contains(text: &str, part: &str) {
    assert!(text.contains(part), "{part:?} is not in {text}");
}

/// A text begins with this.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn assert_begins(text: &str, part: &str) {
    assert!(text.starts_with(part), "{part:?} does not begin {text}");
}

/// Looks every few milliseconds until something is so.
///
/// # Panics
/// When it does not come about.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// Whether a process holds links of BPF programs.
pub fn is_linked(pid: u32) -> bool {
    holds(pid, "link_id:")
}

/// Whether the kernel says this of something that the process has open.
pub fn holds(pid: u32, text: &str) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fdinfo"));
    let mut descriptors = descriptors.into_iter().flatten().flatten();
    descriptors.any(|one| std::fs::read_to_string(one.path()).is_ok_and(|said| said.contains(text)))
}
