//! Where the time goes: what was seen of a process's stacks.
//!
//! [`Stacks`] are figures like all others: they merge. [`pprof`] is how they travel and are kept; [`headings`] tells which part of
//! CKB a stack belongs to; [`idle`], whose wait is no wait; [`functions`] lists what is seen most, [`changes`] what
//! differs; [`otlp`] is how others are told; [`render`] draws, with [`text`] that is to be read alone. All of it is pure: no clock, no file, no client.

pub mod categories;
pub mod changes;
pub mod functions;
pub mod idle;
pub mod names;
pub mod otlp;
pub mod pprof;
pub mod render;
mod stacks;
#[cfg(test)]
mod testing;
pub mod text;

pub use stacks::{
    Frame, Mismatch, PRUNED, Profile, ProfileMode, Pruned, SampleType, Stack, Stacks, WEIGHT_LIMIT,
    Window,
};
