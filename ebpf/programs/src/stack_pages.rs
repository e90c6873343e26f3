//! Copying a stack, page after page.

use ckb_probe_common::stacks::{PAGE, STACK_PAGES};

/// Copies to the first page that is not there, and says how many there were. `place` says where a page goes, `read` copies one there
/// from so many bytes above where the stack begins, and says whether it could.
#[inline(always)]
pub fn copy(place: impl Fn(u32) -> Option<*mut u8>, read: impl Fn(*mut u8, u64) -> bool) -> u32 {
    let mut pages = 0;
    // Constant places, each: the verifier need not be told of any bounds.
    macro_rules! pages {
        ($($number:literal)*) => {{
            const { assert!([$($number),*].len() == STACK_PAGES) };
            $(
                let Some(to) = place($number) else {
                    return pages;
                };
                if !read(to, $number * PAGE as u64) {
                    return pages;
                }
                pages += 1;
            )*
        }};
    }
    pages!(0 1 2 3 4 5 6 7);
    pages
}
