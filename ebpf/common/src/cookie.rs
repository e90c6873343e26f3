//! What stands with each site of a probe: how its calls count.

use crate::{Group, MAX_CAUSE};

/// Where the size of a call's payload is found. All the C functions follow the System V calling convention;
/// arguments count from 0.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Not known.
    Unknown = 0,
    /// Argument 3.
    Argument3 = 1,
    /// Argument 4.
    Argument4 = 2,
    /// Arguments 3 and 5 added.
    Arguments3And5 = 3,
    /// Arguments 4 and 6 added.
    Arguments4And6 = 4,
    /// The returned pointer, unless null, points to `{data, size}`: `rocksdb_pinnableslice_t`.
    ReturnedSlice = 5,
    /// Argument 5 points to the size, which holds at return unless null is returned.
    PointedToBy5 = 6,
    /// The same of argument 4.
    PointedToBy4 = 7,
}

/// Which argument is the column family's handle, counting from 0.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FamilyArgument {
    /// None, or it does not matter.
    None = 0,
    /// Argument 1.
    Argument1 = 1,
    /// Argument 2.
    Argument2 = 2,
}

/// What one attachment tells its programs, as an attach cookie: the operation's slot (8 bits), payload (3), column
/// family (2), cause (3), group (2), whether its arguments are kept (1), whether it is only counted (1), which of the places it is at
/// which more is looked at (12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Packs a cookie. `cause` is 0 for none, or at most [`MAX_CAUSE`].
    pub const fn new(
        slot: u8,
        payload: Payload,
        family: FamilyArgument,
        cause: u8,
        group: Group,
    ) -> Self {
        Self(
            ((group as u64) << 16)
                | (((cause & MAX_CAUSE) as u64) << 13)
                | ((family as u64) << 11)
                | ((payload as u64) << 8)
                | slot as u64,
        )
    }

    /// The same, of a call whose arguments are kept for when it turns out slow (1 bit).
    #[must_use]
    pub const fn with_arguments(self) -> Self {
        Self(self.0 | 1 << 18)
    }

    /// Whether the call's arguments are kept.
    #[inline(always)]
    pub const fn keeps_arguments(self) -> bool {
        self.0 & 1 << 18 != 0
    }

    /// The same, of a call that is counted at its entry, whatever the program could see of it (1 bit).
    #[must_use]
    pub const fn counted_only(self) -> Self {
        Self(self.0 | 1 << 19)
    }

    /// Whether the call is counted at its entry and its return is not touched.
    #[inline(always)]
    pub const fn is_counted_only(self) -> bool {
        self.0 & 1 << 19 != 0
    }

    /// The same, of the place of this number at which more is looked at (12 bits).
    #[must_use]
    pub const fn at(self, place: u16) -> Self {
        Self(self.0 | (place as u64 & 0xfff) << 20)
    }

    /// The number of the place.
    #[inline(always)]
    pub const fn place(self) -> u32 {
        (self.0 >> 20) as u32 & 0xfff
    }

    /// The operation's slot.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        (self.0 & 0xff) as u32
    }

    /// The [`Payload`], as a number: the kernel side compares it, and an unknown one means `Unknown`.
    #[inline(always)]
    pub const fn payload(self) -> u8 {
        (self.0 >> 8) as u8 & 7
    }

    /// The [`FamilyArgument`], as a number.
    #[inline(always)]
    pub const fn family(self) -> u8 {
        (self.0 >> 11) as u8 & 3
    }

    /// The cause that the calls are, 0 for none.
    #[inline(always)]
    pub const fn cause(self) -> u32 {
        (self.0 >> 13) as u32 & 7
    }

    /// The number of its [`Group`].
    #[inline(always)]
    pub const fn group(self) -> u32 {
        (self.0 >> 16) as u32 & 3
    }

    /// Whether the attachment is in place for slices of time only.
    #[inline(always)]
    pub const fn is_sliced(self) -> bool {
        (self.0 >> 16) & 3 == Group::Sliced as u64
    }
}

/// What a session remembers of a call in the one word that the kernel keeps for it: when it began (47 bits of
/// nanoseconds: a call of up to 39 hours is measured), the slot it counts in (9), and what of the [`Cookie`] is wanted
/// at the return (8), which then need not ask for it again. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session(pub u64);

impl Session {
    const TIME_SHIFT: u32 = 17;

    /// What is remembered of a call that began then, by a site with this cookie.
    #[inline(always)]
    pub const fn new(began_ns: u64, slot: u32, cookie: Cookie) -> Self {
        let traits = (cookie.0 >> 8) & 7 | (cookie.0 >> 13 & 0x1f) << 3;
        let word = began_ns << Self::TIME_SHIFT | ((slot & 0x1ff) as u64) << 8 | traits;
        Self(if word == 0 {
            1 << Self::TIME_SHIFT
        } else {
            word
        })
    }

    /// How long the call has lasted by now.
    #[inline(always)]
    pub const fn elapsed_ns(self, now: u64) -> u64 {
        let began = self.0 >> Self::TIME_SHIFT;
        now.wrapping_sub(began) & (u64::MAX >> Self::TIME_SHIFT)
    }

    /// The slot that the call counts in.
    #[inline(always)]
    pub const fn slot(self) -> u32 {
        (self.0 >> 8) as u32 & 0x1ff
    }

    /// The cookie, but for its operation's slot and its column family.
    #[inline(always)]
    pub const fn traits(self) -> Cookie {
        Cookie((self.0 & 7) << 8 | (self.0 >> 3 & 0x1f) << 13)
    }
}
