//! Constants that the loader sets before it loads a program.

/// Numbers, by an index; a `#[no_mangle]` static.
#[repr(transparent)]
pub struct Constants<const COUNT: usize>([u8; COUNT]);

impl<const COUNT: usize> Constants<COUNT> {
    /// Until the loader sets them. Not zeros: the compiler would put other constants that are zeros in this very place.
    pub const fn unset() -> Self {
        Self([u8::MAX; COUNT])
    }

    /// The number at an index; 0 beyond.
    #[inline(always)]
    pub fn at(&self, index: u32) -> u8 {
        if index >= COUNT as u32 {
            return 0;
        }
        let numbers = self.0.as_ptr();
        // SAFETY: within the array, by the comparison. Volatile: the compiler may not believe what it saw in the source.
        unsafe { numbers.add(index as usize).read_volatile() }
    }
}
