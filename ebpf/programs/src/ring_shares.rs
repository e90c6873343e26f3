//! How those who share a ring buffer share it: whoever has much of it leaves as much to others, as the agent has it for all that there
//! is once for a node (`share` of its core). Who fills its part loses what it tells itself, and nobody else does.

use aya_ebpf::{
    bindings::{BPF_RB_AVAIL_DATA, BPF_RB_RING_SIZE},
    maps::{Array, RingBuf},
};

use crate::counters::add;

/// A ring, and how much of it each payer has: a namespace, mostly. User space numbers them.
#[derive(Clone, Copy)]
pub struct RingShares {
    /// The ring.
    pub ring: &'static RingBuf,
    /// By payer: bytes that ever were put into it.
    pub told: &'static Array<u64>,
    /// By payer: how many of these user space has taken out.
    pub taken: &'static Array<u64>,
}

/// What the kernel puts in front of a record.
const HEAD: u64 = 8;

impl RingShares {
    /// Whether one may put a record of so many bytes there. What may is counted as put there: who then finds no room for it gives it
    /// [back](Self::give_back).
    ///
    /// Several CPUs that ask at once may get a record each too much.
    #[inline(always)]
    pub fn take(&self, payer: u32, size: u64) -> bool {
        self.take_but(payer, size, 4)
    }

    /// The same, where this many fourths of the ring are all that there is.
    #[inline(always)]
    pub fn take_but(&self, payer: u32, size: u64, fourths: u64) -> bool {
        let (Some(told), Some(taken)) = (self.told.get_ptr_mut(payer), self.taken.get_ptr(payer))
        else {
            return false;
        };
        // SAFETY: maps' values. That they are not read at one time makes no more of it than was there.
        let held = unsafe { told.read_volatile().wrapping_sub(taken.read_volatile()) };
        let all = self.ring.query(u64::from(BPF_RB_RING_SIZE)) / 4 * fourths;
        let filled = self.ring.query(u64::from(BPF_RB_AVAIL_DATA));
        let bytes = on_ring(size);
        if filled.saturating_add(held).saturating_add(bytes) > all {
            return false;
        }
        // SAFETY: a map's value.
        unsafe { add(told, bytes) };
        true
    }

    /// There was no room for it after all.
    #[inline(always)]
    pub fn give_back(&self, payer: u32, size: u64) {
        if let Some(told) = self.told.get_ptr_mut(payer) {
            // SAFETY: a map's value.
            unsafe { add(told, on_ring(size).wrapping_neg()) };
        }
    }
}

/// What a record of so many bytes takes of the ring.
#[inline(always)]
fn on_ring(size: u64) -> u64 {
    ((size + 7) & !7) + HEAD
}

/// Declares how a ring is shared among so many, and a constant of this name that stands for it.
#[macro_export]
macro_rules! ring_shares {
    ($name:ident, $ring:ident, $payers:expr) => {
        #[::aya_ebpf::macros::map]
        static TOLD: ::aya_ebpf::maps::Array<u64> =
            ::aya_ebpf::maps::Array::with_max_entries($payers, 0);
        #[::aya_ebpf::macros::map]
        static TAKEN: ::aya_ebpf::maps::Array<u64> =
            ::aya_ebpf::maps::Array::with_max_entries($payers, 0);

        const $name: $crate::ring_shares::RingShares = $crate::ring_shares::RingShares {
            ring: &$ring,
            told: &TOLD,
            taken: &TAKEN,
        };
    };
}
