//! Windows of stacks: which probe of a CkbProbe makes them, and how long it takes until the next one is there.

use std::{str::FromStr, time::Duration};

use ckb_probe_crds::{CkbProbe, KindSpec, ProfileMode};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::{
    figures::cut,
    text::{WIDTH, one_line},
};

/// How long the operator waits for those that come late, at the most.
const PUBLISHED: Duration = Duration::from_secs(30);

/// Windows of slow calls have a length of their own.
const SLOW_CALLS: Duration = Duration::from_secs(600);

/// How wide a bar is.
const BAR: usize = 24;

/// Which stacks are meant: `cpu`, `ckb-0/cpu`, `ckb-0/ckb/off-cpu` or `ckb-0`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Wanted {
    /// The pod, or the pod and its container; None means all targets together.
    pub target: Option<String>,
    /// The mode; None means the first that there is.
    pub mode: Option<ProfileMode>,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, mode) = match text.rsplit_once('/') {
            Some((target, mode)) => (target, mode),
            None => ("", text),
        };
        let (target, mode) = match ProfileMode::from_str(mode) {
            Ok(mode) => (target, Some(mode)),
            Err(_) => (text, None),
        };
        if target.starts_with('/') || target.ends_with('/') {
            return Err(format!(
                "{text:?} is no TARGET/MODE: such as ckb-0/cpu, cpu or ckb-0/ckb/off-cpu"
            ));
        }
        Ok(Self {
            target: (!target.is_empty()).then(|| target.to_owned()),
            mode,
        })
    }
}

impl Wanted {
    /// Whether stacks of a target, as profiles name it (`default/ckb-0/ckb`), are meant.
    pub fn has(&self, target: &str) -> bool {
        let Some(asked) = &self.target else {
            return true;
        };
        let within = |of: &str| {
            of.strip_prefix(asked.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let without_namespace = target.split_once('/').map(|(_, rest)| rest);
        within(target) || without_namespace.is_some_and(within)
    }
}

/// The probe of a CkbProbe that makes CkbProfiles of a mode.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Maker {
    /// Its name.
    pub probe: String,
    /// The mode.
    pub mode: ProfileMode,
    /// How long a window is.
    pub window: Duration,
    /// From the beginning of one to that of the next; None where there is one alone.
    pub every: Option<Duration>,
}

/// The first probe that makes what is wanted; None where none does.
pub fn maker(probe: &CkbProbe, name: Option<&str>, mode: Option<ProfileMode>) -> Option<Maker> {
    let probes = probe.spec.probes.iter();
    let named = probes.filter(|one| name.is_none_or(|name| one.name == name));
    let makers = named.flat_map(|one| {
        let made = |mode, window, every| Maker {
            probe: one.name.clone(),
            mode,
            window,
            every,
        };
        let slow = |stacks: bool| {
            let every = Some(SLOW_CALLS);
            let slow = stacks.then(|| made(ProfileMode::SlowCalls, SLOW_CALLS, every));
            slow.into_iter().collect::<Vec<_>>()
        };
        match one.kind_spec() {
            Some(KindSpec::Profile(spec)) => {
                let window = spec.window.get();
                let every = spec.every.map(ckb_probe_crds::Duration::get);
                let modes = spec.modes.iter();
                modes.map(|mode| made(*mode, window, every)).collect()
            }
            Some(KindSpec::Rocksdb(spec)) => slow(spec.stacks),
            Some(KindSpec::Functions(spec)) => slow(spec.stacks),
            _ => Vec::new(),
        }
    });
    let mut makers = makers.filter(|maker| mode.is_none_or(|mode| maker.mode == mode));
    makers.next()
}

/// How far a window is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Progress {
    /// It begins in so long.
    Waits(Duration),
    /// So much of it is over.
    Lasts(Duration),
    /// It is over for so long, and on its way.
    Ended(Duration),
}

impl Maker {
    /// How far the window is that is the next to be published for whoever waits since then.
    pub fn progress(&self, since: Timestamp, now: Timestamp) -> Progress {
        let begins = self.begins(since);
        let into = now.duration_since(begins);
        if into.is_negative() {
            return Progress::Waits(into.unsigned_abs());
        }
        let into = into.unsigned_abs();
        match into.checked_sub(self.window) {
            None => Progress::Lasts(into),
            Some(over) => Progress::Ended(over),
        }
    }

    /// When the window begins that ends first after that. Windows begin at multiples of `every` since 1970; one that is alone is taken
    /// to begin then, since nobody can tell from outside.
    fn begins(&self, since: Timestamp) -> Timestamp {
        let Some(every) = self.every.filter(|every| !every.is_zero()) else {
            return since;
        };
        let every = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).max(1);
        let window = i64::try_from(self.window.as_millis()).unwrap_or(i64::MAX);
        let since = since.as_millisecond();
        let mut begins = since - since.rem_euclid(every);
        if begins.saturating_add(window) <= since {
            begins = begins.saturating_add(every);
        }
        let since_1970 = SignedDuration::from_millis(begins);
        Timestamp::UNIX_EPOCH
            .checked_add(since_1970)
            .unwrap_or(Timestamp::MAX)
    }

    /// The same in a line of 80 columns.
    pub fn line(&self, subject: &str, progress: &Progress) -> String {
        let window = self.window.as_secs_f64();
        let (share, said) = match progress {
            Progress::Waits(time) => (
                0.0,
                format!("the next window begins in {} s", time.as_secs()),
            ),
            Progress::Lasts(time) => (
                time.as_secs_f64() / window.max(1e-3),
                format!("{} of {window:.0} s", time.as_secs()),
            ),
            Progress::Ended(time) if *time <= PUBLISHED => {
                (1.0, "the window is over, and merged".to_owned())
            }
            Progress::Ended(time) => (
                1.0,
                format!("over for {} s, and not there yet", time.as_secs()),
            ),
        };
        let full = ((share * BAR as f64) as usize).min(BAR);
        let bar = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
        cut(
            &one_line(&format!("{subject} {}: [{bar}] {said}", self.mode)),
            WIDTH,
        )
    }
}

#[cfg(test)]
mod tests;
