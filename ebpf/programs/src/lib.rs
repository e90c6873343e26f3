//! What several programs need.
#![no_std]

pub mod fields;
pub mod iterator;
