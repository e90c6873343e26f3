//! Each kind of probe against what is known of a process: on this machine's kernel, as root. Whatever is measured of it is exact,
//! or it is refused with the documented reason, and which of the two is known beforehand.
//!
//! These run on other kernels too (`make test-kernels`), with nothing there but their fixtures: no compiler, and none of the
//! tools that the agent's own tests hold the same kinds against.

#[path = "../harness/mod.rs"]
mod harness;

mod block_io;
mod bystander;
mod chain;
mod functions;
mod kernel_functions;
mod kernel_tiers;
mod processes;
mod profile;
mod rocksdb;
mod syscalls;
mod tcp;
mod usdt;
mod way;
mod witness;
