//! Crafted cgroups and tables of mounts: whose process it is.
#![no_main]

#[path = "../src/checks/place.rs"]
mod checks;

// Not by its crate, whose dependencies would take minutes to instrument.
#[path = "../../core/src/process/place.rs"]
mod process;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
