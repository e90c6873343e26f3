//! What most scenarios take from elsewhere.

pub(super) use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::{Duration, Instant},
};

pub(super) use ckb_probe_crds::{CkbProbe, CkbProbeStatus, Reason, condition};
pub(super) use k8s_openapi::api::core::v1::Pod;
pub(super) use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
pub(super) use rustix::process::Signal;
pub(super) use serde_json::{Value, json};

pub(super) use crate::{
    cluster::{Component, SYSTEM, run as command},
    failure::{Failure, Result, expect},
    metrics::Metrics,
    operations,
    process::Process,
    report::Bound,
    rows,
    scene::{ATTACH, PROBE, Scene, all_fire, ckb_probe, probe, workload_target},
    wait,
    workload::{FixturePod, Load, Target, Workload},
};
