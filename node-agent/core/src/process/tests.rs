use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

const POD: &str = "3f0c8e5a-2f6b-4c43-8f43-9d1a3f1f2b11";

/// A static pod's.
const STATIC: &str = "0c3ed92713a52c3a94a2a1b3c2c8a1f2";

fn place(pod: Option<&str>, container: Option<&str>) -> Place {
    Place {
        pod: pod.map(str::to_string),
        container: container.map(str::to_string),
    }
}

#[test]
fn pod_and_container_are_found_in_every_runtimes_path() {
    let slice = POD.replace('-', "_");
    for path in [
        // The driver cgroupfs, by containerd and CRI-O, and where the kubelet is itself in a container, as in kind.
        format!("/kubepods/burstable/pod{POD}/{ID}"),
        format!("/kubepods/pod{POD}/crio-{ID}"),
        format!(
            "/docker/{0}/kubelet/kubepods/besteffort/pod{POD}/{ID}",
            ID.replace('0', "f")
        ),
        // The driver systemd.
        format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/cri-containerd-{ID}.scope"
        ),
        format!("/kubepods.slice/kubepods-pod{slice}.slice/crio-{ID}.scope/container"),
        format!("/kubepods.slice/kubepods-pod{slice}.slice/docker-{ID}.scope"),
        format!(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{slice}.slice/cri-containerd-{ID}.scope"
        ),
        // As seen from another cgroup namespace, which is where the agent is with cgroup v2.
        format!("/../../kubepods-besteffort-pod{slice}.slice/crio-{ID}.scope"),
        format!("/../../pod{POD}/{ID}/init"),
    ] {
        assert_eq!(Place::in_path(&path), place(Some(POD), Some(ID)), "{path}");
    }
    let path = format!("/kubepods/burstable/pod{STATIC}/{ID}");
    assert_eq!(Place::in_path(&path), place(Some(STATIC), Some(ID)));
}

#[test]
fn a_container_of_no_pod_has_its_id() {
    for path in [
        format!("/system.slice/docker-{ID}.scope"),
        format!("/docker/{ID}/init"),
        format!("/machine.slice/libpod-{ID}.scope/container"),
    ] {
        assert_eq!(Place::in_path(&path), place(None, Some(ID)), "{path}");
    }
}

#[test]
fn what_is_in_no_container_has_no_place() {
    for path in [
        "/",
        "/user.slice/user-0.slice/session-1.scope",
        "/podman/podcast/pod-1",
        &ID[1..],
    ] {
        assert_eq!(Place::in_path(path), Place::default(), "{path}");
    }
}

#[test]
fn the_names_of_cgroups_that_a_container_makes_mean_nothing() {
    let other = POD.replace('3', "4");
    let id = ID.replace('0', "f");
    for within in [
        format!("pod{other}/{id}"),
        format!(
            "kubepods-pod{}.slice/docker-{id}.scope",
            other.replace('-', "_")
        ),
    ] {
        let path = format!("/kubepods/pod{POD}/{ID}/{within}");
        assert_eq!(Place::in_path(&path), place(Some(POD), Some(ID)), "{path}");
        let path = format!("/kubepods/pod{POD}/sandbox/{within}");
        assert_eq!(Place::in_path(&path), place(Some(POD), None), "{path}");
    }
    let path = format!("/docker/{ID}/{id}");
    assert_eq!(Place::in_path(&path), place(None, Some(ID)));
}

#[test]
fn hierarchies_that_disagree_are_not_believed() {
    let path = |pod: &str| format!("/kubepods/pod{pod}/{ID}");
    let of = |paths: &[String]| Place::of(paths.iter().cloned());
    let (own, other) = (path(POD), path(&POD.replace('3', "4")));
    // With cgroup v1, one that nobody uses says nothing.
    let both = [own.clone(), "/".into(), own.clone()];
    assert_eq!(of(&both), place(Some(POD), Some(ID)));
    assert_eq!(of(&[own.clone(), other]), Place::default());
    let other = path(POD).replace('0', "f");
    assert_eq!(of(&[own.clone(), other]), Place::default());
    // Some runtimes put a container's processes into its pod's cgroup, in hierarchies where they set no limits.
    let above = format!("/kubepods/pod{POD}");
    assert_eq!(of(&[above, own]), place(Some(POD), Some(ID)));
    assert_eq!(of(&[]), Place::default());
}

#[test]
fn pod_and_container_are_read_from_the_kubelets_mount() {
    let expected = Some(("uid-1".to_string(), "ckb".to_string()));
    for root in [
        "/var/lib/kubelet/pods/uid-1/containers/ckb/8d0b3c21",
        "/pods/uid-1/containers/ckb/8d0b3c21",
    ] {
        assert_eq!(pod_and_container(root), expected, "{root}");
    }
}

#[test]
fn other_mounts_say_nothing() {
    for root in [
        "/",
        "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~empty-dir/data",
        "/var/lib/kubelet/pods/uid-1/etc-hosts",
        "/pods/uid-1/containers/ckb",
    ] {
        assert_eq!(pod_and_container(root), None, "{root}");
    }
}
