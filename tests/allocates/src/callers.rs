//! Functions that allocate, and functions that free what they allocated.

use std::alloc::{Layout, alloc, dealloc};

/// How many there are: `caller_a` to `caller_l`, and `freer_a` to `freer_l`.
pub const CALLERS: usize = 12;

/// What one of them did.
#[derive(Clone, Copy, Default)]
pub struct Told {
    /// Bytes that it allocated.
    pub allocated: u64,
    /// Bytes of those that were freed.
    pub freed: u64,
}

/// Something that was allocated.
pub struct Block {
    at: *mut u8,
    size: usize,
    caller: usize,
}

impl Block {
    /// Has a caller allocate so much.
    pub fn by(caller: usize, size: usize, told: &mut [Told; CALLERS]) -> Self {
        let caller = caller % CALLERS;
        let at = ALLOCATE[caller](size);
        told[caller].allocated += usable(size);
        Self { at, size, caller }
    }

    /// Has it freed.
    pub fn free(self, told: &mut [Told; CALLERS]) {
        told[self.caller].freed += usable(self.size);
        FREE[self.caller](self.at, self.size);
    }
}

/// What jemalloc makes of a size.
fn usable(size: usize) -> u64 {
    // SAFETY: the size is not 0.
    unsafe { tikv_jemalloc_sys::nallocx(size, 0) as u64 }
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap_or(Layout::new::<u64>())
}

macro_rules! callers {
    ($($caller:ident $freer:ident $tag:literal)*) => {
        const ALLOCATE: [fn(usize) -> *mut u8; CALLERS] = [$($caller),*];
        const FREE: [fn(*mut u8, usize); CALLERS] = [$($freer),*];
        $(
            #[inline(never)]
            #[unsafe(no_mangle)]
            fn $caller(size: usize) -> *mut u8 {
                // SAFETY: the size is not 0, and what is written is the first byte. The write also keeps this from being another
                // caller's code.
                unsafe {
                    let at = alloc(layout(size));
                    at.write_volatile($tag);
                    at
                }
            }

            #[inline(never)]
            #[unsafe(no_mangle)]
            fn $freer(at: *mut u8, size: usize) {
                // SAFETY: it was allocated so, and is freed once. The write after it is of this function's own.
                unsafe {
                    at.write_volatile($tag);
                    dealloc(at, layout(size));
                }
                std::hint::black_box(size);
            }
        )*
    };
}

callers! {
    caller_a freer_a 1
    caller_b freer_b 2
    caller_c freer_c 3
    caller_d freer_d 4
    caller_e freer_e 5
    caller_f freer_f 6
    caller_g freer_g 7
    caller_h freer_h 8
    caller_i freer_i 9
    caller_j freer_j 10
    caller_k freer_k 11
    caller_l freer_l 12
}
