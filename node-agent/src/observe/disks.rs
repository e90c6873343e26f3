//! The disks of this node, and what stands on them.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use crate::text;

/// Where the kernel lists them.
const BLOCK: &str = "/sys/block";

/// A disk or a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockDevice {
    /// Its name, as in /proc/diskstats.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<String>,
    /// The disks and partitions that it is made of: of a volume of LVM, dm-crypt or md.
    pub below: Vec<String>,
    /// Whether it has requests of its own: what passes everything on to others has none, nor has memory that looks like a disk.
    pub has_requests: bool,
}

/// All that the kernel lists, in order of name.
pub fn block_devices() -> io::Result<Vec<BlockDevice>> {
    let mut devices: Vec<BlockDevice> = entries(Path::new(BLOCK))?
        .iter()
        .map(|path| device(path))
        .collect();
    devices.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(devices)
}

fn device(path: &Path) -> BlockDevice {
    // One that goes meanwhile has nothing any more.
    let inside = entries(path).unwrap_or_default();
    let partitions = inside.iter().filter(|one| one.join("partition").exists());
    let below = entries(&path.join("slaves")).unwrap_or_default();
    BlockDevice {
        name: name(path),
        partitions: partitions.map(|one| name(one)).collect(),
        below: below.iter().map(|one| name(one)).collect(),
        has_requests: path.join("mq").exists(),
    }
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// In place of a slash, which some drivers have in their names, a file's name has an exclamation mark.
fn name(path: &Path) -> String {
    let name = text::of(path.file_name().unwrap_or_default().as_bytes());
    name.replace('!', "/")
}
