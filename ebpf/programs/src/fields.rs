//! Reading the kernel's structures, whose layouts differ from kernel to kernel.
//!
//! A program declares the fields that it needs as a static of type [`Fields`], and the loader fills in where they are
//! before it loads the program. What is in read-only data the verifier knows, so an offset costs no more than a
//! constant.

use core::{ffi::c_void, mem::MaybeUninit};

use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use ckb_probe_common::Field;

/// The fields that a program reads, by the order in which its loader names them: see [`crate::fields!`].
#[repr(transparent)]
pub struct Fields<const COUNT: usize>([Field; COUNT]);

impl<const COUNT: usize> Fields<COUNT> {
    /// Until the loader fills them in. Not zeros: the compiler would put other constants that are zeros in this very
    /// place.
    pub const fn unset() -> Self {
        const UNSET: Field = Field {
            offset: u32::MAX,
            size: 0,
        };
        Self([UNSET; COUNT])
    }

    /// Whether this kernel has the field, in so many bytes: where it has not, the verifier leaves out what depends on it.
    #[inline(always)]
    pub fn has<const FIELD: usize>(&self, bytes: usize) -> bool {
        self.field::<FIELD>().size as usize == bytes
    }

    /// Where the field begins, in a structure.
    #[inline(always)]
    pub fn place<const FIELD: usize>(&self, structure: *const c_void) -> *const c_void {
        structure.wrapping_byte_add(self.field::<FIELD>().offset as usize)
    }

    /// The number that the field holds, whatever its size on this kernel; `None` where it cannot be read.
    #[inline(always)]
    pub fn number<const FIELD: usize>(&self, structure: *const c_void) -> Option<u64> {
        let mut number = 0u64;
        // Little-endian: a smaller one fills the lower bytes.
        let size = self.field::<FIELD>().size.min(size_of::<u64>() as u32);
        // SAFETY: there is room for so many bytes; the helper copes with any address.
        let result = unsafe {
            bpf_probe_read_kernel(
                (&raw mut number).cast(),
                size,
                self.place::<FIELD>(structure),
            )
        };
        (result == 0).then_some(number)
    }

    /// A field of four bytes, of a structure that the verifier knows by its type: it checks the place instead of the
    /// helper, which takes a tenth of the time.
    ///
    /// # Safety
    /// The pointer was handed out as one of the structure's type, and the field has four bytes.
    #[inline(always)]
    pub unsafe fn trusted_u32<const FIELD: usize>(&self, structure: *const c_void) -> u32 {
        // SAFETY: by the caller's word. Volatile: one load of four bytes, at the field's place.
        unsafe { self.place::<FIELD>(structure).cast::<u32>().read_volatile() }
    }

    /// The same, of eight bytes: a pointer that is read so is one of its type again.
    ///
    /// # Safety
    /// The pointer was handed out as one of the structure's type, and the field has eight bytes.
    #[inline(always)]
    pub unsafe fn trusted_u64<const FIELD: usize>(&self, structure: *const c_void) -> u64 {
        // SAFETY: as above.
        unsafe { self.place::<FIELD>(structure).cast::<u64>().read_volatile() }
    }

    /// The field of a structure that the verifier knows by its type: it checks the place instead of the helper, which takes a
    /// tenth of the time. What cannot be read is zero.
    ///
    /// # Safety
    /// The pointer was handed out as one of the structure's type, or read so from one that was; and the field is a `T`.
    #[inline(always)]
    pub unsafe fn trusted<const FIELD: usize, T: Copy>(&self, structure: *const c_void) -> T {
        // SAFETY: by the caller's word. Volatile: one load, of the whole field.
        unsafe { self.place::<FIELD>(structure).cast::<T>().read_volatile() }
    }

    /// The address that the field holds; `None` where it cannot be read or is null.
    #[inline(always)]
    pub fn pointer<const FIELD: usize>(&self, structure: *const c_void) -> Option<*const c_void> {
        match self.number::<FIELD>(structure) {
            None | Some(0) => None,
            Some(address) => Some(address as *const c_void),
        }
    }

    /// The field as a value of the program's own: an array of bytes, a structure that users know too.
    ///
    /// # Safety
    /// Any bytes are a valid `T`.
    #[inline(always)]
    pub unsafe fn value<const FIELD: usize, T>(&self, structure: *const c_void) -> Option<T> {
        // SAFETY: by the caller's word.
        unsafe { read(self.place::<FIELD>(structure).cast()) }
    }

    #[inline(always)]
    fn field<const FIELD: usize>(&self) -> Field {
        const { assert!(FIELD < COUNT) };
        let field = &raw const self.0[FIELD];
        // SAFETY: a field of this very value. Volatile: the compiler may not believe what it saw in the source.
        unsafe {
            Field {
                offset: (&raw const (*field).offset).read_volatile(),
                size: (&raw const (*field).size).read_volatile(),
            }
        }
    }
}

/// Declares a static of this name with the fields that a program reads, in the order in which its loader names them, and for each a
/// constant that stands for it.
///
/// ```ignore
/// fields!(FIELDS: PROCESS, NAME);
/// let process = FIELDS.number::<PROCESS>(task);
/// ```
#[macro_export]
macro_rules! fields {
    ($fields:ident: $($(#[$about:meta])* $field:ident),+ $(,)?) => {
        #[unsafe(no_mangle)]
        pub(crate) static $fields: $crate::fields::Fields<{ [$(stringify!($field)),+].len() }> =
            $crate::fields::Fields::unset();
        $crate::places!(pub(crate), $($(#[$about])* $field),+);
    };
}

/// The constants alone: the place of each name among all of them.
#[macro_export]
macro_rules! places {
    ($visible:vis, $($(#[$about:meta])* $name:ident),+ $(,)?) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Place {
            $($name),+
        }
        $(
            $(#[$about])*
            $visible const $name: usize = Place::$name as usize;
        )+
    };
}

/// Reads the kernel's memory.
///
/// # Safety
/// Any bytes are a valid `T`.
#[inline(always)]
pub unsafe fn read<T>(address: *const T) -> Option<T> {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the value has the room; the helper copes with any address, and fills the value or says that it did not.
    unsafe {
        let result = bpf_probe_read_kernel(
            value.as_mut_ptr().cast(),
            size_of::<T>() as u32,
            address.cast(),
        );
        (result == 0).then(|| value.assume_init())
    }
}
