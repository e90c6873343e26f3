//! The engine of ckb-probe: it finds processes, attaches BPF programs to them, and reports what they count.
//!
//! Two programs stand on it: `node-agent`, which takes its orders from a `NodeProbe`, and `ckb-probe`, a
//! command line for a host without Kubernetes.
//!
//! **Kinds** configure: what a probe's spec asks of which mechanism ([`kinds`]). **Mechanisms** measure ([`mechanism`]), by what
//! the kernel offers ([`kernel`], which alone speaks to its BPF) and what /proc tells ([`observe`], which alone reads it).
//! **Figures** merge in the [`state`]. The [`driver`] carries out what is decided: by [`target::plan`], whose process is
//! measured, by [`governor::plan`], how much of the time, and by [`share`], how much namespaces have of what there is once. [`agent`] connects it to the API server, [`host`] to a terminal.

pub mod agent;
pub mod alarm;
pub mod blocks;
pub mod driver;
pub mod export;
pub mod host;
pub mod kinds;
pub mod lines;
pub mod mechanism;
pub mod observe;
pub mod preflight;
pub mod server;
pub mod state;

pub use ckb_probe_bpf as kernel;
pub use ckb_probe_core::{governor, share, target};
pub use ckb_probe_symbols::{text, unwind};
