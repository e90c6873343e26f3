//! What most families of figures take from elsewhere.

pub(super) use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

pub(super) use ckb_probe_crds::InstanceState;
pub(super) use ckb_probe_testkit::Container;
pub(super) use rustix::process::Signal;
pub(super) use tokio::{
    process::Child,
    time::{sleep, timeout},
};

pub(super) use super::{
    Bench, Settings,
    account::{self, Account},
    agent::{self, Agent, budget, no_budget, of},
    caller::Caller,
    chain::Import,
    command, in_folder,
    probes::Probes,
    statistics::summary,
    table::{Found, Order, Row, Series, table},
    ticker::Ticker,
};
pub(super) use crate::{
    failure::{Failure, Result, expect, read},
    fixture::fixtures,
    process::Process,
    report::Bound::{self, AtLeast, AtMost, Exactly, Within},
    rows, wait,
};
