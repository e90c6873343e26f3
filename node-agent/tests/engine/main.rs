//! The agent's loop on this machine's kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "it is a part of tests, where that is how to fail"
)]

mod agent;
mod detaching;
mod joining;
mod profiles;
mod silence;
mod sites;
mod sizes;
mod slow_calls;
mod storm;

use std::time::Duration;

use ckb_probe_testkit::{self as host, container};

/// Calls functions of RocksDB's names, as fast as it can.
const FIXTURE: &str = "busy.c";

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
