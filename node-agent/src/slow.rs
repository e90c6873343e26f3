//! A slow call, told in the target's own terms.

use std::time::Duration;

use ckb_probe_crds::SlowCallReport;
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use serde_json::{Value, json};

use crate::{
    instance::Instance,
    kinds::{causes, family_name},
    measurement::Measurement,
    target::InstanceKey,
};

/// A slow call, and what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowOperation {
    /// When it returned.
    pub time: Timestamp,
    /// The probe's name in the spec.
    pub probe: String,
    /// The operation.
    pub operation: &'static str,
    /// The column family, where it is asked for and known.
    pub column_family: Option<String>,
    /// The thread, in the host's pid namespace.
    pub thread: u32,
    /// Its name.
    pub thread_name: String,
    /// How long it took.
    pub duration: Duration,
    /// Its payload bytes, where they are known.
    pub bytes: Option<u64>,
    /// The background operations that ran at some time during it.
    pub during: Vec<String>,
}

/// Takes the slow calls that the kernel has handed over since the last time. `booted` is the wall clock's time at which
/// the monotonic clock was zero.
pub fn take(
    measurement: &mut Measurement,
    instance: &mut Instance,
    booted: Timestamp,
) -> Vec<SlowOperation> {
    let calls = measurement.slow_calls();
    calls
        .into_iter()
        .filter_map(|call| {
            let (slot, family) = measurement.operation(&call);
            let slot = &instance.series.get(slot)?.slot;
            let name = call.thread_name.split(|byte| *byte == 0).next();
            let slow = SlowOperation {
                time: booted
                    .checked_add(Duration::from_nanos(call.time_ns))
                    .unwrap_or(booted),
                probe: slot.probe.clone(),
                operation: slot.operation,
                column_family: family.map(|(id, name)| family_name(id, &name)),
                thread: call.thread,
                thread_name: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
                duration: Duration::from_nanos(call.duration_ns),
                bytes: slot.has_bytes().then_some(call.bytes),
                during: causes(call.during),
            };
            instance.slow(slow.report());
            Some(slow)
        })
        .collect()
}

impl SlowOperation {
    /// As it stands in a report.
    pub fn report(&self) -> SlowCallReport {
        SlowCallReport {
            time: Some(MicroTime(self.time)),
            probe: self.probe.clone(),
            operation: self.operation.to_string(),
            column_family: self.column_family.clone(),
            thread: self.thread_name.clone(),
            nanoseconds: self.duration.as_nanos() as u64,
            bytes: self.bytes,
            during: self.during.clone(),
        }
    }

    /// One line of JSON; with `key` where there may be several targets.
    pub fn line(&self, key: Option<&InstanceKey>) -> Value {
        let Self {
            time,
            probe,
            operation,
            column_family,
            thread,
            thread_name,
            duration,
            bytes,
            during,
        } = self;
        let mut line = json!({
            "time": format!("{time:.6}"),
            "probe": probe,
            "operation": operation,
            "columnFamily": column_family,
            "thread": thread,
            "threadName": thread_name,
            "durationNanoseconds": duration.as_nanos() as u64,
            "bytes": bytes,
            "during": during,
        });
        if let Some(InstanceKey {
            probe,
            pod,
            container,
        }) = key
        {
            line["namespace"] = json!(pod.namespace);
            line["pod"] = json!(pod.name);
            line["container"] = json!(container);
            line["ckbprobe"] = json!(probe.name);
        }
        line
    }
}
