//! What is remembered with a socket, and goes with it.

use core::{cell::UnsafeCell, ffi::c_void, marker::PhantomData, ptr::null_mut};

use aya_ebpf::{bindings::bpf_map_def, helpers::generated::bpf_sk_storage_get};

const BPF_MAP_TYPE_SK_STORAGE: u32 = 24;
const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_F_CLONE: u32 = 1 << 9;
const BPF_SK_STORAGE_GET_F_CREATE: u64 = 1;

/// A map from sockets to values, which begin as zeros; a socket that is accepted begins with those of the one that listens.
/// To be a static under `#[map]`; tracing programs have it since kernel 5.11.
#[repr(transparent)]
pub struct SocketStorage<T> {
    definition: UnsafeCell<bpf_map_def>,
    value: PhantomData<T>,
}

// SAFETY: the kernel sees to it.
unsafe impl<T> Sync for SocketStorage<T> {}

impl<T> SocketStorage<T> {
    /// The definition; values have whole words.
    pub const fn new() -> Self {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        Self {
            definition: UnsafeCell::new(bpf_map_def {
                type_: BPF_MAP_TYPE_SK_STORAGE,
                key_size: size_of::<u32>() as u32,
                value_size: size_of::<T>() as u32,
                max_entries: 0,
                map_flags: BPF_F_NO_PREALLOC | BPF_F_CLONE,
                id: 0,
                pinning: 0,
            }),
            value: PhantomData,
        }
    }

    /// What the socket has.
    ///
    /// # Safety
    /// The kernel handed the socket out as one, and it is not null.
    #[inline(always)]
    pub unsafe fn get(&self, socket: *const c_void) -> Option<*mut T> {
        // SAFETY: by the caller's word.
        unsafe { self.get_by(socket, 0) }
    }

    /// What the socket has, zeros if it had nothing; `None` where the kernel has no memory for it, or the socket is going.
    ///
    /// # Safety
    /// The same.
    #[inline(always)]
    pub unsafe fn get_or_create(&self, socket: *const c_void) -> Option<*mut T> {
        // SAFETY: by the caller's word.
        unsafe { self.get_by(socket, BPF_SK_STORAGE_GET_F_CREATE) }
    }

    #[inline(always)]
    unsafe fn get_by(&self, socket: *const c_void, flags: u64) -> Option<*mut T> {
        // SAFETY: the map's definition stands for the map; the socket is one by the caller's word.
        let value = unsafe {
            bpf_sk_storage_get(
                self.definition.get().cast(),
                socket.cast_mut(),
                null_mut(),
                flags,
            )
        };
        (!value.is_null()).then_some(value.cast())
    }
}

impl<T> Default for SocketStorage<T> {
    fn default() -> Self {
        Self::new()
    }
}
