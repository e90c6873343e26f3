//! A limit of CPU time, as the kubelet sets one for a container.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// A cgroup of the CPU controller, of whichever version has it here. Whoever is in it when this is dropped is in its parent.
#[derive(Debug)]
pub struct CpuLimit {
    folder: PathBuf,
    above: PathBuf,
}

impl CpuLimit {
    /// One of a number that no other of this process has: so much time of each period, which those outside of it leave to it. None where nobody has the controller, or it may not be
    /// used.
    pub fn new(number: u32, time: Duration, period: Duration) -> Option<Self> {
        let (time, period) = (time.as_micros(), period.as_micros());
        let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
        let mut mounts = mounts.lines().filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((Path::new(fields.next()?), fields.next()?, fields.next()?))
        });
        let (above, kind, _) = mounts.find(|(above, kind, options)| match *kind {
            "cgroup" => options.split(',').any(|one| one == "cpu"),
            "cgroup2" => fs::read_to_string(above.join("cgroup.controllers"))
                .is_ok_and(|all| all.split_whitespace().any(|one| one == "cpu")),
            _ => false,
        })?;
        let settings = match kind {
            "cgroup2" => {
                fs::write(above.join("cgroup.subtree_control"), "+cpu").ok()?;
                vec![
                    ("cpu.max", format!("{time} {period}")),
                    ("cpu.weight", "10000".to_owned()),
                ]
            }
            _ => vec![
                ("cpu.cfs_period_us", period.to_string()),
                ("cpu.cfs_quota_us", time.to_string()),
                ("cpu.shares", "262144".to_owned()),
            ],
        };
        let folder = above.join(format!("ckb-probe-test-{}-{number}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let limit = Self {
            folder,
            above: above.to_owned(),
        };
        let mut settings = settings.iter();
        let are_set =
            settings.all(|(name, value)| fs::write(limit.folder.join(name), value).is_ok());
        are_set.then_some(limit)
    }

    /// Moves a process into it.
    ///
    /// # Panics
    /// When it has ended.
    #[track_caller]
    pub fn adopt(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for CpuLimit {
    fn drop(&mut self) {
        let left = fs::read_to_string(self.folder.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            drop(fs::write(self.above.join("cgroup.procs"), pid));
        }
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
