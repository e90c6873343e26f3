//! Which threads are there.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{ProcessId, survivor};

/// The number of the namespace in which the kernel numbers threads for the programs in it (`PROC_PID_INIT_INO`).
const NUMBERED_IN: u64 = 0xEFFF_FFFC;

/// Which of these threads have ended, by the kernel's numbers, of those that have met probes of a process. None where that is not known: /proc
/// may be hidden, or be of a namespace that numbers threads otherwise. A thread of another process is taken for one that shares this one's
/// memory, as a child of vfork(2) does.
pub fn ended_threads(process: ProcessId, threads: BTreeSet<u32>) -> BTreeSet<u32> {
    let own = PathBuf::from(format!("/proc/{}", process.pid));
    let is_numbered_so = fs::metadata("/proc/self/ns/pid").map(|file| file.ino());
    match is_numbered_so {
        Ok(NUMBERED_IN) => ended_in(Path::new("/proc"), &own, process.pid, threads),
        _ => BTreeSet::new(),
    }
}

fn ended_in(all: &Path, own: &Path, pid: u32, threads: BTreeSet<u32>) -> BTreeSet<u32> {
    // Of one that has ended nothing more is recorded, and it is read once more.
    let Ok(listed) = fs::read_dir(own.join("task")) else {
        return BTreeSet::new();
    };
    let number = |name: &std::ffi::OsStr| name.to_str()?.parse().ok();
    let mut living: BTreeSet<u32> = listed
        .flatten()
        .filter_map(|thread| number(&thread.file_name()))
        .collect();
    if living.is_empty() {
        return BTreeSet::new();
    }
    // The main thread keeps its number for as long as others run.
    if threads.contains(&pid) && survivor::survivor(own).is_some() {
        living.remove(&pid);
    }
    let has_ended = |thread: &u32| {
        !living.contains(thread) && (*thread == pid || !all.join(thread.to_string()).exists())
    };
    threads.into_iter().filter(has_ended).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_are_not_there_have_ended_and_what_shares_memory_has_not() {
        let folder = ckb_probe_testkit::Folder::new();
        let all = &folder.path("");
        // 7 and 8 are threads, and 9 another process.
        for directory in ["7/task/7", "7/task/8", "8", "9"] {
            fs::create_dir_all(all.join(directory)).unwrap();
        }
        let threads = BTreeSet::from([7, 8, 9, 10]);
        let ended = |pid: u32| ended_in(all, &all.join(pid.to_string()), pid, threads.clone());
        assert_eq!(ended(7), [10].into());
        // Nobody knows of a process that is gone, or not to be looked at.
        assert_eq!(ended(11), BTreeSet::new());
        assert_eq!(ended(9), BTreeSet::new());
    }

    #[test]
    fn a_thread_of_this_process_has_ended_as_it_has_and_not_before() {
        let process = ProcessId {
            pid: std::process::id(),
            start_ticks: 0,
        };
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let number = nix::unistd::gettid().as_raw().cast_unsigned();
            tell.send(number).unwrap();
            let _ = ends.recv();
        });
        let both = BTreeSet::from([process.pid, told.recv().unwrap()]);
        assert_eq!(ended_threads(process, both.clone()), BTreeSet::new());
        drop(end);
        thread.join().unwrap();
        // Whoever joins it is told a moment before it is gone.
        let gone = || ended_threads(process, both.clone());
        ckb_probe_testkit::wait_until("the end of the thread", || !gone().is_empty());
        assert!(!gone().contains(&process.pid));
    }
}
