//! Which targets a task belongs to.

use core::ffi::c_void;

use ckb_probe_common::counts::{
    KnownTarget, MAX_ANCESTORS, MAX_TARGETS_OF_TASK, TargetEntry, TargetKey, space,
};

use super::Counts;

/// `struct upid`: a number, and a pointer.
const SIZE_OF_UPID: usize = 16;

/// The fields of [`Counts::fields`].
pub mod field {
    crate::places! {
        pub,
        /// Of `task_struct`: the number of its process.
        PROCESS,
        /// The task that its process has for a parent.
        PARENT,
        /// Its namespaces; null once it has given them up.
        NAMESPACES,
        /// Of `nsproxy`: its network.
        NETWORK,
        /// Of `task_struct`: its number in each pid namespace that knows it.
        NUMBERS,
        /// Of `net`: the namespace's number.
        NETWORK_NUMBER,
        /// Of `pid_namespace`: the same.
        PROCESS_IDS_NUMBER,
        /// Of `pid`: how many namespaces know it, less one.
        LEVEL,
        /// The first of them; the last is its own.
        FIRST_LEVEL,
        /// Of `upid`: the namespace.
        LEVEL_NAMESPACE,
    }

    /// How many there are.
    pub const COUNT: usize = LEVEL_NAMESPACE + 1;
}

/// Targets that a task belongs to; those after the last have no id.
#[derive(Default)]
pub(super) struct Found {
    pub(super) targets: [TargetEntry; MAX_TARGETS_OF_TASK],
    pub(super) count: u32,
}

impl Counts {
    /// The targets that a task belongs to.
    #[inline(always)]
    pub(super) unsafe fn find(&self, task: *const c_void, found: &mut Found) {
        let spaces = self.spaces.get(0).copied().unwrap_or(0);
        let fields = self.fields;
        // SAFETY: the task has a type by the caller's word, and what hangs from it then has, too.
        unsafe {
            if spaces & space::NETWORK != 0 {
                let namespaces: *const c_void = fields.trusted::<{ field::NAMESPACES }, _>(task);
                if !namespaces.is_null() {
                    let network = fields.trusted::<{ field::NETWORK }, _>(namespaces);
                    let number = fields.trusted::<{ field::NETWORK_NUMBER }, u32>(network);
                    let is_it = |KnownTarget { entry, .. }: &KnownTarget| {
                        entry.outside == 0 || entry.outside != self.process_ids(task)
                    };
                    self.look_up(space::NETWORK, number, is_it, found);
                }
            }
            if spaces & space::PROCESS_IDS != 0 {
                let number = self.process_ids(task);
                if number != 0 {
                    self.look_up(space::PROCESS_IDS, number, |_| true, found);
                }
            }
            if spaces & (space::PROCESS | space::DESCENT) != 0 {
                let process = fields.trusted::<{ field::PROCESS }, u32>(task);
                self.look_up_process(space::PROCESS, process, task, found);
                if spaces & space::DESCENT != 0 {
                    self.look_up_process(space::DESCENT, process, task, found);
                    let mut ancestor = task;
                    for _ in 0..MAX_ANCESTORS {
                        ancestor = fields.trusted::<{ field::PARENT }, _>(ancestor);
                        let process = fields.trusted::<{ field::PROCESS }, u32>(ancestor);
                        if process <= 1 {
                            break;
                        }
                        self.look_up_process(space::DESCENT, process, ancestor, found);
                    }
                }
            }
        }
    }

    /// The number of the pid namespace that a task is in itself; 0 where that cannot be read.
    #[inline(always)]
    unsafe fn process_ids(&self, task: *const c_void) -> u32 {
        let fields = self.fields;
        // SAFETY: as above.
        unsafe {
            let numbers: *const c_void = fields.trusted::<{ field::NUMBERS }, _>(task);
            // Not the one of `nsproxy`: that is its children's.
            let level = fields.trusted::<{ field::LEVEL }, u32>(numbers) as usize;
            let levels = fields.place::<{ field::FIRST_LEVEL }>(numbers);
            let own = levels.wrapping_byte_add(level * SIZE_OF_UPID);
            let ids = fields.pointer::<{ field::LEVEL_NAMESPACE }>(own);
            let number = ids.and_then(|ids| fields.number::<{ field::PROCESS_IDS_NUMBER }>(ids));
            number.unwrap_or_default() as u32
        }
    }

    /// By the number of a process that this is a task of.
    #[inline(always)]
    unsafe fn look_up_process(
        &self,
        space: u32,
        number: u32,
        task: *const c_void,
        found: &mut Found,
    ) {
        // SAFETY: by the caller's word.
        let is_it = |known: &KnownTarget| unsafe { self.identity.is_of(task, known.since_ns) };
        self.look_up(space, number, is_it, found);
    }

    #[inline(always)]
    fn look_up(
        &self,
        space: u32,
        number: u32,
        is_it: impl FnOnce(&KnownTarget) -> bool,
        found: &mut Found,
    ) {
        let key = TargetKey { space, number };
        // SAFETY: an entry is written as one when a target is let in, and its slot is not another's until long after.
        if let Some(known) = unsafe { self.targets.get(&key) }
            && is_it(known)
        {
            // SAFETY: a field. Read here and now: of a number that was read before the verifier of Linux 6.1 forgets that it was compared.
            let count = unsafe { (&raw const found.count).read_volatile() };
            if let Some(place) = found.targets.get_mut(count as usize) {
                *place = known.entry;
                found.count = count + 1;
            }
        }
    }
}
