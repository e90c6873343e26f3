//! Crafted tables, stacks and registers: the unwinder, on whatever a target says of itself.
#![no_main]

#[path = "../src/checks/unwind.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
