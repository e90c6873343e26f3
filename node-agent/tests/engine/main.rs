//! The agent's loop on this machine's kernel, as root.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "it is a part of tests, where that is how to fail"
)]

mod agent;
mod detaching;
mod figures;
mod joining;
mod profiles;
mod reused;
mod silence;
mod sites;
mod sizes;
mod slow_calls;
mod storm;
mod succeeds;
mod traces;

// What most of them take from elsewhere.
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use ckb_probe_agent::driver::engine::Delivery;
use ckb_probe_crds::{
    Assignment, Breach, InstanceReport, InstanceState, Overhead, Probe, Reason,
    kinds::rocksdb::{Operation, RocksDbProbe},
};
use ckb_probe_testkit::{Folder, container::Container};
use rustix::process::{Pid, Signal, kill_process};

use agent::{Agent, means, order_of, without_budget};

/// Calls functions of RocksDB's names, as fast as it can.
const FIXTURE: &str = "busy.c";

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(120);
