//! Crafted notes of USDT probes: the search of a target's files for them, on any bytes.
#![no_main]

#[path = "../src/checks/usdt.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
