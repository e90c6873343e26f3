//! What the agent decides, apart from how it is carried out: how much of the time is measured ([`governor`]), whose process is
//! measured ([`target`]), how namespaces share what a node has once ([`share`]), what of a report is left out where it does not fit
//! ([`fit`]), and what the kernel's accounts say of what a container waited for ([`contention`]).
//!
//! Pure: no clock, no I/O, no kernel. Whoever changes a decision runs its tests in seconds, without root and without a compiler for
//! BPF: `cargo test -p ckb-probe-core`.
#![forbid(unsafe_code)]

pub mod contention;
pub mod fit;
pub mod governor;
pub mod process;
pub mod share;
pub mod target;
