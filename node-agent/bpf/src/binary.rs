//! A file whose functions are attached to.

use std::{
    fs::{File, Metadata},
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags, ResolveFlags, fstatfs, open, openat2};

/// A file that a process has mapped, held: whatever its container does to its paths meanwhile, what was searched is what is
/// attached to.
///
/// It is held by its place only and opened while it is searched: a file system that does not answer any more keeps whoever closes
/// an open file waiting.
#[derive(Debug)]
pub struct Binary {
    place: OwnedFd,
    path: PathBuf,
}

/// What finds a file, and neither opens nor asks anything of it.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

impl Binary {
    /// A file by its path in this program's own root.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            place: open(path, PLACE, Mode::empty())?,
            path: path.to_path_buf(),
        })
    }

    /// Opens a path as the target sees it: links lead nowhere but into its own root, and a pipe or a device does
    /// not keep anyone waiting.
    pub fn open_in_root(root: &File, path: &Path) -> io::Result<Self> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let binary = Self {
            place: openat2(root, path, PLACE, Mode::empty(), resolve)?,
            path: path.to_path_buf(),
        };
        if !binary.metadata()?.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(binary)
    }

    /// Its path as the target sees it, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, to be read and closed again.
    pub fn reader(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(open(self.attach_path(), flags, Mode::empty()).map(File::from)?)
    }

    /// Its size, inode and times, as they are now.
    pub fn metadata(&self) -> io::Result<Metadata> {
        // Of the place, whatever flags it is held with.
        File::from(self.place.try_clone()?).metadata()
    }

    /// Asks the file system that it is on for a sign of life: the kernel waits for one that has none while it holds what others
    /// need.
    pub fn ask(&self) -> io::Result<()> {
        Ok(fstatfs(&self.place).map(drop)?)
    }

    /// A path by which the kernel finds this very file, while it is held open.
    pub fn attach_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.place.as_raw_fd()))
    }
}
