//! Which files a process has mapped to run code of, each by the kernel's number for it: a path may be another file's by now. And as what each was
//! written last: a file may hold other code by now.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read},
    os::unix::{ffi::OsStrExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::{ProcessId, survivor::directory, symbols::MAPS_LIMIT};

/// So many files are known of a process.
const FILES: usize = 1024;

/// How the kernel marks a file of which there is another by its path, or none.
const GONE: &[u8] = b" (deleted)";

/// By path in the process's own root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries(BTreeMap<PathBuf, Mapped>);

/// A file that is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapped {
    /// Device and inode as its `maps` have them.
    number: Box<[u8]>,
    /// None where it does not tell.
    written: Option<Written>,
}

/// As what a file was written last: how many bytes it has, and when that was, in seconds and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    bytes: u64,
    time: (i64, i64),
}

impl Written {
    /// Of the file that has this path in that root, whatever links are on the way: they are the process's, and lead nowhere else.
    fn of(root: &File, path: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let file = openat2(root, path, flags, Mode::empty(), resolve).ok()?;
        let file = File::from(file).metadata().ok()?;
        Some(Self {
            bytes: file.len(),
            time: (file.mtime(), file.mtime_nsec()),
        })
    }
}

/// What became of a file that was mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Another is mapped that has its path.
    Replaced,
    /// It was written to.
    Written,
}

impl Libraries {
    /// As they are now. The process may be kept from mapping anything meanwhile, or keep this from going on, and so may a file system.
    pub fn of(process: ProcessId) -> Self {
        let own = directory(process.pid);
        let mut all = File::open(own.join("maps"))
            .map(|maps| Self::read(BufReader::new(maps.take(MAPS_LIMIT))))
            .unwrap_or_default();
        if let Ok(root) = File::open(own.join("root")) {
            for (path, mapped) in &mut all.0 {
                mapped.written = Written::of(&root, path);
            }
        }
        all
    }

    /// Lines are `address permissions offset device inode path`.
    fn read(maps: impl BufRead) -> Self {
        let mut all = BTreeMap::new();
        for line in maps.split(b'\n').map_while(Result::ok) {
            let Some((permissions, number, path)) = mapped(&line) else {
                continue;
            };
            let path = Path::new(OsStr::from_bytes(path));
            if permissions.contains(&b'x') && path.is_absolute() && all.len() < FILES {
                let mapped = Mapped {
                    number: number.into(),
                    written: None,
                };
                all.insert(path.to_path_buf(), mapped);
            }
        }
        Self(all)
    }

    /// Files of which the process has others of the same paths by now, and those that were written to since.
    pub fn changes(&self, now: &Self) -> impl Iterator<Item = (&Path, Change)> {
        self.0.iter().filter_map(move |(path, then)| {
            let now = now.0.get(path)?;
            let times = then.written.zip(now.written);
            let change = match times {
                _ if then.number != now.number => Change::Replaced,
                Some((then, now)) if then != now => Change::Written,
                _ => return None,
            };
            Some((path.as_path(), change))
        })
    }
}

/// Permissions, device with inode, and the path; None of what has no path, or one that leads to it no more.
fn mapped(line: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (_, rest) = split(line)?;
    let (permissions, rest) = split(rest)?;
    let (_, number) = split(rest)?;
    let (_, after_device) = split(number)?;
    let (_, path) = split(after_device)?;
    let number = &number[..number.len() - path.len() - 1];
    let path = path.trim_ascii_start();
    (!path.is_empty() && !path.ends_with(GONE)).then_some((permissions, number, path))
}

/// At the first space.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    Some((&line[..end], &line[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> Libraries {
        Libraries::read(lines.join("\n").as_bytes())
    }

    #[test]
    fn a_file_is_replaced_where_another_is_mapped_at_its_path_and_not_where_it_is_gone() {
        let own = "00400000-00401000 r-xp 00000000 fe:00 77      /bin/own";
        let old = "7f0000000000-7f0000002000 r-xp 00001000 fe:00 78       /lib/a plug-in.so";
        let data = "7f0000002000-7f0000003000 r--p 00000000 fe:00 78       /lib/a plug-in.so";
        let gone =
            "7f0000000000-7f0000002000 r-xp 00001000 fe:00 78       /lib/a plug-in.so (deleted)";
        let new = "7f1000000000-7f1000002000 r-xp 00001000 fe:00 79       /lib/a plug-in.so";
        let moved = "7f2000000000-7f2000002000 r-xp 00001000 fe:00 78       /lib/a plug-in.so";
        let else_where = "7f2000000000-7f2000002000 r-xp 00001000 fe:01 78       /lib/a plug-in.so";
        let no_file = "7f3000000000-7f3000002000 r-xp 00000000 00:00 0 [vdso]";
        let before = read(&[own, old, data, no_file, "nothing of the sort"]);
        assert_eq!(before.0.len(), 2);
        let replaced = |now: &[&str]| {
            let now = read(now);
            let changed = before.changes(&now).next();
            changed.map(|(path, change)| (path.to_path_buf(), change))
        };
        let path = Some((PathBuf::from("/lib/a plug-in.so"), Change::Replaced));
        assert_eq!(replaced(&[own, old]), None);
        assert_eq!(replaced(&[own]), None);
        assert_eq!(replaced(&[own, gone]), None);
        assert_eq!(replaced(&[own, moved]), None);
        assert_eq!(replaced(&[own, new]), path);
        assert_eq!(replaced(&[own, gone, new]), path);
        assert_eq!(replaced(&[else_where]), path);
        // What was not there was not replaced.
        assert_eq!(read(&[own]).changes(&before).next(), None);
        // Each is told.
        let other = "00400000-00401000 r-xp 00000000 fe:00 80      /bin/own";
        assert_eq!(before.changes(&read(&[other, new])).count(), 2);
    }

    #[test]
    fn a_file_is_looked_at_in_the_processs_own_root_whatever_links_are_on_the_way() {
        let folder = ckb_probe_testkit::Folder::new();
        let root = folder.path("root");
        std::fs::create_dir_all(root.join("elsewhere")).unwrap();
        std::fs::write(root.join("elsewhere/own.so"), "own").unwrap();
        // Outside of it there is another of that path.
        let outside = folder.path("elsewhere");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("own.so"), "another").unwrap();
        std::os::unix::fs::symlink("/elsewhere", root.join("lib")).unwrap();
        std::os::unix::fs::symlink(&outside, root.join("out")).unwrap();
        std::os::unix::fs::symlink("../../elsewhere", root.join("up")).unwrap();
        let opened = File::open(&root).unwrap();
        let bytes = |path: &str| Written::of(&opened, Path::new(path)).map(|file| file.bytes);
        assert_eq!(bytes("/elsewhere/own.so"), Some(3));
        assert_eq!(bytes("/lib/own.so"), Some(3));
        assert_eq!(bytes("/up/own.so"), Some(3));
        assert_eq!(bytes("/out/own.so"), None);
    }

    #[test]
    fn a_file_is_written_to_where_its_size_or_its_time_is_another_and_not_where_it_does_not_tell() {
        let path = Path::new("/lib/own.so");
        let file = |written: Option<(u64, i64, i64)>| {
            let mapped = Mapped {
                number: (*b"fe:00 77").into(),
                written: written.map(|(bytes, seconds, nanos)| Written {
                    bytes,
                    time: (seconds, nanos),
                }),
            };
            Libraries([(path.to_path_buf(), mapped)].into())
        };
        let before = file(Some((10, 7, 7)));
        let written = Some((path, Change::Written));
        assert_eq!(before.changes(&file(Some((10, 7, 7)))).next(), None);
        assert_eq!(before.changes(&file(Some((11, 7, 7)))).next(), written);
        assert_eq!(before.changes(&file(Some((10, 8, 7)))).next(), written);
        assert_eq!(before.changes(&file(Some((10, 7, 8)))).next(), written);
        assert_eq!(before.changes(&file(None)).next(), None);
        assert_eq!(file(None).changes(&before).next(), None);
    }
}
