//! What several programs need.
#![no_std]
#![feature(core_intrinsics)]
#![allow(internal_features)]

pub mod constants;
pub mod counters;
pub mod counts;
pub mod fields;
pub mod iterator;
pub mod socket_storage;
pub mod stack_pages;
pub mod task_storage;
