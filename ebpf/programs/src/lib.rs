//! What several programs need.
#![no_std]
#![feature(core_intrinsics)]
#![allow(internal_features)]

pub mod calls;
pub mod column_family;
pub mod constants;
pub mod counters;
pub mod counts;
pub mod fields;
pub mod helpers;
pub mod identity;
pub mod iterator;
pub mod operand;
pub mod registers;
pub mod ring_shares;
pub mod session;
pub mod stack_pages;
pub mod storage;

/// What each program ends with: the licence by which the kernel lets it call helpers; and a panic, which none of them has.
#[macro_export]
macro_rules! end {
    () => {
        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            loop {}
        }

        #[unsafe(link_section = "license")]
        #[unsafe(no_mangle)]
        static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
    };
}
