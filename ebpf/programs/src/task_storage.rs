//! What is remembered with a thread, and goes with it: nothing to size, nothing to lose, nothing to clear away.

use core::{cell::UnsafeCell, marker::PhantomData, ptr::null_mut};

use aya_ebpf::{
    bindings::{bpf_map_def, task_struct},
    helpers::generated::{bpf_get_current_task_btf, bpf_task_storage_get},
};

const BPF_MAP_TYPE_TASK_STORAGE: u32 = 29;
const BPF_F_NO_PREALLOC: u32 = 1;
const BPF_LOCAL_STORAGE_GET_F_CREATE: u64 = 1;

/// A map from threads to values, which begin as zeros. To be a static under `#[map]`; it needs kernel 5.11.
#[repr(transparent)]
pub struct TaskStorage<T> {
    definition: UnsafeCell<bpf_map_def>,
    value: PhantomData<T>,
}

// SAFETY: the kernel sees to it.
unsafe impl<T> Sync for TaskStorage<T> {}

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
    pub const fn of(task: *mut core::ffi::c_void) -> Self {
        Self(task.cast())
    }

    /// Its `task_struct`, of a type that the verifier knows.
    pub const fn as_ptr(self) -> *const core::ffi::c_void {
        self.0.cast_const().cast()
    }
}

impl<T> TaskStorage<T> {
    /// The definition; values have whole words.
    pub const fn new() -> Self {
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        Self {
            definition: UnsafeCell::new(bpf_map_def {
                type_: BPF_MAP_TYPE_TASK_STORAGE,
                key_size: size_of::<u32>() as u32,
                value_size: size_of::<T>() as u32,
                max_entries: 0,
                map_flags: BPF_F_NO_PREALLOC,
                id: 0,
                pinning: 0,
            }),
            value: PhantomData,
        }
    }

    /// What the thread has.
    #[inline(always)]
    pub fn get(&self, thread: Thread) -> Option<*mut T> {
        self.get_by(thread, 0)
    }

    /// What the thread has, zeros if it had nothing; `None` where the kernel has no memory for it.
    #[inline(always)]
    pub fn get_or_create(&self, thread: Thread) -> Option<*mut T> {
        self.get_by(thread, BPF_LOCAL_STORAGE_GET_F_CREATE)
    }

    #[inline(always)]
    fn get_by(&self, thread: Thread, flags: u64) -> Option<*mut T> {
        // SAFETY: the map's definition stands for the map, and the thread is one that the kernel handed out.
        let value = unsafe {
            bpf_task_storage_get(self.definition.get().cast(), thread.0, null_mut(), flags)
        };
        (!value.is_null()).then_some(value.cast())
    }
}

impl<T> Default for TaskStorage<T> {
    fn default() -> Self {
        Self::new()
    }
}
