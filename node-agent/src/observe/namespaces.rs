//! The namespaces that processes are in.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
};

use super::{Life, ObserveError, ProcessId, survivor::directory};

/// Numbers of namespaces: whoever has the same is in the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespaces {
    /// The network: all containers of a pod have one, unless they have the host's.
    pub network: u32,
    /// The processes that it sees: those of its container, unless it sees all of the host's or of the pod.
    pub process_ids: u32,
}

/// A namespace that goes by its number for as long as this is there: the kernel gives the number of one that is gone to the next.
#[derive(Debug)]
pub struct HeldNamespace(#[expect(dead_code, reason = "it is open")] File);

impl HeldNamespace {
    /// That of a process by this name, `net` or `pid`, which has this number.
    pub fn of(process: ProcessId, name: &'static str, number: u32) -> Result<Self, ObserveError> {
        let pid = process.pid;
        let failed = |source| ObserveError::Namespace { pid, name, source };
        let file = File::open(directory(pid).join("ns").join(name)).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if found.ino() != u64::from(number) {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        Ok(Self(file))
    }
}

impl Namespaces {
    /// Those of a process. Fails when it is gone, also where its number is another's by now.
    pub fn of(process: ProcessId) -> Result<Self, ObserveError> {
        let read = Self::of_pid(process.pid)?;
        // It is there still: so it was its namespaces that were read.
        Life::of(process)?;
        Ok(read)
    }

    /// Those of the host: of the kernel's own threads where they are to be seen, else of the first process, which not everybody
    /// may look at.
    pub fn of_host() -> Result<Self, ObserveError> {
        let second = fs::read_to_string("/proc/2/comm").unwrap_or_default();
        Self::of_pid(if second == "kthreadd\n" { 2 } else { 1 })
    }

    fn of_pid(pid: u32) -> Result<Self, ObserveError> {
        let number = |name| {
            namespace(pid, name).map_err(|source| ObserveError::Namespace { pid, name, source })
        };
        Ok(Self {
            network: number("net")?,
            process_ids: number("pid")?,
        })
    }
}

/// What the first PID namespace has for a number, in each kernel: `PROC_PID_INIT_INO` of include/linux/proc_ns.h.
const FIRST: u32 = 0xEFFF_FFFC;

/// Whether processes have the numbers here that the kernel tells its programs, which are those of the first PID namespace. True where procfs
/// does not say.
pub fn are_numbers_the_kernels() -> bool {
    fs::read_link("/proc/self/ns/pid").map_or(true, |link| {
        let number = link.to_str().and_then(parse);
        number.is_none_or(|number| number == FIRST)
    })
}

fn namespace(pid: u32, name: &str) -> io::Result<u32> {
    let link = fs::read_link(directory(pid).join("ns").join(name))?;
    let malformed = || io::Error::from(io::ErrorKind::InvalidData);
    parse(link.to_str().ok_or_else(malformed)?).ok_or_else(malformed)
}

/// `net:[4026531840]`.
fn parse(link: &str) -> Option<u32> {
    let (_, number) = link.split_once(":[")?;
    number.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_its_number() {
        assert_eq!(parse("net:[4026531840]"), Some(4_026_531_840));
        assert_eq!(parse("net:[4026531840"), None);
        assert_eq!(parse("/dev/null"), None);
    }

    #[test]
    fn the_number_of_a_namespace_that_is_held_is_no_others() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let mut unshare = std::process::Command::new("unshare");
        unshare.args(["--net", "sleep", "60"]);
        let host = Namespaces::of_host().unwrap().network;
        let mut next = || {
            let mut child = unshare.spawn().unwrap();
            let pid = child.id();
            let network = loop {
                let own = Namespaces::of_pid(pid).unwrap().network;
                if own != host {
                    break own;
                }
                std::thread::yield_now();
            };
            let id = ProcessId {
                pid,
                start_ticks: 0,
            };
            let held = HeldNamespace::of(id, "net", network).unwrap();
            assert!(HeldNamespace::of(id, "net", network + 1).is_err());
            child.kill().unwrap();
            child.wait().unwrap();
            (network, held)
        };
        let (first, held) = next();
        for _ in 0..10 {
            // The kernel takes a moment to give a number back.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_ne!(next().0, first);
        }
        drop(held);
    }

    #[test]
    fn children_are_where_their_parents_are() {
        let own = Namespaces::of_pid(std::process::id()).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert_eq!(Namespaces::of_pid(child.id()).unwrap(), own);
        let another = ProcessId {
            pid: child.id(),
            start_ticks: 1,
        };
        assert!(Namespaces::of(another).is_err());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Namespaces::of_pid(u32::MAX >> 1).is_err());
    }
}
