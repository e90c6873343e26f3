//! How durations are kept: by buckets, and the longest of an interval.

#[cfg(feature = "user")]
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Buckets of a histogram: 16 to each power of two, up to 2^42 ns.
pub const BUCKETS: usize = 624;

/// The bucket that a duration of `nanos` falls into; the last one takes whatever is longer.
///
/// A handful of compares and shifts: `leading_zeros` compiles to three times as many instructions on BPF,
/// which has none of its own.
#[inline(always)]
pub const fn bucket(nanos: u64) -> u32 {
    if nanos < 16 {
        return nanos as u32;
    }
    let mut shift = 0;
    let mut value = nanos;
    if value >= 1 << 36 {
        value >>= 32;
        shift += 32;
    }
    if value >= 1 << 20 {
        value >>= 16;
        shift += 16;
    }
    if value >= 1 << 12 {
        value >>= 8;
        shift += 8;
    }
    if value >= 1 << 8 {
        value >>= 4;
        shift += 4;
    }
    if value >= 1 << 6 {
        value >>= 2;
        shift += 2;
    }
    if value >= 1 << 5 {
        value >>= 1;
        shift += 1;
    }
    // Now 16 <= value < 32: bucket 16 * (shift + 1) + (value - 16).
    let index = (shift << 4) + value as u32;
    if index < BUCKETS as u32 {
        index
    } else {
        BUCKETS as u32 - 1
    }
}

/// The calls of one slot by duration, on each CPU.
#[repr(C)]
#[cfg_attr(feature = "user", derive(FromBytes, Immutable, IntoBytes))]
#[derive(Clone, Copy)]
pub struct Histogram {
    /// See [`bucket`].
    pub buckets: [u64; BUCKETS],
}

/// How [`Totals::maxima`] holds a duration: the epoch above, the duration in the lower 48 bits.
///
/// The reader advances the epoch and then reads what the one before left, while the programs write to the other
/// half. So every report interval has a maximum of its own, none is lost in between, and nothing needs clearing.
#[inline(always)]
pub const fn maximum(epoch: u32, duration_ns: u64) -> u64 {
    let duration = if duration_ns < TIME_MASK {
        duration_ns
    } else {
        TIME_MASK
    };
    ((epoch as u64) << TIME_BITS) | duration
}

/// The duration in a maximum, if it is of this epoch.
#[inline(always)]
pub const fn maximum_of(epoch: u32, maximum: u64) -> Option<u64> {
    if maximum >> TIME_BITS == (epoch as u64) & 0xffff {
        Some(maximum & TIME_MASK)
    } else {
        None
    }
}

/// Nanoseconds are kept in 48 bits where they share a word: three days.
pub const TIME_BITS: u32 = 48;

/// The bits of a time that are kept.
pub const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

layout! {
    Histogram: BUCKETS * 8,
}
