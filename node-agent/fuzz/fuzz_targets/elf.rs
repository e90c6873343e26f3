//! Crafted ELF files: the search of a target's files, on any bytes.
#![no_main]

#[path = "../src/checks/elf.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
