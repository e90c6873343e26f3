//! Copying a stack, page after page.

use ckb_probe_common::stacks::{BEGINS_LATER, PAGE, STACK_PAGES};

/// Copies so many pages at most, to the first that is not there, and says how many there were and [`BEGINS_LATER`] or nothing.
/// `place` says where a page goes, `read` copies one there from so many bytes above where the stack begins, and says whether it could.
///
/// The page in which the stack begins may be missing: the thread has not touched it yet, and all of its calls are above.
#[inline(always)]
pub fn copy(
    limit: u32,
    place: impl Fn(u32) -> Option<*mut u8>,
    read: impl Fn(*mut u8, u64) -> bool,
) -> (u32, u32) {
    let Some(to) = place(0) else {
        return (0, 0);
    };
    let begins = read(to, 0);
    let flags = if begins { 0 } else { BEGINS_LATER };
    let mut pages = u32::from(begins);
    // Constant places, each: the verifier need not be told of any bounds.
    macro_rules! pages {
        ($($number:literal)*) => {{
            const { assert!([$($number),*].len() + 1 == STACK_PAGES) };
            $(
                if limit <= $number {
                    return (pages, flags);
                }
                let Some(to) = place($number) else {
                    return (pages, flags);
                };
                if !read(to, $number * PAGE as u64) {
                    return (pages, flags);
                }
                pages = $number + 1;
            )*
        }};
    }
    pages!(1 2 3 4 5 6 7 8 9 10 11);
    (pages, flags)
}
