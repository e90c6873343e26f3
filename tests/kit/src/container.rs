//! A container as far as an agent can tell: a cgroup whose path ends in 64 hexadecimal digits.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The folders of those that there are in this process.
static THERE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A cgroup. When this is dropped, what still runs in it is killed, and it is removed.
#[derive(Debug)]
pub struct Container {
    /// The id that an order names it by.
    pub id: String,
    /// The base name of what was started in it.
    pub executable: String,
    child: Option<Child>,
    folder: PathBuf,
}

impl Container {
    /// Makes one of a number that no other of this process has.
    pub fn new(number: u32) -> Self {
        Self::of(number, None)
    }

    /// The same of a pod that nobody asks about, whose folder begins like this.
    ///
    /// # Panics
    /// Where there are no cgroups, or where one of this process has the number: each would kill what runs in the other.
    pub fn of(number: u32, pod: Option<&str>) -> Self {
        let own = std::process::id();
        let id = format!("{own:056x}{number:08x}");
        let pod = pod.map(|pod| format!("{pod}{own:08x}-0000-4000-8000-{number:012x}"));
        let folder = [root(), pod.unwrap_or_default().into(), id.clone().into()];
        let folder: PathBuf = folder.iter().collect();
        let is_new = there(|folders| folders.insert(folder.clone()));
        assert!(is_new, "another container has the number {number}");
        fs::create_dir_all(&folder).unwrap();
        Self {
            id,
            executable: String::new(),
            child: None,
            folder,
        }
    }

    /// Starts a program in a new one, and waits until it says that it runs.
    pub fn run(number: u32, program: &Path) -> Self {
        Self::run_with(number, program, &[], None)
    }

    /// The same with arguments, and of a pod.
    ///
    /// # Panics
    /// When it does not run.
    pub fn run_with(number: u32, program: &Path, arguments: &[&str], pod: Option<&str>) -> Self {
        let mut container = Self::of(number, pod);
        let mut command = container.command(program, arguments);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "runs\n");
        container.executable = program.file_name().unwrap().to_str().unwrap().to_string();
        container.child = Some(child);
        container
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
            .args(arguments);
        command
    }

    /// The number of the process that was started in it.
    ///
    /// # Panics
    /// When none was.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Kills the process that was started in it, and waits until its number is free.
    ///
    /// # Panics
    /// When none was.
    pub fn end(&mut self) {
        let child = self.child.as_mut().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Moves a process into it.
    ///
    /// # Panics
    /// When it has ended.
    pub fn adopt(&self, pid: i32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Freezes everything in it: nothing of it runs any more.
    ///
    /// # Panics
    /// Where there are no cgroups of version 2.
    pub fn freeze(&self) {
        fs::write(self.folder.join("cgroup.freeze"), "1").unwrap();
    }

    /// CPU time that everything in it has used so far, to the microsecond.
    ///
    /// # Panics
    /// Where there are no cgroups of version 2: there alone it is told without a controller.
    pub fn cpu_time(&self) -> Duration {
        let text = fs::read_to_string(self.folder.join("cpu.stat")).unwrap();
        let mut lines = text.lines();
        let usage = lines.find_map(|line| line.strip_prefix("usage_usec "));
        Duration::from_micros(usage.unwrap().parse().unwrap())
    }
}

fn there<T>(look: impl FnOnce(&mut BTreeSet<PathBuf>) -> T) -> T {
    look(&mut THERE.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Container {
    fn drop(&mut self) {
        // What still runs in it has no business any more. A process is in its cgroup until it has been waited for.
        drop(fs::write(self.folder.join("cgroup.kill"), "1"));
        if let Some(child) = &mut self.child {
            drop(child.kill());
            drop(child.wait());
        }
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        there(|folders| folders.remove(&self.folder));
        for parent in self.folder.ancestors().skip(1).take(2) {
            // Others may be beside it, and the root of all cannot be removed.
            drop(fs::remove_dir(parent));
        }
    }
}

/// The cgroup of all of this process's: of version 2 where there is one, otherwise of any controller of version 1.
fn root() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let place = |kind: &str| {
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        mounts.find_map(|mut fields| {
            let place = fields.nth(1)?.to_string();
            (fields.next()? == kind).then(|| PathBuf::from(place))
        })
    };
    let hierarchy = place("cgroup2").or_else(|| place("cgroup")).unwrap();
    hierarchy.join(format!("ckb-probe-test-{}", std::process::id()))
}
