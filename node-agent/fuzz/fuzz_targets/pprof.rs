//! Crafted profiles: the reader of pprof, on any bytes, and what is made of what it reads.
#![no_main]

#[path = "../src/checks/pprof.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
