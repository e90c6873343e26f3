//! Which replica may write: the holder of a Lease.
//!
//! As client-go does it: a Lease is judged by how long its record has stood unchanged on *this* clock, never by
//! the times written in it, so replicas whose clocks differ do not take it from each other. Every write carries
//! the resource version it rests on, so of two that reach for it one fails. The holder trusts its own hold for
//! two thirds of the Lease's duration from the *start* of its last successful renewal, and then stops by itself,
//! well before anyone else may take over; when the API server answers again it goes on.

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, api::PostParams};
use tokio::{
    sync::watch,
    time::{Duration, Instant},
};

/// How often a replica that does not hold the Lease looks at it: the pause when one hands it over.
const STANDBY_PERIOD: Duration = Duration::from_secs(1);

/// What there is to know beforehand.
#[derive(Clone, Debug)]
pub struct ElectionConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub lease: String,
    /// This replica's name, unlike any other's.
    pub identity: String,
    /// After how long without renewal another replica may take over. Whole seconds, at least 3.
    pub duration: Duration,
}

/// Why a try for the Lease failed.
#[derive(Debug, thiserror::Error)]
pub enum ElectionError {
    /// It could not be read.
    #[error("cannot read the Lease: {0}")]
    Read(#[source] kube::Error),
    /// It could not be written.
    #[error("cannot write the Lease: {0}")]
    Write(#[source] kube::Error),
    /// There was no answer in time.
    #[error("no answer about the Lease within {} ms", .0.as_millis())]
    Timeout(Duration),
}

/// The Lease as this replica has seen it.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedLease {
    /// Its resource version: it changes with every renewal.
    version: String,
    holder: Option<String>,
    duration: Duration,
    transitions: i32,
    acquired: Option<MicroTime>,
    /// When this version was first seen.
    since: Instant,
}

/// What to do about the Lease.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// Another replica holds it.
    Wait,
    /// There is none: make one.
    Create,
    /// It is free, expired, or this replica's own: write this replica into it.
    Hold {
        /// The version that the write rests on.
        version: String,
        /// How often the holder has changed, this time included.
        transitions: i32,
        /// Whether another replica, or none, held it before.
        taken: bool,
    },
}

/// What to do about the Lease as it was seen, by the rules above.
pub fn decide(identity: &str, seen: Option<&ObservedLease>, now: Instant) -> Decision {
    let Some(seen) = seen else {
        return Decision::Create;
    };
    let holder = seen.holder.as_deref().filter(|holder| !holder.is_empty());
    let expired = now.duration_since(seen.since) > seen.duration;
    match holder {
        Some(holder) if holder == identity => Decision::Hold {
            version: seen.version.clone(),
            transitions: seen.transitions,
            taken: false,
        },
        Some(_) if !expired => Decision::Wait,
        _ => Decision::Hold {
            version: seen.version.clone(),
            transitions: seen.transitions.saturating_add(1),
            taken: true,
        },
    }
}

/// Where this replica stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leadership {
    /// Until when it may write; `None` when it may not.
    pub until: Option<Instant>,
    /// When it last found that the API server does not answer.
    pub unanswered: Option<Instant>,
}

impl Leadership {
    /// Whether it may write now.
    pub fn leads(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }
}

/// One replica's part in the election.
pub struct Election {
    api: Api<Lease>,
    config: ElectionConfig,
    seen: Option<ObservedLease>,
    stuck: bool,
    leadership: watch::Sender<Leadership>,
}

impl Election {
    /// Takes part from [`Self::run`] on; the receiver says until when this replica may write.
    pub fn new(client: Client, config: ElectionConfig) -> (Self, watch::Receiver<Leadership>) {
        let (leadership, receiver) = watch::channel(Leadership::default());
        let election = Self {
            api: Api::namespaced(client, &config.namespace),
            config,
            seen: None,
            stuck: false,
            leadership,
        };
        (election, receiver)
    }

    /// Tries for the Lease and renews it, for ever.
    pub async fn run(&mut self) {
        loop {
            let started = Instant::now();
            let limit = self.config.duration / 3;
            let result = match tokio::time::timeout(limit, self.attempt()).await {
                Ok(result) => result,
                Err(_) => Err(ElectionError::Timeout(limit)),
            };
            let stuck = result.is_err();
            match result {
                Ok(true) => self.lead(started),
                Ok(false) => self.stand_by("another replica holds the Lease"),
                Err(error) => self.unanswered(&error),
            }
            self.stuck = stuck;
            self.expire();
            tokio::time::sleep_until(self.next_attempt(started)).await;
            self.expire();
        }
    }

    /// Gives the Lease up, so that another replica need not wait for it to expire.
    pub async fn release(&mut self) -> Result<(), ElectionError> {
        let held = self.leadership.borrow().until.is_some();
        self.stand_by("this replica stops");
        let Some(seen) = self.seen.take().filter(|_| held) else {
            return Ok(());
        };
        let free = self.record(&seen.version, None, seen.transitions);
        let post = PostParams::default();
        let write = self.api.replace(&self.config.lease, &post, &free);
        let limit = self.config.duration / 3;
        match tokio::time::timeout(limit, write).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(ElectionError::Write(error)),
            Err(_) => Err(ElectionError::Timeout(limit)),
        }
    }

    /// One look at the Lease and, if it may be had, one write. Returns whether this replica holds it.
    async fn attempt(&mut self) -> Result<bool, ElectionError> {
        let lease = self
            .api
            .get_opt(&self.config.lease)
            .await
            .map_err(ElectionError::Read)?;
        // Not `started`: the record may have changed while the request was on its way.
        let now = Instant::now();
        self.look(lease.as_ref(), now);
        let post = PostParams::default();
        let identity = self.config.identity.clone();
        let written = match decide(&identity, self.seen.as_ref(), now) {
            Decision::Wait => return Ok(false),
            Decision::Create => {
                let lease = self.record("", Some(identity), 0);
                self.api.create(&post, &lease).await
            }
            Decision::Hold {
                version,
                transitions,
                taken,
            } => {
                let acquired = self.seen.as_ref().and_then(|seen| seen.acquired.clone());
                let mut lease = self.record(&version, Some(identity), transitions);
                if let Some(spec) = lease.spec.as_mut().filter(|_| !taken) {
                    spec.acquire_time = acquired;
                }
                self.api.replace(&self.config.lease, &post, &lease).await
            }
        };
        match written {
            Ok(lease) => {
                self.look(Some(&lease), Instant::now());
                Ok(true)
            }
            // Another replica was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(ElectionError::Write(error)),
        }
    }

    /// Notes what the Lease is like. The clock starts anew only when it has changed.
    fn look(&mut self, lease: Option<&Lease>, now: Instant) {
        self.seen = lease.map(|lease| {
            let spec = lease.spec.clone().unwrap_or_default();
            let version = lease.metadata.resource_version.clone().unwrap_or_default();
            let known = self.seen.as_ref().filter(|seen| seen.version == version);
            let seconds = spec.lease_duration_seconds.unwrap_or_default();
            ObservedLease {
                since: known.map_or(now, |seen| seen.since),
                version,
                holder: spec.holder_identity,
                duration: Duration::from_secs(u64::try_from(seconds).unwrap_or_default()),
                transitions: spec.lease_transitions.unwrap_or_default(),
                acquired: spec.acquire_time,
            }
        });
    }

    fn record(&self, version: &str, holder: Option<String>, transitions: i32) -> Lease {
        let now = MicroTime(Timestamp::now());
        let seconds = i32::try_from(self.config.duration.as_secs()).unwrap_or(i32::MAX);
        Lease {
            metadata: ObjectMeta {
                name: Some(self.config.lease.clone()),
                namespace: Some(self.config.namespace.clone()),
                resource_version: (!version.is_empty()).then(|| version.to_owned()),
                ..ObjectMeta::default()
            },
            spec: Some(LeaseSpec {
                acquire_time: holder.is_some().then(|| now.clone()),
                renew_time: Some(now),
                lease_duration_seconds: Some(seconds),
                lease_transitions: Some(transitions),
                holder_identity: holder,
                ..LeaseSpec::default()
            }),
        }
    }

    fn lead(&self, since: Instant) {
        let until = Some(self.trusted_until(since));
        let mut before = None;
        self.leadership
            .send_modify(|leadership| before = std::mem::replace(&mut leadership.until, until));
        if before.is_none() {
            let ElectionConfig {
                identity, lease, ..
            } = &self.config;
            tracing::info!(identity, lease, "leading");
        }
    }

    fn stand_by(&self, why: &str) {
        let led = self
            .leadership
            .send_if_modified(|leadership| leadership.until.take().is_some());
        if led {
            tracing::info!(
                identity = self.config.identity,
                "not leading any more: {why}"
            );
        }
    }

    fn unanswered(&self, error: &ElectionError) {
        // One line for each outage.
        if !self.stuck {
            tracing::warn!(%error, "the election is stuck");
        }
        let now = Some(Instant::now());
        self.leadership
            .send_modify(|leadership| leadership.unanswered = now);
    }

    /// Stops leading when the last renewal is too long ago.
    fn expire(&self) {
        if !self.leadership.borrow().leads(Instant::now()) {
            self.stand_by("the Lease could not be renewed in time");
        }
    }

    /// How long a hold may be trusted that was renewed by a request made at `renewed`.
    fn trusted_until(&self, renewed: Instant) -> Instant {
        renewed + self.config.duration * 2 / 3
    }

    /// A holder renews five times within the duration, and tries faster when that fails; others look each second.
    fn next_attempt(&self, started: Instant) -> Instant {
        match self.leadership.borrow().until {
            Some(until) if until == self.trusted_until(started) => {
                started + self.config.duration / 5
            }
            Some(until) => (Instant::now() + STANDBY_PERIOD).min(until),
            None => Instant::now() + STANDBY_PERIOD,
        }
    }
}

#[cfg(test)]
mod tests;
