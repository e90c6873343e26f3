//! Which process it is, of all that ever have its number. Whoever has it next is not the target, however late user space notices that
//! the target has ended.

use core::ffi::c_void;

use ckb_probe_common::is_since;

use crate::{fields::Fields, storage::Thread};

/// When processes began, for a program that declares it:
///
/// ```ignore
/// #[unsafe(no_mangle)]
/// static IDENTITY: Identity = Identity::unset();
/// ```
#[repr(transparent)]
pub struct Identity(Fields<2>);

/// `task_struct.group_leader`
const LEADER: usize = 0;
/// `task_struct.start_boottime`
const BEGAN: usize = 1;

impl Identity {
    /// Until the loader fills it in.
    pub const fn unset() -> Self {
        Self(Fields::unset())
    }

    /// Whether the process that runs is the one of its number that began then.
    #[inline(always)]
    pub fn runs(&self, since_ns: u64) -> bool {
        // SAFETY: the kernel hands out the thread that runs.
        unsafe { self.is_of(Thread::current().as_ptr(), since_ns) }
    }

    /// The same of another task's process.
    ///
    /// # Safety
    /// The task is one of the type that the verifier knows.
    #[inline(always)]
    pub unsafe fn is_of(&self, task: *const c_void, since_ns: u64) -> bool {
        // SAFETY: by the caller's word; the loader has seen that both have eight bytes.
        unsafe {
            let leader = self.0.trusted::<LEADER, *const c_void>(task);
            is_since(self.0.trusted::<BEGAN, u64>(leader), since_ns)
        }
    }
}
