//! Which files a process has mapped to run code of, each by the kernel's number for it: a path may be another file's by now.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{ProcessId, survivor::directory, symbols::MAPS_LIMIT};

/// So many files are known of a process.
const FILES: usize = 1024;

/// How the kernel marks a file of which there is another by its path, or none.
const GONE: &[u8] = b" (deleted)";

/// By path in the process's own root, device and inode as its `maps` have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Libraries(BTreeMap<PathBuf, Box<[u8]>>);

impl Libraries {
    /// As they are now. The process may be kept from mapping anything meanwhile, or keep this from going on.
    pub fn of(process: ProcessId) -> Self {
        File::open(directory(process.pid).join("maps"))
            .map(|maps| Self::read(BufReader::new(maps.take(MAPS_LIMIT))))
            .unwrap_or_default()
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
                all.insert(path.to_path_buf(), number.into());
            }
        }
        Self(all)
    }

    /// A file of which the process has another of the same path by now.
    pub fn replaced_in(&self, now: &Self) -> Option<&Path> {
        self.0.iter().find_map(|(path, number)| {
            let other = now.0.get(path)?;
            (other != number).then_some(path.as_path())
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
            before.replaced_in(&now).map(Path::to_path_buf)
        };
        let path = Some(PathBuf::from("/lib/a plug-in.so"));
        assert_eq!(replaced(&[own, old]), None);
        assert_eq!(replaced(&[own]), None);
        assert_eq!(replaced(&[own, gone]), None);
        assert_eq!(replaced(&[own, moved]), None);
        assert_eq!(replaced(&[own, new]), path);
        assert_eq!(replaced(&[own, gone, new]), path);
        assert_eq!(replaced(&[else_where]), path);
        // What was not there was not replaced.
        assert_eq!(read(&[own]).replaced_in(&before), None);
    }
}
