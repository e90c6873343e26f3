//! A container as far as an agent can tell: a cgroup whose path ends in 64 hexadecimal digits.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use procfs::process as proc;
use tokio::process::Command;

use crate::{
    failure::{Failure, Result},
    process::Process,
};

/// A cgroup. When this is dropped, what still runs in it is killed, and it is removed.
#[derive(Debug)]
pub struct Container {
    /// The id that an order names it by.
    pub id: String,
    folder: PathBuf,
}

impl Container {
    /// Makes one of a number that no other has.
    pub fn new(number: u32) -> Result<Self> {
        Self::in_folder(number, &hierarchy()?.join(folder()))
    }

    /// The same of a pod that nobody asks about.
    pub fn of_a_pod(number: u32) -> Result<Self> {
        let pod = format!("pod{:08x}-0000-4000-8000-{number:012x}", std::process::id());
        Self::in_folder(number, &hierarchy()?.join(folder()).join(pod))
    }

    fn in_folder(number: u32, folder: &Path) -> Result<Self> {
        let id = format!("{:056x}{number:08x}", std::process::id());
        let folder = folder.join(&id);
        fs::create_dir_all(&folder).map_err(Failure::system(folder.display().to_string()))?;
        Ok(Self { id, folder })
    }

    /// A command that runs in it. The shell enters, and becomes the program: as with a container's runtime, the process
    /// is in its cgroup before it is the program.
    pub fn command(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#])
            .arg(&self.folder)
            .arg(program)
            .args(arguments)
            .kill_on_drop(true);
        command
    }

    /// Moves a process into it.
    pub fn adopt(&self, process: Process) -> Result<()> {
        let list = self.folder.join("cgroup.procs");
        fs::write(&list, process.pid.to_string())
            .map_err(Failure::system(list.display().to_string()))
    }

    /// CPU time that everything in it has used so far, to the microsecond.
    pub fn cpu_time(&self) -> Result<Duration> {
        let path = self.folder.join("cpu.stat");
        let what = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(Failure::system(what.clone()))?;
        let usage = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "))
            .and_then(|micros| micros.parse().ok());
        usage
            .map(Duration::from_micros)
            .ok_or_else(|| Failure::format(what)("it has no usage_usec"))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // What still runs in it has no business any more. A process is in its cgroup until it has been waited for.
        let _ = fs::write(self.folder.join("cgroup.kill"), "1");
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for parent in self.folder.ancestors().skip(1) {
            // Others may be beside it.
            if fs::remove_dir(parent).is_err() || parent.ends_with(folder()) {
                break;
            }
        }
    }
}

/// The cgroup of all of this program's.
fn folder() -> String {
    format!("ckb-probe-bench-{}", std::process::id())
}

/// Where cgroups of version 2 are made: there alone CPU time is told without a controller.
fn hierarchy() -> Result<PathBuf> {
    let mounts = proc::Process::myself()
        .and_then(|process| process.mountinfo())
        .map_err(Failure::format("/proc/self/mountinfo"))?;
    mounts
        .into_iter()
        .find(|mount| mount.fs_type == "cgroup2")
        .map(|mount| mount.mount_point)
        .ok_or_else(|| Failure::Unexpected {
            expected: "a mount of cgroup2".to_string(),
            got: "none".to_string(),
        })
}
