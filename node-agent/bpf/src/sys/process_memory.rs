//! Memory of another process, as its owner would read it: process_vm_readv(2).

use std::{io, ptr::NonNull};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// Copies so many bytes of a process from an address on to a place of this one's, as far as they can be read; how many that was. Waits for
/// pages that are not there, where only signals that kill end that.
///
/// # Safety
/// The place has room for as many, which nobody else looks at meanwhile.
pub(crate) unsafe fn read_memory(
    process: u32,
    from: u64,
    to: NonNull<u8>,
    bytes: usize,
) -> io::Result<usize> {
    let own = libc::iovec {
        iov_base: to.as_ptr().cast(),
        iov_len: bytes,
    };
    let other = libc::iovec {
        iov_base: from as *mut libc::c_void,
        iov_len: bytes,
    };
    let process = libc::pid_t::try_from(process).map_err(io::Error::other)?;
    // SAFETY: the place is the caller's word; the other one the kernel looks at.
    let copied =
        unsafe { libc::process_vm_readv(process, &raw const own, 1, &raw const other, 1, 0) };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// Whether the main thread of a process has ended while others of it run. With that thread the kernel forgets whose memory it had (`exit_mm` in
/// kernel/exit.c), by which links go that are made for a process: they see nothing.
pub(crate) fn lives_without_main_thread(process: u32) -> bool {
    let forgotten = |error: io::Error| error.raw_os_error() == Some(libc::ESRCH);
    may_read_memory(process).is_err_and(forgotten) && lives(process).unwrap_or(false)
}

/// Whether a thread of it has not ended.
fn lives(process: u32) -> rustix::io::Result<bool> {
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let held = pidfd_open(number.ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
    let mut looks = [PollFd::new(&held, PollFlags::IN)];
    Ok(poll(&mut looks, Some(&Timespec::default()))? == 0)
}

/// Whether the kernel lets this process read the memory of another one.
pub(crate) fn may_read_memory(process: u32) -> io::Result<()> {
    let mut byte = 0u8;
    // SAFETY: one byte, which is nobody else's. There is nothing at that address, which is found out last.
    match unsafe { read_memory(process, 0, NonNull::from(&mut byte), 1) } {
        Err(error) if error.raw_os_error() != Some(libc::EFAULT) => Err(error),
        _ => Ok(()),
    }
}
