//! A container, as far as an agent can tell: a cgroup with the id of one.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A program that runs in a cgroup of its own.
pub struct Container {
    pub id: String,
    pub executable: String,
    child: Child,
    folder: PathBuf,
}

impl Container {
    /// Starts a program, and waits until it says that it runs.
    pub fn run(number: u32, program: &Path) -> Self {
        Self::run_with(number, program, &[], None)
    }

    /// The same with arguments, and of a pod.
    pub fn run_with(number: u32, program: &Path, arguments: &[&str], pod: Option<&str>) -> Self {
        let id = format!("{:056x}{number:08x}", std::process::id());
        let pod = pod.map(|pod| {
            format!(
                "{pod}{:08x}-0000-4000-8000-{number:012x}",
                std::process::id()
            )
        });
        let folder = hierarchy()
            .join(format!("ckb-probe-engine-{}", std::process::id()))
            .join(pod.unwrap_or_default())
            .join(&id);
        std::fs::create_dir_all(&folder).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#])
            .arg(&folder)
            .arg(program)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "runs\n");
        Self {
            id,
            executable: program.file_name().unwrap().to_str().unwrap().to_string(),
            child,
            folder,
        }
    }
}

impl Container {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        for _ in 0..100 {
            if std::fs::remove_dir(&self.folder).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for parent in self.folder.ancestors().skip(1).take(2) {
            // Others may be beside it, and the root of all cannot be removed.
            drop(std::fs::remove_dir(parent));
        }
    }
}

/// Where cgroups are made: of version 2 where there is one, otherwise of any controller of version 1.
fn hierarchy() -> PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let place = |kind: &str| {
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        mounts.find_map(|mut fields| {
            let place = fields.nth(1)?.to_string();
            (fields.next()? == kind).then(|| PathBuf::from(place))
        })
    };
    place("cgroup2").or_else(|| place("cgroup")).unwrap()
}
