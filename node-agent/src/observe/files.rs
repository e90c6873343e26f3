//! The files that a process has open.

use std::{ffi::OsString, fs::File, io, os::unix::ffi::OsStringExt as _, path::PathBuf};

use rustix::fs::readlinkat;

use super::{ProcessId, survivor::directory};

/// The files that a process has open.
pub struct OpenFiles(File);

impl OpenFiles {
    /// Opened once: to find the folder anew takes as long as to read a link in it.
    pub fn of(process: ProcessId) -> io::Result<Self> {
        File::open(directory(process.pid).join("fd")).map(Self)
    }

    /// What a descriptor is of.
    pub fn path(&self, descriptor: u64) -> Option<PathBuf> {
        let descriptor = u32::try_from(descriptor).ok()?;
        let path = readlinkat(&self.0, descriptor.to_string(), Vec::new()).ok()?;
        Some(PathBuf::from(OsString::from_vec(path.into_bytes())))
    }
}
