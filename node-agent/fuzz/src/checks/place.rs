//! Crafted cgroups and tables of mounts: whose process it is, on any bytes. A container makes cgroups below its own, and mounts, with
//! names of its choice.

use super::process::{Place, pod_and_container_in};

/// Reads the bytes as a file of each sort, line by line.
pub fn check(bytes: &[u8]) {
    let lines = || bytes.split(|byte| *byte == b'\n');
    let paths: Vec<String> = lines()
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    let place = Place::of(paths.iter().cloned());
    if let Some(pod) = &place.pod {
        let digits = pod.bytes().filter(u8::is_ascii_hexdigit).count();
        assert_eq!(digits, 32, "{pod}");
        assert!(
            paths
                .iter()
                .any(|path| Place::in_path(path).pod.as_ref() == Some(pod))
        );
    }
    if let Some(container) = &place.container {
        assert!(container.len() == 64 && container.bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
    for path in &paths {
        // What a container makes below its own cgroup changes nothing.
        let own = Place::in_path(path);
        if own.pod.is_some() && own.container.is_some() {
            let below = format!("{path}/kubepods-pod{:032}.slice/{:064}", 7, 7);
            assert_eq!(Place::in_path(&below), own);
        }
        // What two hierarchies say differently is not believed.
        let other = Place::of([path.clone(), format!("/pod{:032x}", u128::MAX)].into_iter());
        assert!(other.pod.is_none() || own.pod.is_none() || other.pod == own.pod);
    }
    for line in lines() {
        if let Some((pod, name)) = pod_and_container_in(line) {
            assert!(!pod.contains('/') && !name.contains('/'));
            let root = format!("pods/{pod}/containers/{name}/");
            assert!(String::from_utf8_lossy(line).contains(&root));
        }
    }
}
