//! The engine against a program whose calls are known: on this machine's kernel, as root.

#[path = "../harness/mod.rs"]
mod harness;

mod column_families;
mod confined;
mod counts;
mod coverage;
mod detach;
mod durations;
mod files;
mod health;
mod sampling;
mod single_stepped;
mod slow_calls;
