//! What is remembered with a thread, or with a socket, and goes with it: nothing to size, nothing to lose, nothing to clear away.

use core::{cell::UnsafeCell, ffi::c_void, marker::PhantomData, ptr::null_mut};

use aya_ebpf::{
    bindings::{bpf_map_def, task_struct},
    helpers::generated::{bpf_get_current_task_btf, bpf_sk_storage_get, bpf_task_storage_get},
};

const BPF_MAP_TYPE_SK_STORAGE: u32 = 24;
const BPF_MAP_TYPE_TASK_STORAGE: u32 = 29;
const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_F_CLONE: u32 = 1 << 9;
const BPF_LOCAL_STORAGE_GET_F_CREATE: u64 = 1;

/// A map from threads to values, which begin as zeros. To be a static under `#[map]`; it needs kernel 5.11.
pub type TaskStorage<T> = Storage<Thread, T>;

/// A map from sockets to values, which begin as zeros; a socket that is accepted begins with those of the one that listens.
/// To be a static under `#[map]`; tracing programs have it since kernel 5.11.
pub type SocketStorage<T> = Storage<Socket, T>;

/// A map from what the kernel has, by its address, to values.
#[repr(transparent)]
pub struct Storage<O, T> {
    definition: UnsafeCell<bpf_map_def>,
    value: PhantomData<(O, T)>,
}

// SAFETY: the kernel sees to it.
unsafe impl<O, T> Sync for Storage<O, T> {}

/// What values are remembered with.
pub trait Owner: Copy {
    /// The type of such a map.
    const TYPE: u32;
    /// Its flags.
    const FLAGS: u32;

    /// What it has, or null.
    ///
    /// # Safety
    /// The map is one of this type.
    unsafe fn look_up(self, map: *mut c_void, flags: u64) -> *mut c_void;
}

/// A thread, as the kernel hands it out.
#[derive(Clone, Copy)]
pub struct Thread(*mut task_struct);

impl Thread {
    /// The one that runs.
    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no preconditions.
        Self(unsafe { bpf_get_current_task_btf() })
    }

    /// One that an iterator goes by.
    pub const fn of(task: *mut c_void) -> Self {
        Self(task.cast())
    }

    /// Its `task_struct`, of a type that the verifier knows.
    pub const fn as_ptr(self) -> *const c_void {
        self.0.cast_const().cast()
    }
}

impl Owner for Thread {
    const TYPE: u32 = BPF_MAP_TYPE_TASK_STORAGE;
    const FLAGS: u32 = BPF_F_NO_PREALLOC;

    #[inline(always)]
    unsafe fn look_up(self, map: *mut c_void, flags: u64) -> *mut c_void {
        // SAFETY: by the caller's word, and the kernel handed the thread out.
        unsafe { bpf_task_storage_get(map, self.0, null_mut(), flags) }
    }
}

/// A socket, as the kernel hands it out.
#[derive(Clone, Copy)]
pub struct Socket(*const c_void);

impl Socket {
    /// One of this address.
    ///
    /// # Safety
    /// The kernel handed it out as a socket, and it is not null.
    pub const unsafe fn of(socket: *const c_void) -> Self {
        Self(socket)
    }
}

impl Owner for Socket {
    const TYPE: u32 = BPF_MAP_TYPE_SK_STORAGE;
    const FLAGS: u32 = BPF_F_NO_PREALLOC | BPF_F_CLONE;

    #[inline(always)]
    unsafe fn look_up(self, map: *mut c_void, flags: u64) -> *mut c_void {
        // SAFETY: by the caller's word, and by the word of who made this.
        unsafe { bpf_sk_storage_get(map, self.0.cast_mut(), null_mut(), flags) }
    }
}

impl<O: Owner, T> Storage<O, T> {
    /// The definition; values have whole words.
    pub const fn new() -> Self {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        Self {
            definition: UnsafeCell::new(bpf_map_def {
                type_: O::TYPE,
                key_size: size_of::<u32>() as u32,
                value_size: size_of::<T>() as u32,
                max_entries: 0,
                map_flags: O::FLAGS,
                id: 0,
                pinning: 0,
            }),
            value: PhantomData,
        }
    }

    /// What it has.
    #[inline(always)]
    pub fn get(&self, owner: O) -> Option<*mut T> {
        self.get_by(owner, 0)
    }

    /// What it has, zeros if it had nothing; `None` where the kernel has no memory for it, or it is going.
    #[inline(always)]
    pub fn get_or_create(&self, owner: O) -> Option<*mut T> {
        self.get_by(owner, BPF_LOCAL_STORAGE_GET_F_CREATE)
    }

    #[inline(always)]
    fn get_by(&self, owner: O, flags: u64) -> Option<*mut T> {
        // SAFETY: the map's definition stands for the map.
        let value = unsafe { owner.look_up(self.definition.get().cast(), flags) };
        (!value.is_null()).then_some(value.cast())
    }
}

impl<O: Owner, T> Default for Storage<O, T> {
    fn default() -> Self {
        Self::new()
    }
}
