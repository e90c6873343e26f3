//! What a system call's descriptor stands for, at the end of the call: by the time that user space looks it up, it may stand for
//! something else.

use core::ffi::c_void;

use ckb_probe_programs::{fields::read, storage::Thread};

use crate::{DESCRIPTORS, ENTRY, FIELDS, FILES, INODE, INODE_NUMBER, MOST, NAME, TABLE};

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
