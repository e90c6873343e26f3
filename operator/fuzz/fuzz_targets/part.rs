//! Crafted parts of profiles: what an agent that is another's by now may write, and the profile that comes of it.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

#[path = "../src/checks/part.rs"]
mod checks;
#[path = "../src/json.rs"]
mod json;
#[path = "../src/mutator.rs"]
mod mutator;

fuzz_target!(|bytes: &[u8]| checks::check(bytes));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutator::mutate(data, size, max_size, seed, fuzzer_mutate)
});
