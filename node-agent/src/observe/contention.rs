//! What a container waited for, by the kernel's accounts of its cgroup and of its network.
//!
//! An agent in a container does not see the cgroups of others under its own `/sys/fs/cgroup`, but each container sees its own: it is looked for where the
//! target sees it, and nothing there is believed but what the kernel's file system of cgroups says. That way leads over the target's
//! mounts, which may not answer, so [opening](ContentionFiles::open) is for who may take their time. What is open then answers by itself.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt as _,
    },
    path::{Path, PathBuf},
};

use ckb_probe_core::contention::{Accounts, Segments, Throttling, waited};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstatfs, openat, openat2};

use super::{Life, ProcessId, monotonic, survivor::directory};

/// So many bytes of a mount table are read: what a runtime mounts is among the first.
const TABLE_BYTES: u64 = 1 << 20;

/// So many mounts of cgroups of one sort are tried.
const MOUNTS: usize = 4;

/// Files of accounts are shorter: the longest has a hundred numbers of network protocols.
const ACCOUNT_BYTES: usize = 8 << 10;

/// The accounts of a process's container, open. What there is not is None.
#[derive(Debug, Default)]
pub struct ContentionFiles {
    cpu_wait: Option<File>,
    throttling: Option<File>,
    disk_wait: Option<File>,
    segments: Option<File>,
}

/// Where a process is among the cgroups: of version 2, and of the CPU controller of version 1.
#[derive(Debug, Default, PartialEq, Eq)]
struct Cgroups {
    unified: Option<String>,
    cpu: Option<String>,
}

/// A hierarchy of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hierarchy {
    Unified,
    Cpu,
}

impl ContentionFiles {
    /// Opens what there is of a process. Nothing, where it has ended meanwhile: its number may be another's.
    pub fn open(process: ProcessId) -> Self {
        let own = directory(process.pid);
        let cgroups = std::fs::read_to_string(own.join("cgroup")).unwrap_or_default();
        let Cgroups { unified, cpu } = Cgroups::of(&cgroups);
        let folder = |hierarchy, path: Option<String>| cgroup(&own, hierarchy, &path?);
        let unified = folder(Hierarchy::Unified, unified);
        let cpu = folder(Hierarchy::Cpu, cpu);
        let open = |name| account(unified.as_ref()?, name);
        let found = Self {
            cpu_wait: open("cpu.pressure"),
            throttling: match &cpu {
                Some(cpu) => account(cpu, "cpu.stat"),
                None => open("cpu.stat"),
            },
            disk_wait: open("io.pressure"),
            segments: File::open(own.join("net/snmp")).ok(),
        };
        match Life::of(process) {
            Ok(_) => found,
            Err(_) => Self::default(),
        }
    }

    /// What the accounts say now. None of them waits for anything but the kernel.
    pub fn read(&self) -> Accounts {
        let text = |file: &Option<File>| text(file.as_ref()?);
        Accounts {
            at: monotonic(),
            cpu_wait: text(&self.cpu_wait).and_then(|text| waited(&text)),
            throttling: text(&self.throttling).and_then(|text| Throttling::of(&text)),
            disk_wait: text(&self.disk_wait).and_then(|text| waited(&text)),
            segments: text(&self.segments).and_then(|text| Segments::of(&text)),
        }
    }
}

impl Cgroups {
    /// By the text of `/proc/PID/cgroup`. That a process is in no cgroup of a hierarchy, but at its root, says nothing of it: what is
    /// accounted for there is the whole node.
    fn of(text: &str) -> Self {
        let mut found = Self::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let path = Some(path.to_owned()).filter(|path| path != "/");
            if controllers.is_empty() {
                found.unified = path;
            } else if controllers.split(',').any(|one| one == "cpu") {
                found.cpu = path;
            }
        }
        found
    }
}

/// The folder of a cgroup, where the process in this directory of /proc sees it.
fn cgroup(process: &Path, hierarchy: Hierarchy, path: &str) -> Option<OwnedFd> {
    let table = File::open(process.join("mountinfo")).ok()?;
    let lines = BufReader::new(table.take(TABLE_BYTES)).split(b'\n');
    let places = lines.map_while(Result::ok).filter_map(|line| {
        // What mounts are called is up to whoever makes them.
        let line = std::str::from_utf8(&line).ok()?;
        place_in(line, hierarchy, path)
    });
    let root = openat(
        CWD,
        process.join("root"),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    let root = root.ok()?;
    let mut folders = places.take(MOUNTS).filter_map(|place| {
        let inner = place.strip_prefix("/").unwrap_or(&place);
        let folder = openat2(
            &root,
            inner,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
            // Whatever a target's links say, it is among its own files.
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS,
        );
        folder.ok().filter(is_of_cgroups)
    });
    folders.next()
}

fn is_of_cgroups(folder: &OwnedFd) -> bool {
    let magic = fstatfs(folder).map(|about| i128::from(about.f_type));
    let known = [libc::CGROUP2_SUPER_MAGIC, libc::CGROUP_SUPER_MAGIC].map(i128::from);
    magic.is_ok_and(|magic| known.contains(&magic))
}

/// Where a cgroup is, by a line of a mount table, if it is in what is mounted there. The kernel tells both as who asks sees them.
fn place_in(line: &str, hierarchy: Hierarchy, path: &str) -> Option<PathBuf> {
    let (mount, source) = line.split_once(" - ")?;
    let mut source = source.split(' ');
    let (kind, options) = (source.next()?, source.nth(1)?);
    let is_it = match hierarchy {
        Hierarchy::Unified => kind == "cgroup2",
        Hierarchy::Cpu => kind == "cgroup" && options.split(',').any(|one| one == "cpu"),
    };
    let mut fields = mount.split(' ').skip(3);
    let (root, place) = (fields.next()?, fields.next()?);
    let inner = Path::new(path).strip_prefix(root).ok()?;
    is_it.then(|| Path::new(place).join(inner))
}

/// A file of a cgroup, which nothing is mounted over.
fn account(folder: &impl AsFd, name: &str) -> Option<File> {
    let file = openat2(
        folder,
        name,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS,
    );
    file.ok().map(File::from)
}

/// All of an account, from its beginning; None where it is longer than any, or gone.
fn text(file: &File) -> Option<String> {
    let mut bytes = [0; ACCOUNT_BYTES];
    let mut length = 0;
    loop {
        match file.read_at(bytes.get_mut(length..)?, length as u64) {
            Ok(0) if length == bytes.len() => return None,
            Ok(0) => break,
            Ok(read) => length += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    std::str::from_utf8(bytes.get(..length)?)
        .ok()
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_where_either_version_says() {
        let cgroups = |unified: Option<&str>, cpu: Option<&str>| Cgroups {
            unified: unified.map(str::to_owned),
            cpu: cpu.map(str::to_owned),
        };
        let two = "0::/kubepods.slice/pod1/cri-containerd-abc.scope\n";
        let path = "/kubepods.slice/pod1/cri-containerd-abc.scope";
        assert_eq!(Cgroups::of(two), cgroups(Some(path), None));
        let one = "9:name=systemd:/x\n4:cpu,cpuacct:/kubepods/pod1/abc\n3:cpuset:/y\n0::/\n";
        let path = "/kubepods/pod1/abc";
        assert_eq!(Cgroups::of(one), cgroups(None, Some(path)));
        assert_eq!(Cgroups::of("0::/\n1:cpu:/\nnonsense\n"), Cgroups::default());
    }

    #[test]
    fn a_cgroup_is_found_in_what_a_container_has_mounted_of_it_and_on_a_host() {
        let found = |line: &str, hierarchy, path: &str| {
            let place = place_in(line, hierarchy, path)?;
            Some(place.to_str()?.to_owned())
        };
        // As an agent sees it that has a namespace of its own.
        let own =
            "36 35 0:29 /../../pod1/abc /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw,nsdelegate";
        let path = "/../../pod1/abc";
        let place = found(own, Hierarchy::Unified, path);
        assert_eq!(place.as_deref(), Some("/sys/fs/cgroup/"));
        let inner = found(own, Hierarchy::Unified, "/../../pod1/abc/system.slice");
        assert_eq!(inner.as_deref(), Some("/sys/fs/cgroup/system.slice"));
        assert_eq!(found(own, Hierarchy::Unified, "/../../pod1/abcd"), None);
        assert_eq!(found(own, Hierarchy::Cpu, path), None);

        let host = "30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate";
        let place = found(host, Hierarchy::Unified, "/user.slice/run.scope");
        assert_eq!(
            place.as_deref(),
            Some("/sys/fs/cgroup/user.slice/run.scope")
        );
        let one = "33 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct";
        let place = found(one, Hierarchy::Cpu, "/kubepods/abc");
        let expected = "/sys/fs/cgroup/cpu,cpuacct/kubepods/abc";
        assert_eq!(place.as_deref(), Some(expected));
        let set = "33 32 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset";
        assert_eq!(found(set, Hierarchy::Cpu, "/kubepods/abc"), None);
        assert_eq!(found("nonsense", Hierarchy::Cpu, "/a"), None);
    }

    #[test]
    fn what_has_ended_has_no_accounts() {
        let gone = ProcessId {
            pid: u32::MAX >> 1,
            start_ticks: 0,
        };
        let accounts = ContentionFiles::open(gone).read();
        let at = accounts.at;
        assert_eq!(
            accounts,
            Accounts {
                at,
                ..Accounts::default()
            }
        );
    }
}
