//! Of profiles and their parts.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

/// Every metric of profiles.
#[derive(Clone, Debug)]
pub struct ProfileMetrics {
    published: IntCounterVec,
    merged: IntCounter,
    dropped: IntCounterVec,
    pushed: IntCounter,
    push_dropped: IntCounterVec,
}

impl ProfileMetrics {
    /// All at zero.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            published: IntCounterVec::new(
                Opts::new(
                    "ckb_probe_profiles_published_total",
                    "CkbProfiles that were written, by what stacks are weighted by.",
                ),
                &["mode"],
            )?,
            merged: IntCounter::new(
                "ckb_probe_profile_parts_merged_total",
                "What agents found of one process in one window, put into CkbProfiles.",
            )?,
            dropped: IntCounterVec::new(
                Opts::new(
                    "ckb_probe_profile_parts_dropped_total",
                    "The same, dropped, by why.",
                ),
                &["reason"],
            )?,
            pushed: IntCounter::new(
                "ckb_probe_profiles_pushed_total",
                "CkbProfiles that were handed to the server of profiles.push.url.",
            )?,
            push_dropped: IntCounterVec::new(
                Opts::new(
                    "ckb_probe_profiles_push_dropped_total",
                    "CkbProfiles that could not be, by why.",
                ),
                &["reason"],
            )?,
        };
        registry.register(Box::new(metrics.published.clone()))?;
        registry.register(Box::new(metrics.merged.clone()))?;
        registry.register(Box::new(metrics.dropped.clone()))?;
        registry.register(Box::new(metrics.pushed.clone()))?;
        registry.register(Box::new(metrics.push_dropped.clone()))?;
        Ok(metrics)
    }

    /// One of this mode was written, with so many parts that were in none yet.
    pub fn published(&self, mode: &str, parts: u64) {
        self.published.with_label_values(&[mode]).inc();
        self.merged.inc_by(parts);
    }

    /// A part is of no use.
    pub fn part_dropped(&self, reason: &str) {
        self.dropped.with_label_values(&[reason]).inc();
    }

    /// One was handed over.
    pub fn pushed(&self) {
        self.pushed.inc();
    }

    /// One was not.
    pub fn push_dropped(&self, reason: &str) {
        self.push_dropped.with_label_values(&[reason]).inc();
    }
}
