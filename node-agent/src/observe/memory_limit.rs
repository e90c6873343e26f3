//! How much memory this process may take: the least limit of its cgroups, of either version, and of those above them.

use std::path::{Path, PathBuf};

/// A limit beyond this is none: version 1 says it with the largest number of pages.
const NO_LIMIT: u64 = 1 << 60;

/// The least of them; None where there is no limit.
pub fn memory_limit() -> Option<u64> {
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least(&cgroups, |path| std::fs::read_to_string(path).ok())
}

/// The same by what /proc/self/cgroup says, and what files do.
fn least(cgroups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let files = cgroups.lines().filter_map(files_of).flatten();
    let limits = files.filter_map(|file| read(&file)?.trim().parse().ok());
    limits.filter(|limit| *limit < NO_LIMIT).min()
}

/// Where limits stand of a line of /proc/self/cgroup. In a container its own cgroup may be at the root of what is mounted,
/// whatever it is called outside.
fn files_of(line: &str) -> Option<Vec<PathBuf>> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, cgroup) = (fields.next()?, fields.next()?, fields.next()?);
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"),
        controllers if controllers.split(',').any(|one| one == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let inner = Path::new(cgroup.trim_start_matches('/'));
    // A cgroup outside of its namespace begins with `..`, and is not to be found.
    let folders = inner.ancestors().filter(|folder| !folder.starts_with(".."));
    Some(
        folders
            .map(|folder| Path::new(root).join(folder).join(file))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(cgroups: &str, files: &[(&str, &str)]) -> Option<u64> {
        least(cgroups, |path| {
            let found = files.iter().find(|(known, _)| Path::new(known) == path);
            found.map(|(_, text)| (*text).to_string())
        })
    }

    #[test]
    fn version_2_in_a_container_and_on_the_host() {
        let own = ("/sys/fs/cgroup/memory.max", "134217728\n");
        assert_eq!(limit("0::/\n", &[own]), Some(128 << 20));
        let pod = "/sys/fs/cgroup/kubepods/pod1/memory.max";
        let container = "/sys/fs/cgroup/kubepods/pod1/abc/memory.max";
        let cgroups = "0::/kubepods/pod1/abc\n";
        assert_eq!(
            limit(cgroups, &[(pod, "134217728\n"), (container, "max\n")]),
            Some(128 << 20)
        );
        assert_eq!(limit(cgroups, &[(container, "max\n")]), None);
        assert_eq!(limit("0::/../../abc\n", &[own]), Some(128 << 20));
    }

    #[test]
    fn version_1_beside_an_empty_version_2() {
        let cgroups = "9:name=systemd:/\n4:cpu,memory:/kubepods/pod1/abc\n0::/\n";
        let container = "/sys/fs/cgroup/memory/kubepods/pod1/abc/memory.limit_in_bytes";
        let root = "/sys/fs/cgroup/memory/memory.limit_in_bytes";
        let none = "9223372036854771712\n";
        assert_eq!(
            limit(cgroups, &[(root, none), (container, "134217728\n")]),
            Some(128 << 20)
        );
        // Mounted as the root of the container.
        assert_eq!(limit(cgroups, &[(root, "134217728\n")]), Some(128 << 20));
        assert_eq!(limit(cgroups, &[(root, none)]), None);
        assert_eq!(limit("", &[(root, "1")]), None);
    }
}
