//! The engine of ckb-probe: it finds processes, attaches BPF programs to them, and reports what they count.
//!
//! Two programs stand on it: `node-agent`, which takes its orders from a `NodeProbe`, and `ckb-probe`, a
//! command line for a host without Kubernetes.
//!
//! The pure part decides and computes ([`target`], [`governor`], [`instance`], [`series`], [`kinds`], [`metrics`]); the
//! edges act: [`observe`] alone reads /proc, [`probe`] alone speaks to the kernel's BPF, [`attach`] joins the two,
//! [`measurement`] carries out what [`governor::plan`] decides for one process, [`engine`] what [`target::plan`] decides
//! for all of them, and [`agent`] connects it to the API server.

pub mod agent;
pub mod attach;
pub mod disturbance;
pub mod engine;
pub mod governor;
pub mod host;
pub mod instance;
pub mod kinds;
pub mod measurement;
pub mod metrics;
pub mod observe;
pub mod preflight;
pub mod probe;
pub mod series;
pub mod server;
pub mod slow;
pub mod target;
