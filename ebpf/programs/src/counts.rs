//! For programs at tracepoints that count and tell, on behalf of some processes among all of the node's: see the mechanism
//! `counts` of the agent, which loads them.
//!
//! A program declares its maps with [`crate::counts!`], and is then a few lines: [`Counts::observe`] finds the targets that a
//! task belongs to, and calls it with each.

mod membership;

use core::ffi::c_void;

use aya_ebpf::{
    bindings::BPF_NOEXIST,
    helpers::generated::{bpf_map_update_elem, bpf_ringbuf_output},
    maps::{Array, HashMap, PerCpuArray, RingBuf},
};
use ckb_probe_common::{
    bucket,
    counts::{
        CountEvent, CountKey, KEY_BYTES, KnownTarget, MAX_FOLDED, MAX_ROWS, Misses, OTHER_ROW,
        SUMS, Sums, TargetEntry, TargetKey, TargetKeys, TargetTally, distribution_bucket, space,
    },
};
use membership::Found;
pub use membership::field;

use crate::{
    counters::{add, next},
    fields::Fields,
    helpers::now,
    identity::Identity,
    ring_shares::RingShares,
};

/// What a row begins with: no room on the stack is spent on it.
static NOTHING: Sums = [0; SUMS];

/// The maps of a program that counts and tells.
#[derive(Clone, Copy)]
pub struct Counts {
    /// The spaces that any target is in.
    pub spaces: &'static Array<u32>,
    /// Who is measured.
    pub targets: &'static HashMap<TargetKey, KnownTarget>,
    /// What that takes, by the target's slot.
    pub tallies: &'static PerCpuArray<TargetTally>,
    /// What everybody else takes.
    pub misses: &'static PerCpuArray<Misses>,
    /// What was counted.
    pub counts: &'static HashMap<CountKey, Sums>,
    /// The names that count in the row of the others.
    pub folded: &'static HashMap<CountKey, u8>,
    /// How many keys of it each target has, by its slot.
    pub keys: &'static Array<TargetKeys>,
    /// What is told.
    pub events: &'static RingBuf,
    /// How that is shared.
    pub shares: RingShares,
    /// Where the kernel has what it takes to tell targets apart.
    pub fields: &'static Fields<{ field::COUNT }>,
    /// Where it has when processes began.
    pub identity: &'static Identity,
}

/// Declares the maps of a program that counts and tells, and a constant of this name that stands for them.
#[macro_export]
macro_rules! counts {
    ($name:ident) => {
        #[::aya_ebpf::macros::map]
        static SPACES: ::aya_ebpf::maps::Array<u32> =
            ::aya_ebpf::maps::Array::with_max_entries(1, 0);
        #[::aya_ebpf::macros::map]
        static TARGETS: ::aya_ebpf::maps::HashMap<
            ::ckb_probe_common::counts::TargetKey,
            ::ckb_probe_common::counts::KnownTarget,
        > = ::aya_ebpf::maps::HashMap::with_max_entries(
            2 * ::ckb_probe_common::counts::MAX_TARGETS,
            0,
        );
        #[::aya_ebpf::macros::map]
        static TALLIES: ::aya_ebpf::maps::PerCpuArray<::ckb_probe_common::counts::TargetTally> =
            ::aya_ebpf::maps::PerCpuArray::with_max_entries(
                ::ckb_probe_common::counts::MAX_TARGETS,
                0,
            );
        #[::aya_ebpf::macros::map]
        static MISSES: ::aya_ebpf::maps::PerCpuArray<::ckb_probe_common::counts::Misses> =
            ::aya_ebpf::maps::PerCpuArray::with_max_entries(1, 0);
        // Memory is taken as rows come by.
        #[::aya_ebpf::macros::map]
        static COUNTS: ::aya_ebpf::maps::HashMap<
            ::ckb_probe_common::counts::CountKey,
            ::ckb_probe_common::counts::Sums,
        > = ::aya_ebpf::maps::HashMap::with_max_entries(
            ::ckb_probe_common::counts::MAX_KEYS,
            ::aya_ebpf::bindings::BPF_F_NO_PREALLOC,
        );
        #[::aya_ebpf::macros::map]
        static FOLDED: ::aya_ebpf::maps::HashMap<::ckb_probe_common::counts::CountKey, u8> =
            ::aya_ebpf::maps::HashMap::with_max_entries(
                ::ckb_probe_common::counts::MAX_FOLDED_OF_ALL,
                ::aya_ebpf::bindings::BPF_F_NO_PREALLOC,
            );
        #[::aya_ebpf::macros::map]
        static KEYS: ::aya_ebpf::maps::Array<::ckb_probe_common::counts::TargetKeys> =
            ::aya_ebpf::maps::Array::with_max_entries(::ckb_probe_common::counts::MAX_TARGETS, 0);
        #[::aya_ebpf::macros::map]
        static EVENTS: ::aya_ebpf::maps::RingBuf =
            ::aya_ebpf::maps::RingBuf::with_byte_size(4096, 0);
        $crate::ring_shares!(SHARES, EVENTS, ::ckb_probe_common::counts::MAX_TARGETS);
        #[unsafe(no_mangle)]
        static TARGET_FIELDS: $crate::fields::Fields<{ $crate::counts::field::COUNT }> =
            $crate::fields::Fields::unset();
        #[unsafe(no_mangle)]
        static IDENTITY: $crate::identity::Identity = $crate::identity::Identity::unset();

        const $name: $crate::counts::Counts = $crate::counts::Counts {
            spaces: &SPACES,
            targets: &TARGETS,
            tallies: &TALLIES,
            misses: &MISSES,
            counts: &COUNTS,
            folded: &FOLDED,
            keys: &KEYS,
            events: &EVENTS,
            shares: SHARES,
            fields: &TARGET_FIELDS,
            identity: &IDENTITY,
        };
    };
}

/// A target that something is counted for.
#[derive(Clone, Copy)]
pub struct Target(TargetEntry);

impl Target {
    /// Whether this is wanted of it: a bit that the kind gave a meaning.
    #[inline(always)]
    pub fn wants(self, bit: u32) -> bool {
        self.0.wants & bit != 0
    }

    /// Its number; never another's.
    #[inline(always)]
    pub fn id(self) -> u32 {
        self.0.id
    }
}

/// A row of a target.
#[derive(Clone, Copy)]
pub struct RowSums {
    sums: *mut Sums,
    /// Whether it is of that name, and not [`OTHER_ROW`].
    named: bool,
}

impl RowSums {
    /// Adds to one of its sums.
    #[inline(always)]
    pub fn add(self, sum: usize, by: u64) {
        if sum < SUMS {
            // SAFETY: within a map's value.
            unsafe { add(self.sums.cast::<u64>().add(sum), by) };
        }
    }
}

/// Something to tell, with what follows it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Record<T> {
    /// What all events have.
    pub event: CountEvent,
    /// What this one has.
    pub payload: T,
}

impl Counts {
    /// Calls `tell` with each target that a task belongs to, and charges the time that all of it takes.
    ///
    /// # Safety
    /// The task is one of the type that the verifier knows.
    #[inline(always)]
    pub unsafe fn observe(&self, task: *const c_void, mut tell: impl FnMut(Target)) {
        let began = now();
        let mut found = Found::default();
        // SAFETY: by the caller's word.
        unsafe { self.find(task, &mut found) };
        if found.count == 0 {
            self.miss(began);
            return;
        }
        let mut began = began;
        for target in &found.targets {
            let target = *target;
            if target.id == 0 {
                break;
            }
            tell(Target(target));
            let ended = now();
            if let Some(tally) = self.tallies.get_ptr_mut(target.slot) {
                // SAFETY: a map's value.
                unsafe {
                    add(&raw mut (*tally).runs, 1);
                    add(&raw mut (*tally).time_ns, ended.wrapping_sub(began));
                }
            }
            began = ended;
        }
    }

    /// Charges a run that was nobody's, and began then.
    #[inline(always)]
    pub fn miss(&self, began: u64) {
        if let Some(misses) = self.misses.get_ptr_mut(0) {
            // SAFETY: a map's value.
            unsafe {
                add(&raw mut (*misses).runs, 1);
                add(&raw mut (*misses).time_ns, now().wrapping_sub(began));
            }
        }
    }

    /// The row of this name. What finds no row of its own counts in [`OTHER_ROW`]; what finds none at all is lost, and counted
    /// as lost.
    #[inline(always)]
    pub fn row(&self, target: Target, key: &[u8; KEY_BYTES]) -> Option<RowSums> {
        let mut name = CountKey {
            target: target.0.id,
            bucket: 0,
            key: *key,
        };
        if let Some(sums) = self.numbers(target, &name) {
            return Some(RowSums { sums, named: true });
        }
        self.fold(target, &name);
        name.key = OTHER_ROW;
        let Some(sums) = self.counts.get_ptr_mut(&name) else {
            self.lose_count(target);
            return None;
        };
        Some(RowSums { sums, named: false })
    }

    /// Adds a value to a distribution of the row of this name. What finds no room there is missing in it: as many values as a
    /// sum says that there were are not in any bucket. To be added before the sums: who reads those first then misses none.
    #[inline(always)]
    pub fn measure(
        &self,
        target: Target,
        row: RowSums,
        key: &[u8; KEY_BYTES],
        distribution: u32,
        value: u64,
    ) {
        if !row.named {
            return;
        }
        let key = CountKey {
            target: target.0.id,
            bucket: distribution_bucket(distribution, bucket(value)),
            key: *key,
        };
        if let Some(sums) = self.numbers(target, &key) {
            RowSums { sums, named: true }.add(0, 1);
        }
    }

    /// Tells of something: `length` bytes of the payload are handed over with it.
    ///
    /// One fourth of the ring is left to the processes that are asked about: their end is told when nothing else is any more.
    #[inline(always)]
    pub fn tell<T>(&self, target: Target, record: &mut Record<T>, length: usize) {
        record.event.target = target.0.id;
        record.event.length = length as u16;
        record.event.payer = target.0.payer as u16;
        let size = size_of::<CountEvent>() + length;
        let told = size <= size_of::<Record<T>>() && self.output(target, record, size);
        if !told && let Some(tally) = self.tallies.get_ptr_mut(target.0.slot) {
            // SAFETY: a map's value.
            unsafe { add(&raw mut (*tally).events_lost, 1) };
        }
    }

    /// Puts so many bytes of a record into the ring, where there is room for this target's.
    #[inline(always)]
    fn output<T>(&self, target: Target, record: &mut Record<T>, size: usize) -> bool {
        let payer = target.0.payer;
        let fourths = 3 + u64::from(self.is_asked_about(record.event.process));
        if !self.shares.take_but(payer, size as u64, fourths) {
            return false;
        }
        // SAFETY: the record has so many bytes.
        let put = unsafe {
            bpf_ringbuf_output(
                core::ptr::from_ref(self.events).cast_mut().cast(),
                core::ptr::from_mut(record).cast(),
                size as u64,
                0,
            )
        };
        if put != 0 {
            self.shares.give_back(payer, size as u64);
        }
        put == 0
    }

    /// Whether somebody asks about this very process.
    #[inline(always)]
    pub fn is_asked_about(&self, process: u32) -> bool {
        let asked = TargetKey {
            space: space::ASKED,
            number: process,
        };
        self.targets.get_ptr(&asked).is_some()
    }

    /// Counts a name that has no row of its own, once.
    #[inline(always)]
    fn fold(&self, target: Target, name: &CountKey) {
        if self.folded.get_ptr(name).is_some() {
            return;
        }
        if let Some(keys) = self.keys.get_ptr_mut(target.0.slot)
            // SAFETY: a map's value.
            && unsafe { (&raw const (*keys).folded).read_volatile() } < MAX_FOLDED
            && self.folded.insert(name, &1, u64::from(BPF_NOEXIST)).is_ok()
        {
            // SAFETY: a map's value.
            unsafe { next(&raw mut (*keys).folded) };
        }
    }

    #[inline(always)]
    fn lose_count(&self, target: Target) {
        if let Some(tally) = self.tallies.get_ptr_mut(target.0.slot) {
            // SAFETY: a map's value.
            unsafe { add(&raw mut (*tally).counts_lost, 1) };
        }
    }

    /// The numbers of a row or a bucket; made where there is room for one more.
    #[inline(always)]
    fn numbers(&self, target: Target, key: &CountKey) -> Option<*mut Sums> {
        if let Some(sums) = self.counts.get_ptr_mut(key) {
            return Some(sums);
        }
        let keys = self.keys.get_ptr_mut(target.0.slot)?;
        // SAFETY: a map's value.
        let rows = unsafe { (&raw const (*keys).rows).read_volatile() };
        let is_full = match key.bucket {
            0 => rows >= MAX_ROWS,
            _ => {
                // SAFETY: the same.
                let all = unsafe { (&raw const (*keys).all).read_volatile() };
                all.wrapping_sub(rows) >= target.0.most_buckets
            }
        };
        if is_full {
            return None;
        }
        // Another CPU may be quicker: then there is one.
        // SAFETY: the map's definition stands for the map; key and value are as long as its are.
        let made = unsafe {
            bpf_map_update_elem(
                core::ptr::from_ref(self.counts).cast_mut().cast(),
                core::ptr::from_ref(key).cast(),
                (&raw const NOTHING).cast(),
                u64::from(BPF_NOEXIST),
            )
        };
        // SAFETY: a map's value.
        unsafe {
            if made == 0 && key.bucket == 0 {
                next(&raw mut (*keys).rows);
            }
            // Before anything is counted there: see who reads it.
            next(&raw mut (*keys).all);
        }
        self.counts.get_ptr_mut(key)
    }
}

/// Inserts where nothing is; whether nothing was. Where there is no room, nobody can tell: better twice than not at all.
#[inline(always)]
pub fn is_first<K>(map: &aya_ebpf::maps::LruHashMap<K, u8>, key: &K) -> bool {
    const EEXIST: i32 = 17;
    map.insert(key, &1, u64::from(BPF_NOEXIST)) != Err(-EEXIST)
}
