//! Crafted texts of USDT probes that emit spans: the reader of Zipkin's JSON, on any bytes.
#![no_main]

#[path = "../src/checks/zipkin.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::check(bytes));
