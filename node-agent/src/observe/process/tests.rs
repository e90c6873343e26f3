use super::*;

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn the_container_id_is_found_in_every_runtimes_path() {
    for path in [
        format!("/kubepods/burstable/pod3f0c8e5a-2f6b-4c43-8f43-9d1a3f1f2b11/{ID}"),
        format!("/kubepods.slice/kubepods-pod3f0c_8e5a.slice/cri-containerd-{ID}.scope"),
        format!("/../../kubepods-besteffort-pod1.slice/crio-{ID}.scope"),
        format!("/system.slice/docker-{ID}.scope"),
        format!("/docker/{ID}/init"),
    ] {
        assert_eq!(container_id(&path), Some(ID), "{path}");
    }
}

#[test]
fn a_path_without_a_container_has_no_id() {
    for path in [
        "/",
        "/user.slice/user-0.slice/session-1.scope",
        "/abc",
        &ID[1..],
    ] {
        assert_eq!(container_id(path), None, "{path}");
    }
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

#[test]
fn this_test_finds_itself_and_its_cpu_time() {
    let own = std::env::current_exe().unwrap();
    let name = own.file_name().unwrap().to_str().unwrap().to_string();
    let found = processes(|executable| executable == name).unwrap();
    let me = found
        .iter()
        .find(|process| process.id.pid == std::process::id())
        .unwrap();
    assert_eq!(me.executable, name);
    cpu_time(me.id).unwrap();
}

#[test]
fn a_process_of_another_start_time_is_not_taken_for_this_one() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let _guard = runtime.enter();
    let id = ProcessId {
        pid: std::process::id(),
        start_ticks: 1,
    };
    assert!(matches!(Exit::of(id), Err(ObserveError::Watch { .. })));
}

#[test]
fn the_end_of_a_process_is_told() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let stat = proc::Process::new(child.id() as i32)
            .unwrap()
            .stat()
            .unwrap();
        let exit = Exit::of(ProcessId {
            pid: child.id(),
            start_ticks: stat.starttime,
        })
        .unwrap();
        child.kill().unwrap();
        tokio::time::timeout(Duration::from_secs(5), exit.wait())
            .await
            .unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn an_address_of_this_program_has_a_place_in_its_file() {
    let (path, offset) = own_file_offset(own_file_offset as *const () as u64).unwrap();
    assert_eq!(path, std::env::current_exe().unwrap());
    assert!(offset > 0);
}
