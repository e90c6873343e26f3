//! Processes whose main thread has ended while others run, as after pthread_exit(3) in `main`: such a process lives, and goes by its number.
//!
//! Of a thread that has ended /proc tells when it began, and of which process it is, but no executable, memory, files, namespaces or mounts,
//! though the process has them. Each thread has a directory in that of its process, in which all of that is, and never what is another
//! process's: a thread's number may be given to one of these as soon as it has ended.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use procfs::process::Process;

/// Where it is told what a process has: in its own directory, or in that of a thread that runs where the main thread has ended.
pub(super) fn directory(pid: u32) -> PathBuf {
    directory_in(PathBuf::from(format!("/proc/{pid}")))
}

/// The same of a process in its directory of a /proc that may be elsewhere.
pub(super) fn directory_in(own: PathBuf) -> PathBuf {
    survivor(&own).unwrap_or(own)
}

/// The directory of a thread that has not ended, of a process whose main thread has; None where that has not, or all have.
pub(super) fn survivor(process: &Path) -> Option<PathBuf> {
    let threads = process.join("task");
    // It has as many links as threads, and two: of one alone no more is read.
    if fs::metadata(&threads).ok()?.nlink() <= 3 || !has_ended(process) {
        return None;
    }
    let mut threads = fs::read_dir(&threads).ok()?.flatten();
    threads.find_map(|thread| Some(thread.path()).filter(|thread| !has_ended(thread)))
}

/// Whether the thread of this directory has.
fn has_ended(thread: &Path) -> bool {
    let stat = Process::new_with_root(thread.to_path_buf()).and_then(|thread| thread.stat());
    stat.map_or(true, |stat| matches!(stat.state, 'Z' | 'X' | 'x'))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ckb_probe_testkit::{Fixture, Folder, wait_until};

    use super::*;
    use crate::observe::{
        Life, Mappings, Namespaces, OpenFiles, SymbolCache, SymbolName, Unmeasured, find_symbols,
        is_confined, process, processes, resident, unmeasured,
    };

    fn state(pid: u32) -> Option<char> {
        let process = Process::new(pid.cast_signed()).ok()?;
        Some(process.stat().ok()?.state)
    }

    #[test]
    fn a_process_without_its_main_thread_is_found_and_all_that_it_has_until_it_ends() {
        let folder = Folder::new();
        let program = folder.compile("cc", "leaderless.c", "leaderless", &["-pthread"]);
        let mut fixture = Fixture::start(&program);
        let pid = fixture.pid();
        let found = || {
            let found = processes(|name| name == "leaderless").unwrap().processes;
            found.into_iter().find(|process| process.id.pid == pid)
        };
        let before = found().unwrap();
        let namespaces = Namespaces::of(before.id).unwrap();
        let life = Life::of(before.id).unwrap();
        let own = PathBuf::from(format!("/proc/{pid}"));
        assert_eq!(directory(pid), own);

        fixture.tell("leave");
        wait_until("the end of the main thread", || state(pid) == Some('Z'));
        assert!(directory(pid).starts_with(own.join("task")));
        assert_eq!(unmeasured(pid), None);
        assert_eq!(found().as_ref(), Some(&before));
        assert_eq!(process(pid, |_| true).unwrap(), Some(before.clone()));
        assert!(!life.is_over() && Life::of(before.id).is_ok());
        assert_eq!(Namespaces::of(before.id).unwrap(), namespaces);
        let names = BTreeSet::from([SymbolName::Exact("alpha")]);
        let symbols = find_symbols(before.id, &names, &SymbolCache::default()).unwrap();
        assert_eq!((symbols.found.len(), symbols.missing.len()), (1, 0));
        assert_ne!(Mappings::of(before.id).unwrap(), Mappings::default());
        assert!(OpenFiles::of(before.id).unwrap().path(0).is_some());
        assert!(resident(before.id).is_some_and(|resident| resident.all > 0));
        assert_eq!(is_confined(before.id), is_confined_here());
        assert_eq!(fixture.tell("alpha 3"), "");

        // All threads have ended, and nobody has asked how.
        fixture.order("end 1");
        wait_until("its end", || life.is_over());
        assert_eq!(unmeasured(pid), Some(Unmeasured::Zombie));
        assert_eq!(found(), None);
        drop(fixture);
    }

    fn is_confined_here() -> bool {
        let own = std::process::id();
        is_confined(process(own, |_| true).unwrap().unwrap().id)
    }
}
