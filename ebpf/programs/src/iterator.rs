//! Programs that the kernel runs for each of its tasks, files or sockets when their file is read.

use core::ffi::c_void;

use aya_ebpf::{
    bindings::seq_file,
    helpers::generated::{bpf_seq_printf, bpf_seq_write},
};

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

    /// The number of the iteration: no other, of whatever iterator, has or had the same since the kernel booted.
    #[inline(always)]
    pub fn session(self) -> u64 {
        // SAFETY: the first word of every iterator's context, which the verifier knows by its type.
        unsafe {
            let meta = self.0.cast::<*const Meta>().read_volatile();
            (&raw const (*meta).session).read_volatile()
        }
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
        // SAFETY: the record is as long as that.
        let result = unsafe {
            bpf_seq_write(
                self.seq(),
                core::ptr::from_ref(record).cast(),
                size_of::<T>() as u32,
            )
        };
        result == 0
    }

    /// Appends the name of the kernel's function that an address is in, and a line's end. Addresses without a name are
    /// written as numbers.
    #[inline(always)]
    pub fn write_name(self, address: u64) -> bool {
        const FORMAT: [u8; 5] = *b"%ps\n\0";
        let format = FORMAT;
        // SAFETY: format and data are as long as that.
        let result = unsafe {
            bpf_seq_printf(
                self.seq(),
                format.as_ptr().cast(),
                size_of_val(&format) as u32,
                (&raw const address).cast(),
                size_of::<u64>() as u32,
            )
        };
        result == 0
    }

    #[inline(always)]
    fn seq(self) -> *mut seq_file {
        // SAFETY: the first word of every iterator's context, which the verifier knows by its type.
        unsafe {
            let meta = self.0.cast::<*const Meta>().read_volatile();
            (&raw const (*meta).seq).read_volatile()
        }
    }
}
