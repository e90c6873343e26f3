//! Memory of a map, as this process sees it.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
};

/// It, readable and writable until it is dropped. It is the kernel's, so it is never swapped, and core dumps do not have it.
pub(crate) struct Mapped {
    begin: NonNull<u8>,
    bytes: usize,
}

// SAFETY: nobody else has the pointer, and what is behind it is accessed by raw reads and writes only.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Of a map that has so many bytes.
    pub(crate) fn of(map: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let begin = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        if begin == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let begin = NonNull::new(begin.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let mapped = Self { begin, bytes };
        // SAFETY: the mapping itself. Where it is refused, a core dump has what is in the slots at that moment.
        unsafe { libc::madvise(begin.as_ptr().cast(), bytes, libc::MADV_DONTDUMP) };
        Ok(mapped)
    }

    /// The element of an index, of elements of a type; None beyond the end.
    pub(crate) fn element<T>(&self, index: usize) -> Option<NonNull<T>> {
        let end = index.checked_add(1)?.checked_mul(size_of::<T>())?;
        if end > self.bytes {
            return None;
        }
        // SAFETY: within the mapping, by the comparison.
        Some(unsafe { self.begin.add(end - size_of::<T>()) }.cast())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and nobody has a pointer into it any more.
        unsafe { libc::munmap(self.begin.as_ptr().cast(), self.bytes) };
    }
}
