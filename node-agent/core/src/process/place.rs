//! Where the runtime put a process, as its cgroups and mounts say. No other file is needed to read them: the fuzzer takes this one alone.

/// Where the cgroups of a process say that it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The uid of its pod, as the kubelet has it: a static pod has another in the API.
    pub pod: Option<String>,
    /// The id of its container.
    pub container: Option<String>,
}

impl Place {
    /// By the paths of its cgroups, of each hierarchy: one may say less than another. Where two say different things, none is
    /// believed.
    pub fn of(cgroups: impl Iterator<Item = String>) -> Self {
        let mut known = Self::default();
        for place in cgroups.map(|path| Self::in_path(&path)) {
            let (true, true) = (
                agree(&mut known.pod, place.pod),
                agree(&mut known.container, place.container),
            ) else {
                return Self::default();
            };
        }
        known
    }

    /// By one path. What is nearest to the root counts: below its own cgroup, a container may make others with names of its choice.
    pub fn in_path(path: &str) -> Self {
        let mut parts = path.split('/');
        let pod = parts.by_ref().find_map(pod_uid);
        let container = match &pod {
            Some(_) => parts.next().and_then(container_id),
            None => path.split('/').find_map(container_id),
        };
        Self {
            container: container.map(str::to_string),
            pod,
        }
    }
}

/// Learns what is said, if anything is; false where something else is known.
fn agree(known: &mut Option<String>, said: Option<String>) -> bool {
    let Some(said) = said else {
        return true;
    };
    *known.get_or_insert_with(|| said.clone()) == said
}

/// The pod's uid in the name of its cgroup: `pod<uid>`, or with systemd `kubepods-burstable-pod<uid>.slice`, where `_` stands for
/// `-`. A static pod's is 32 hexadecimal digits.
fn pod_uid(cgroup: &str) -> Option<String> {
    let name = cgroup.strip_suffix(".slice").unwrap_or(cgroup);
    let uid = match name.rsplit_once("-pod") {
        Some((_, uid)) => uid,
        None => name.strip_prefix("pod")?,
    };
    let uid = uid.replace('_', "-");
    let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
    let is_uid = matches!((digits, uid.len()), (32, 32 | 36));
    is_uid.then_some(uid)
}

/// The container id in the name of its cgroup: 64 hexadecimal digits, with or without a runtime's prefix and suffix
/// (`<id>`, `cri-containerd-<id>.scope`, `crio-<id>.scope`, `docker-<id>.scope`).
fn container_id(cgroup: &str) -> Option<&str> {
    cgroup
        .split(|c: char| !c.is_ascii_hexdigit())
        .find(|part| part.len() == 64)
}

/// Pod uid and container name in the root of a mount that the kubelet made for the container itself:
/// `…/pods/<uid>/containers/<name>/<n>`.
pub fn pod_and_container(mount_root: &str) -> Option<(String, String)> {
    let mut parts = mount_root
        .split('/')
        .skip_while(|part| *part != "pods")
        .skip(1);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(uid), Some("containers"), Some(name), Some(_)) => {
            Some((uid.to_string(), name.to_string()))
        }
        _ => None,
    }
}

/// The same in a line of a table of mounts: mount, parent, device, root, …, as proc_pid_mountinfo(5) has it. What is escaped in it is
/// no part of these names.
pub fn pod_and_container_in(mount: &[u8]) -> Option<(String, String)> {
    let root = mount.split(|byte| *byte == b' ').nth(3)?;
    pod_and_container(str::from_utf8(root).ok()?)
}
