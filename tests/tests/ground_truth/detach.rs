//! What probes leave behind: nothing.

use std::os::unix::fs::FileExt;

use ckb_probe_tests::fixture::GroundTruth;
use procfs::process::{MMPermissions, MMapPath, Process};

use crate::harness::{attach, by_every_tier, everything};

#[test]
fn after_a_detach_the_target_runs_on_unprobed() {
    by_every_tier(|means| {
        let plan = ["rocksdb_get_pinned_cf 100000 constant:0"];
        let mut fixture = GroundTruth::start("ground-truth", &[], &plan).unwrap();
        let before = code_of(&fixture);
        let session = attach(&fixture, means, everything());
        assert_ne!(
            code_of(&fixture),
            before,
            "the attach changed no instruction"
        );
        drop(session);
        assert_eq!(
            code_of(&fixture),
            before,
            "{means:?} left a breakpoint behind"
        );
        let truth = fixture.go().unwrap();
        assert_eq!(truth.functions["rocksdb_get_pinned_cf"].calls, 100_000);
    });
}

/// The process's executable memory as it is, breakpoints and all.
fn code_of(fixture: &GroundTruth) -> Vec<u8> {
    let process = Process::new(fixture.pid() as i32).unwrap();
    let memory = std::fs::File::open(format!("/proc/{}/mem", fixture.pid())).unwrap();
    let mut code = Vec::new();
    for map in process.maps().unwrap() {
        let executable = map.perms.contains(MMPermissions::EXECUTE);
        if executable && matches!(map.pathname, MMapPath::Path(_)) {
            let mut bytes = vec![0; (map.address.1 - map.address.0) as usize];
            memory.read_exact_at(&mut bytes, map.address.0).unwrap();
            code.extend(bytes);
        }
    }
    code
}
