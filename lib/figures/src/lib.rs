//! What is measured, as numbers that merge: the one algebra of agents, operator and command line.
//!
//! [`Figures`] are what was counted; a [`IntervalFigures`] is what of it belongs to one report interval, a [`Share`] in how much of the time it
//! was recorded, and a [`Summary`] a row over any number of targets, of which every [`Value`] that is shown is made. [`numbers`] says
//! how numbers are written. What was made of slices has a [`Variance`], from how much they differ ([`Spread`]). What a change does, by
//! measurements with and without it, is an [`Effect`]; which of many targets differs is for [`fleet`] to say. Pure: no clock, no I/O, no client.
#![forbid(unsafe_code)]

pub mod anomaly;
pub mod comparison;
pub mod contention;
pub mod figures;
pub mod fleet;
pub mod histogram;
mod interval;
pub mod numbers;
mod paired;
#[cfg(test)]
mod random;
mod sampled;
mod share;
mod summary;

pub use figures::{Distribution, Figures, Name};
pub use histogram::Histogram;
pub use interval::IntervalFigures;
pub use numbers::display_nanos;
pub use paired::{Effect, FEWEST as FEWEST_PAIRS, Turns};
pub use sampled::{Balance, Lasted, Passed, SliceShape, Spread, Variance};
pub use share::Share;
pub use summary::{Summary, Value};
