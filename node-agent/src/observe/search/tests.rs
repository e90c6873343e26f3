use std::{fs, os::unix::fs::symlink};

use ckb_probe_testkit::Folder;

use super::*;

const POD: &str = "5a9a0d6b-3c0f-4f0a-9c1e-0123456789ab";
const OTHER: &str = "5a9a0d6b-3c0f-4f0a-9c1e-ffffffffffff";

fn id(digit: &str) -> String {
    digit.repeat(64)
}

/// A process as /proc tells of it.
fn process(proc: &Folder, pid: u32, pod: &str, mounts: &str) {
    let directory = proc.path(&pid.to_string());
    fs::create_dir(&directory).unwrap();
    symlink("/bin/ckb", directory.join("exe")).unwrap();
    let own = fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = own.split_once(' ').unwrap();
    fs::write(directory.join("stat"), format!("{pid} {rest}")).unwrap();
    let cgroup = format!("0::/kubepods/pod{pod}/{}\n", id("a"));
    fs::write(directory.join("cgroup"), cgroup).unwrap();
    fs::write(directory.join("mountinfo"), mounts).unwrap();
}

fn mount(pod: &str, name: &str) -> String {
    let root = format!("/var/lib/kubelet/pods/{pod}/containers/{name}/0a1b");
    format!("36 35 98:0 {root} /dev/termination-log rw,noatime - ext4 /dev/vda rw\n")
}

fn search() -> Search {
    Search {
        executables: ["ckb".to_string()].into(),
        pods: [POD.to_string()].into(),
        containers: BTreeSet::new(),
    }
}

#[test]
fn only_the_pods_of_orders_are_looked_into() {
    let (proc, names) = (Folder::new(), ContainerNames::default());
    process(&proc, 7, POD, &mount(POD, "node"));
    for pid in 8..100 {
        process(&proc, pid, OTHER, &mount(OTHER, "node"));
    }
    let found = search().processes_in(proc.root(), &names).unwrap();
    let told: Vec<_> = found
        .processes
        .iter()
        .map(|one| (one.id.pid, &one.name))
        .collect();
    assert_eq!(told, [(7, &Some("node".to_string()))]);
    assert_eq!(names.tables_read(), 1);
}

#[test]
fn who_is_ordered_by_the_id_of_its_container_is_found_without_its_mounts() {
    let (proc, names) = (Folder::new(), ContainerNames::default());
    process(&proc, 7, OTHER, &mount(OTHER, "node"));
    let search = Search {
        containers: [id("a")].into(),
        ..search()
    };
    let found = search.processes_in(proc.root(), &names).unwrap();
    assert_eq!(found.processes.len(), 1);
    assert_eq!(
        (found.processes[0].name.as_ref(), names.tables_read()),
        (None, 0)
    );
}

#[test]
fn a_mount_table_is_read_once_for_each_process_and_of_so_many_a_search() {
    let (proc, names) = (Folder::new(), ContainerNames::default());
    for pid in 0..40 {
        process(&proc, pid + 1, POD, &mount(POD, "node"));
    }
    for (named, tables) in [(32, 32), (40, 40), (40, 40)] {
        let found = search().processes_in(proc.root(), &names).unwrap();
        let with = found.processes.iter().filter(|one| one.name.is_some());
        assert_eq!((with.count(), names.tables_read()), (named, tables));
    }
    fs::remove_dir_all(proc.path("1")).unwrap();
    search().processes_in(proc.root(), &names).unwrap();
    assert_eq!(names.known().len(), 39);
}

#[test]
fn a_mount_table_is_read_as_far_as_its_bound() {
    let folder = Folder::new();
    let table = folder.path("mountinfo");
    let name = || container_in(&table, POD).unwrap();
    let other = mount(OTHER, "node");
    // Its pod's author makes mounts that look like another pod's.
    fs::write(&table, other.clone() + &mount(POD, "own")).unwrap();
    assert_eq!(name(), Some("own".to_string()));
    let fits = TABLE_BYTES as usize / other.len() - 1;
    fs::write(&table, other.repeat(fits) + &mount(POD, "own")).unwrap();
    assert_eq!(name(), Some("own".to_string()));
    fs::write(&table, other.repeat(fits + 2) + &mount(POD, "own")).unwrap();
    assert_eq!(name(), None);
    fs::write(&table, "\u{1} broken\n\n".to_string() + &mount(POD, "own")).unwrap();
    assert_eq!(name(), Some("own".to_string()));
}
