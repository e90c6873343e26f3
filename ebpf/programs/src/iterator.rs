//! Programs that the kernel runs for each of its tasks, files or sockets when their file is read.

use core::ffi::c_void;

use aya_ebpf::{bindings::seq_file, helpers::generated::bpf_seq_write};

/// `struct bpf_iter_meta`.
#[repr(C)]
struct Meta {
    seq: *mut seq_file,
    session: u64,
    number: u64,
}

/// What an iterator's program is handed: something about the iteration, and then as many words as its type has: a
/// task, its file, …
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Context(*const c_void);

impl Context {
    /// From the argument of the program.
    pub const fn new(context: *mut c_void) -> Self {
        Self(context)
    }

    /// The word after the first; null once at the end of the iteration.
    ///
    /// # Safety
    /// The iterator has so many.
    #[inline(always)]
    pub unsafe fn word<const INDEX: usize>(self) -> *mut c_void {
        // SAFETY: by the caller's word. Volatile: one load, of a whole word, is what the verifier allows.
        unsafe {
            self.0
                .cast::<*mut c_void>()
                .wrapping_add(1 + INDEX)
                .read_volatile()
        }
    }

    /// Appends a record to what the reader reads; false when there is no room now, and the kernel comes back to the
    /// same element.
    #[inline(always)]
    pub fn write<T>(self, record: &T) -> bool {
        // SAFETY: the first word of every iterator's context, which the verifier knows by its type.
        let result = unsafe {
            let meta = self.0.cast::<*const Meta>().read_volatile();
            let seq = (&raw const (*meta).seq).read_volatile();
            bpf_seq_write(
                seq,
                core::ptr::from_ref(record).cast(),
                size_of::<T>() as u32,
            )
        };
        result == 0
    }
}
