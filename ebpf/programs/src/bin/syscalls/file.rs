//! What a system call's descriptor stands for, at the end of the call: by the time that user space looks it up, it may stand for
//! something else.

use core::ffi::c_void;

use ckb_probe_programs::{fields::read, task_storage::Thread};

use crate::FIELDS;

/// Where the kernel has it, in the order in which the loader names the fields: `task_struct.files`.
pub const FILES: usize = 1;
/// `files_struct.fdt`
pub const TABLE: usize = 2;
/// `fdtable.max_fds`
pub const MOST: usize = 3;
/// `fdtable.fd`
pub const DESCRIPTORS: usize = 4;
/// `file.f_inode`
pub const INODE: usize = 5;
/// `inode.i_ino`
pub const INODE_NUMBER: usize = 6;
/// `file.f_path.dentry`
pub const ENTRY: usize = 7;
/// `dentry.d_name.name`
pub const NAME: usize = 8;

/// A file, a socket, or whatever else can be open.
pub struct File {
    /// The number of its inode.
    pub inode: u64,
    /// Its name without folders; empty for what has none.
    pub name: *const c_void,
}

/// What the thread that runs has open under this number.
#[inline(always)]
pub fn of(descriptor: u32) -> Option<File> {
    let files = FIELDS.pointer::<FILES>(Thread::current().as_ptr())?;
    let table = FIELDS.pointer::<TABLE>(files)?;
    if u64::from(descriptor) >= FIELDS.number::<MOST>(table)? {
        return None;
    }
    let place = FIELDS.pointer::<DESCRIPTORS>(table)?;
    let place = place.cast::<u64>().wrapping_add(descriptor as usize);
    // SAFETY: any bytes are a number.
    let file = unsafe { read(place) }? as *const c_void;
    let inode = FIELDS.pointer::<INODE>(file)?;
    let entry = FIELDS.pointer::<ENTRY>(file)?;
    Some(File {
        inode: FIELDS.number::<INODE_NUMBER>(inode)?,
        name: FIELDS.pointer::<NAME>(entry)?,
    })
}
