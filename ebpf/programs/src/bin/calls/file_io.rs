//! What calls read from files and write to them.
//!
//! The kernel has that of each thread (`task_struct.ioac`, which is `/proc/PID/task/TID/io`): what of it was added between the beginning of
//! a call and its end is the call's. A database reads a block where its cache lacks it, so this tells what was not in the cache, and no
//! further function is probed for it.

use aya_ebpf::{helpers::generated::bpf_get_current_task, macros::map, maps::Array};
use ckb_probe_common::{FILE_IO_CELLS, FileIo, FileIoCell, Files};
use ckb_probe_programs::{
    counters::{self, add},
    fields,
    storage::{TaskStorage, Thread},
};

use crate::record;

// Of `task_struct.ioac`.
fields!(FILE_IO: READ_BYTES, WRITTEN_BYTES, READS);

/// The account of a thread as its call began: where the thread's cell is free, as nearly always, since that takes a tenth of the time. The
/// loader sets how many there are: [`FILE_IO_CELLS`], or one, which is then not used.
#[map]
static ACCOUNTS: Array<FileIoCell> = Array::with_max_entries(1, 0);

/// Of a thread whose cell is another's.
#[map]
static MORE_ACCOUNTS: TaskStorage<FileIo> = TaskStorage::new();

/// The cell of the thread that runs, and what it is named by there.
#[inline(always)]
fn cell() -> Option<(*mut FileIoCell, u64)> {
    // SAFETY: the helper has no preconditions.
    let thread = unsafe { bpf_get_current_task() };
    // Some of them lie in each piece of memory of 32 KiB.
    let hash = (thread >> 6 ^ thread >> 15) as u32;
    let cell = ACCOUNTS.get_ptr_mut(hash & (FILE_IO_CELLS - 1))?;
    Some((cell, thread))
}

/// Whether the kernel keeps these accounts: where it doesn't, the verifier leaves out what depends on it.
#[inline(always)]
fn are_kept() -> bool {
    const WORD: usize = size_of::<u64>();
    FILE_IO.has::<READ_BYTES>(WORD)
        && FILE_IO.has::<WRITTEN_BYTES>(WORD)
        && FILE_IO.has::<READS>(WORD)
}

/// One of the numbers, of the thread that runs.
#[inline(always)]
fn now<const FIELD: usize>() -> u64 {
    // SAFETY: the kernel handed the thread out, and its fields have eight bytes.
    unsafe { FILE_IO.trusted_u64::<FIELD>(Thread::current().as_ptr()) }
}

/// Takes down what is asked for.
///
/// # Safety
/// The account is a map's value.
#[inline(always)]
unsafe fn take_down(account: *mut FileIo, files: Files) {
    // SAFETY: by the caller's word.
    unsafe {
        if files.read() {
            (*account).reads = now::<READS>();
            (*account).read_bytes = now::<READ_BYTES>();
        }
        if files.written() {
            (*account).written_bytes = now::<WRITTEN_BYTES>();
        }
    }
}

/// A call begins of which this is asked for.
#[inline(always)]
pub fn begins(files: Files) {
    if !files.any() || !are_kept() {
        return;
    }
    if let Some((cell, thread)) = cell() {
        // SAFETY: a map's value, which the thread that it names alone writes to.
        unsafe {
            let owner = &raw mut (*cell).owner;
            let held = owner.read_volatile();
            // What it has itself is of a call whose end was not seen.
            if held == thread || held == 0 && counters::exchange(owner, 0, thread).is_ok() {
                take_down(&raw mut (*cell).account, files);
                return;
            }
        }
    }
    begins_elsewhere(files);
}

#[inline(never)]
fn begins_elsewhere(files: Files) {
    if let Some(account) = MORE_ACCOUNTS.get_or_create(Thread::current()) {
        // SAFETY: a map's value, which only this thread has to do with.
        unsafe {
            take_down(account, files);
            (*account).readers = 1;
        }
    }
}

/// The call has ended: adds what it read and wrote.
///
/// # Safety
/// The sums are a map's value.
#[inline(always)]
pub unsafe fn ends(sums: *mut FileIo, files: Files) {
    if !files.any() || !are_kept() {
        return;
    }
    // SAFETY: a map's value; and by the caller's word.
    unsafe {
        if let Some((cell, thread)) = cell()
            && (&raw const (*cell).owner).read_volatile() == thread
        {
            add_since(sums, &raw const (*cell).account, files);
            (&raw mut (*cell).owner).write_volatile(0);
            return;
        }
        // Another thread has the cell.
        match MORE_ACCOUNTS.get(Thread::current()) {
            Some(account) if (*account).readers != 0 => {
                (*account).readers = 0;
                add_since(sums, account, files);
            }
            // The kernel had no memory for it.
            _ => record::lose_size(),
        }
    }
}

#[inline(always)]
unsafe fn add_since(sums: *mut FileIo, account: *const FileIo, files: Files) {
    // SAFETY: by the caller's word.
    unsafe {
        if files.read() {
            let reads = now::<READS>().wrapping_sub((*account).reads);
            if reads > 0 {
                let read_bytes = now::<READ_BYTES>().wrapping_sub((*account).read_bytes);
                add(&raw mut (*sums).reads, reads);
                add(&raw mut (*sums).read_bytes, read_bytes);
                add(&raw mut (*sums).readers, 1);
            }
        }
        if files.written() {
            let written_bytes = now::<WRITTEN_BYTES>().wrapping_sub((*account).written_bytes);
            if written_bytes > 0 {
                add(&raw mut (*sums).written_bytes, written_bytes);
            }
        }
    }
}
