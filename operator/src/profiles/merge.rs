//! One profile of many parts. Parts come from agents, of which one may be another's by now: whatever they hold, this ends soon, takes
//! little memory, and makes an object that the API server takes.

use std::collections::BTreeSet;

use ckb_probe_crds::{
    CkbProfileSpec, FunctionShare, PPROF_LIMIT, PodReference, ProfileCounts, ProfileMode,
    ProfilePartSpec, ProfileShare, ProfileTarget, ProfileWindow,
};
use ckb_probe_profiles::{
    Mismatch, Profile, Stacks,
    categories::{split, summary},
    functions::top,
    pprof::{Limits, ReadError},
};
use k8s_openapi::{ByteString, apimachinery::pkg::apis::meta::v1::MicroTime};

/// What is read of a part, and of a profile that was published: two and a half times what 512 KiB of real stacks come to.
const LIMITS: Limits = Limits {
    unzipped: 8 << 20,
    elements: 100_000,
    frames: 2_000_000,
};
/// What is kept between two parts: what is more is folded at once, the lightest first.
const FRAMES: usize = 200_000;
/// Targets that are listed.
const TARGETS: usize = 256;
/// Functions that are listed.
const FUNCTIONS: usize = 20;
/// Letters of a function's name in the list, and of what an agent says of a failure.
const TEXT: usize = 256;
/// No number in an object may be greater.
const MOST: u64 = i64::MAX as u64;

/// Why a part is of no use.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// Its stacks are longer than they may be.
    #[error("it has {0} bytes of stacks, and may have {PPROF_LIMIT}")]
    TooLong(usize),
    /// Its stacks are no pprof.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// They are not what it says.
    #[error("it says that it is of {0}, and has other sample types")]
    Mode(&'static str),
    /// They are something else than those of the other parts.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
    /// Its container has a name that none can have.
    #[error("no container is called as it says")]
    Container,
    /// The merging was cut short.
    #[error("reading it failed: {0}")]
    Interrupted(String),
}

/// A profile as it grows.
#[derive(Debug)]
pub struct Merger {
    mode: ProfileMode,
    window: Option<ProfileWindow>,
    profile: Option<Profile>,
    targets: Vec<ProfileTarget>,
    omitted: u32,
    counts: ProfileCounts,
    /// The uids of the parts in it.
    merged: BTreeSet<String>,
}

impl Merger {
    /// Nothing yet.
    pub fn new(mode: ProfileMode) -> Self {
        Self {
            mode,
            window: None,
            profile: None,
            targets: Vec::new(),
            omitted: 0,
            counts: ProfileCounts::default(),
            merged: BTreeSet::new(),
        }
    }

    /// What was published already, of these parts.
    ///
    /// # Errors
    ///
    /// When its stacks cannot be read.
    pub fn resume(spec: CkbProfileSpec, merged: BTreeSet<String>) -> Result<Self, PartError> {
        Ok(Self {
            mode: spec.mode,
            profile: Some(read(&spec.pprof.0, spec.mode)?),
            window: Some(spec.window),
            targets: spec.targets,
            omitted: spec.targets_omitted,
            counts: spec.counts,
            merged,
        })
    }

    /// The uids of the parts in it.
    pub fn merged(&self) -> &BTreeSet<String> {
        &self.merged
    }

    /// Whether there are stacks to be published: a picture of nothing would take the place of one that shows something.
    pub fn has_stacks(&self) -> bool {
        let stacks = self.profile.as_ref().map(|profile| &profile.stacks);
        stacks.is_some_and(|stacks| !stacks.is_empty())
    }

    /// Adds a part with this uid, which the agent of this node has written about this pod.
    ///
    /// # Errors
    ///
    /// When its stacks are of no use. The target is listed with that failure all the same.
    pub fn add(
        &mut self,
        uid: &str,
        node: &str,
        pod: &PodReference,
        part: ProfilePartSpec,
    ) -> Result<(), PartError> {
        if !is_name(&part.container) {
            return Err(PartError::Container);
        }
        let name = format!("{}/{}/{}", pod.namespace, pod.name, part.container);
        let mut target = ProfileTarget {
            pod: pod.name.clone(),
            container: part.container.clone(),
            node: node.to_owned(),
            counts: ProfileCounts::default(),
            failure: part.failure.as_deref().map(cut),
        };
        let added = match &part.pprof {
            None => Ok(()),
            Some(pprof) => self.add_stacks(&pprof.0, &name),
        };
        match &added {
            Ok(()) if part.pprof.is_some() => {
                target.counts = bounded(&part.counts);
                self.counts = sum(&self.counts, &target.counts);
            }
            Ok(()) => {}
            Err(error) => target.failure = Some(cut(&error.to_string())),
        }
        self.cover(&part.window);
        self.merged.insert(uid.to_owned());
        self.list(target);
        self.targets.sort_by(|one, other| {
            let key = |target: &ProfileTarget| (target.pod.clone(), target.container.clone());
            key(one).cmp(&key(other))
        });
        if self.targets.len() > TARGETS {
            self.targets.truncate(TARGETS);
            self.omitted = self.omitted.saturating_add(1);
        }
        added
    }

    /// An agent that begins anew in a window has two parts of it.
    fn list(&mut self, target: ProfileTarget) {
        let place =
            |one: &ProfileTarget| (one.pod.clone(), one.container.clone(), one.node.clone());
        let mut all = self.targets.iter_mut();
        let Some(known) = all.find(|one| place(one) == place(&target)) else {
            self.targets.push(target);
            return;
        };
        known.counts = sum(&known.counts, &target.counts);
        known.failure = known
            .failure
            .take()
            .zip(target.failure)
            .map(|(one, other)| one.min(other));
    }

    fn add_stacks(&mut self, pprof: &[u8], target: &str) -> Result<(), PartError> {
        let mut part = read(pprof, self.mode)?;
        // What it says itself of whose they are is not believed.
        let mut stacks = Stacks::new(part.stacks.types().to_vec(), part.stacks.shown());
        for mut stack in part.stacks.iter() {
            stack.target = target;
            stacks.add(&stack);
        }
        part.stacks = stacks;
        part.lighten(FRAMES);
        match &mut self.profile {
            None => self.profile = Some(part),
            Some(profile) => {
                profile.merge(&part)?;
                drop(part);
                profile.lighten(FRAMES);
            }
        }
        Ok(())
    }

    fn cover(&mut self, part: &ProfileWindow) {
        let window = self.window.get_or_insert_with(|| part.clone());
        if part.began_at.0 < window.began_at.0 {
            window.began_at = MicroTime(part.began_at.0);
        }
        window.milliseconds = window.milliseconds.max(part.milliseconds).min(MOST);
        window.number = window.number.min(MOST);
    }

    /// What is to be published; None where there are no stacks, or no room for them.
    pub fn finish(self, ckb_probe: &str, probe: &str) -> Option<CkbProfileSpec> {
        let Self {
            mode,
            window,
            profile,
            targets,
            omitted,
            counts,
            merged: _,
        } = self;
        let profile = profile?.prune(PPROF_LIMIT);
        let (bytes, stacks) = (profile.bytes, profile.profile.stacks);
        if bytes.len() > PPROF_LIMIT {
            return None;
        }
        let shown = stacks.shown();
        let total = stacks.total(shown);
        let headings = split(&stacks, shown).into_iter();
        let headings = headings.map(|(heading, weight)| ProfileShare {
            name: heading.as_str().to_owned(),
            percent: percent(weight, total),
        });
        let functions = top(&stacks, shown, FUNCTIONS).by_total.into_iter();
        let functions = functions.map(|function| FunctionShare {
            name: cut(&function.name),
            module: cut(&function.module),
            self_percent: percent(function.itself, total),
            total_percent: percent(function.total, total),
        });
        let folded = stacks.pruned();
        Some(CkbProfileSpec {
            ckb_probe: ckb_probe.to_owned(),
            probe: probe.to_owned(),
            mode,
            window: window?,
            targets,
            targets_omitted: omitted,
            complete_percent: percent(counts.complete, counts.samples),
            sampled_percent: counts
                .sampled_microseconds
                .zip(counts.cpu_microseconds)
                .map(|(sampled, clock)| percent(sampled, clock)),
            counts,
            headline: summary(&stacks),
            headings: headings.collect(),
            functions: functions.collect(),
            pruned_percent: (folded > 0).then(|| percent(folded, total)),
            bytes: bytes.len() as u64,
            pprof: ByteString(bytes),
        })
    }
}

fn read(pprof: &[u8], mode: ProfileMode) -> Result<Profile, PartError> {
    if pprof.len() > PPROF_LIMIT {
        return Err(PartError::TooLong(pprof.len()));
    }
    let profile = Profile::from_pprof(pprof, &LIMITS)?;
    match profile.stacks.mode() {
        Some(found) if found == mode => Ok(profile),
        _ => Err(PartError::Mode(mode.as_str())),
    }
}

/// What Kubernetes takes as the name of a container.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(fits)
}

fn bounded(counts: &ProfileCounts) -> ProfileCounts {
    let ProfileCounts {
        samples,
        complete,
        guessed,
        lost,
        millihertz,
        by_any_timer,
        cpu_microseconds,
        sampled_microseconds,
        resident_before,
        resident_after,
        anonymous_before,
        anonymous_after,
        in_step,
    } = counts;
    let bound = |count: &u64| (*count).min(MOST);
    ProfileCounts {
        samples: bound(samples),
        complete: bound(complete).min(*samples),
        guessed: bound(guessed).min(*samples),
        lost: bound(lost),
        millihertz: bound(millihertz),
        by_any_timer: *by_any_timer,
        cpu_microseconds: cpu_microseconds.as_ref().map(bound),
        sampled_microseconds: sampled_microseconds.as_ref().map(bound),
        resident_before: resident_before.as_ref().map(bound),
        resident_after: resident_after.as_ref().map(bound),
        anonymous_before: anonymous_before.as_ref().map(bound),
        anonymous_after: anonymous_after.as_ref().map(bound),
        in_step: bound(in_step).min(*samples),
    }
}

fn sum(one: &ProfileCounts, other: &ProfileCounts) -> ProfileCounts {
    let plus = |one: u64, other: u64| one.saturating_add(other).min(MOST);
    let maybe = |one: Option<u64>, other: Option<u64>| match (one, other) {
        (Some(one), Some(other)) => Some(plus(one, other)),
        (one, other) => one.or(other),
    };
    // Who was never seen was perhaps never looked at: its rate is told where there is no other.
    let rate = match (one.samples, other.samples) {
        (0, 0) => one.millihertz.max(other.millihertz),
        (0, _) => other.millihertz,
        (_, 0) => one.millihertz,
        _ => one.millihertz.min(other.millihertz),
    };
    ProfileCounts {
        samples: plus(one.samples, other.samples),
        complete: plus(one.complete, other.complete),
        guessed: plus(one.guessed, other.guessed),
        lost: plus(one.lost, other.lost),
        millihertz: rate,
        by_any_timer: one.by_any_timer || other.by_any_timer,
        cpu_microseconds: maybe(one.cpu_microseconds, other.cpu_microseconds),
        sampled_microseconds: maybe(one.sampled_microseconds, other.sampled_microseconds),
        resident_before: maybe(one.resident_before, other.resident_before),
        resident_after: maybe(one.resident_after, other.resident_after),
        anonymous_before: maybe(one.anonymous_before, other.anonymous_before),
        anonymous_after: maybe(one.anonymous_after, other.anonymous_after),
        in_step: plus(one.in_step, other.in_step),
    }
}

/// With one decimal; of nothing: all of it.
fn percent(part: u64, of: u64) -> String {
    let share = match of {
        0 => 100.0,
        _ => part as f64 / of as f64 * 100.0,
    };
    format!("{share:.1}")
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests;
