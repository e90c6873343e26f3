//! What the tests stand on: fixtures whose calls are known, and a local cluster to deploy to.

pub mod bench;
pub mod bpf;
pub mod bpftrace;
pub mod budget;
pub mod chart;
pub mod choice;
pub mod cluster;
pub mod comparison;
pub mod failure;
pub use ckb_probe_testkit as fixture;
pub mod hardening;
pub mod metrics;
pub mod monitoring;
pub mod note;
pub mod operations;
pub mod process;
pub mod prometheus;
pub mod report;
pub mod rows;
pub mod scale;
pub mod scenarios;
pub mod scene;
pub mod slow_lines;
pub mod soak;
pub mod upgrade;
pub mod wait;
pub mod workload;
