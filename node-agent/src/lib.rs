//! The engine of ckb-probe: it finds processes, attaches BPF programs to them, and reports what they count.
//!
//! Two programs stand on it: `node-agent`, which takes its orders from a `NodeProbe`, and `ckb-probe`, a
//! command line for a host without Kubernetes.
//!
//! The pure part decides and computes ([`target`], [`instance`], [`kinds`], [`metrics`]); the edges act:
//! [`observe`] alone reads /proc, [`probe`] alone speaks to the kernel's BPF, [`attach`] joins the two,
//! [`engine`] carries out what [`target::plan`] decides, and [`agent`] connects it to the API server.

pub mod agent;
pub mod attach;
pub mod engine;
pub mod host;
pub mod instance;
pub mod kinds;
pub mod metrics;
pub mod observe;
pub mod probe;
pub mod server;
pub mod target;
