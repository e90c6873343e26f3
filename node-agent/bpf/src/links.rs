//! From loaded programs to probes in place, by each tier.

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{Arc, Weak},
    thread,
    time::{Duration, Instant},
};

use ckb_probe_common::Group;

use super::{
    AttachError, Site, Tier,
    object::Object,
    sys::{self, AttachType, MultiLink, ProbePmu, ProgramType},
};

/// Probes in place; the kernel removes them when it is dropped, which may take it a tenth of a second, and on the
/// perf-event tier seconds.
#[derive(Debug)]
#[must_use = "dropping it detaches"]
pub struct Links {
    // Declared first: who looks whether they are there is told once they are gone.
    _descriptors: Vec<OwnedFd>,
    present: Vec<Arc<()>>,
}

/// How long links on their way out are waited for that would see once more what new ones are to see, or that others have where nothing
/// is attached any more. Of many sites on the perf-event tier they take seconds, on a busy machine several.
const LONGEST_GOING: Duration = Duration::from_secs(30);

/// Between two looks whether they are gone.
const LOOK: Duration = Duration::from_millis(1);

/// Waits until such links are gone, or have been waited for [long enough](LONGEST_GOING).
pub(super) fn wait_while(mut they_last: impl FnMut() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < LONGEST_GOING && they_last() {
        thread::sleep(LOOK);
    }
}

/// Some links, for whoever wants to know whether they are there still.
#[derive(Debug)]
pub(super) struct Presence(Vec<Weak<()>>);

impl Presence {
    /// Whether any of them is.
    pub(super) fn lasts(&self) -> bool {
        self.0.iter().any(|one| one.strong_count() > 0)
    }
}

impl Links {
    /// Of what the kernel handed out; the first goes first.
    pub fn of(descriptors: Vec<OwnedFd>) -> Self {
        Self {
            _descriptors: descriptors,
            present: vec![Arc::new(())],
        }
    }

    /// All of these; None where there are none.
    pub(super) fn together(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|mut together, more| {
            together._descriptors.extend(more._descriptors);
            together.present.extend(more.present);
            together
        })
    }

    /// See [`Presence`].
    pub(super) fn presence(&self) -> Presence {
        Presence(self.present.iter().map(Arc::downgrade).collect())
    }

    /// Those that are links by the kernel's account, by its numbers.
    #[cfg(test)]
    pub(super) fn ids(&self) -> Vec<u32> {
        use std::os::fd::AsRawFd;
        let texts = self._descriptors.iter().map(|descriptor| {
            let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
            std::fs::read_to_string(path).unwrap()
        });
        let id = |text: String| {
            Some(
                text.split_once("link_id:")?
                    .1
                    .lines()
                    .next()?
                    .trim()
                    .parse()
                    .unwrap(),
            )
        };
        texts.filter_map(id).collect()
    }
}

/// What sees calls by a tier.
pub(super) struct Programs {
    /// Attached to every site whose calls are timed.
    timing: Vec<LinkHalf>,
    /// Attached to every other; None: what times the rest counts these too.
    counting: Option<Vec<LinkHalf>>,
    /// Attached to every one at which more is looked at than that it is met.
    hitting: Vec<LinkHalf>,
    /// Attached to every one at which something ends as it returns.
    returning: Vec<LinkHalf>,
    /// Attached to every one at which a text is told.
    emitting: Vec<LinkHalf>,
    /// None: by uprobe_multi.
    pmu: Option<ProbePmu>,
}

struct LinkHalf {
    program: OwnedFd,
    attach_type: AttachType,
    returns: bool,
}

impl Programs {
    /// Loads what the tier needs for these sites.
    pub(super) fn load(object: &Object, tier: Tier, sites: &[Site]) -> Result<Self, AttachError> {
        let pair = match tier {
            Tier::PerfEvent => AttachType::None,
            Tier::Session | Tier::UprobeMulti => AttachType::UprobeMulti,
        };
        let timing: &[(&'static str, AttachType, bool)] = match tier {
            Tier::Session => &[("call_session", AttachType::UprobeSession, false)],
            // Returns first: a call that enters in between is ignored at its return. The other way round it would
            // stay in the table of calls in flight.
            Tier::UprobeMulti | Tier::PerfEvent => {
                &[("call_return", pair, true), ("call_enter", pair, false)]
            }
        };
        let is_hit = |site: &Site| site.hit.is_some();
        let any = |entry_only| {
            let mut sites = sites.iter().filter(|site| !is_hit(site));
            sites.any(|site| site.entry_only == entry_only)
        };
        // All programs of an object have a table in common (`stack.rs` of the programs), which the kernel keeps to one way to attach:
        // beside a session no other program can count. It can itself: whose program says no at the entry is not called at the
        // return, which the kernel then does not touch (`handler_chain` in kernel/events/uprobes.c).
        let returns = sites.iter().any(Site::ends_at_return);
        let by_session = tier == Tier::Session && (any(false) || returns);
        let load = |halves: &[(&'static str, AttachType, bool)], any: bool| {
            let halves = halves.iter().filter(|_| any);
            let halves = halves.map(|&(name, attach_type, returns)| {
                Ok(LinkHalf {
                    program: object.program(name, ProgramType::Kprobe, attach_type)?,
                    attach_type,
                    returns,
                })
            });
            halves.collect::<Result<Vec<_>, AttachError>>()
        };
        let pmu = match tier {
            Tier::PerfEvent => Some(ProbePmu::of_uprobes().map_err(AttachError::NoUprobePmu)?),
            Tier::Session | Tier::UprobeMulti => None,
        };
        Ok(Self {
            timing: load(timing, any(false) || by_session && any(true))?,
            counting: match by_session {
                true => None,
                false => Some(load(&[("call_count", pair, false)], any(true))?),
            },
            hitting: {
                let half = match by_session {
                    true => ("hit_session", AttachType::UprobeSession, false),
                    false => ("hit", pair, false),
                };
                let mut sites = sites.iter();
                let is_met = |site: &Site| is_hit(site) && !site.emits() && !site.ends_at_return();
                load(&[half], sites.any(is_met))?
            },
            returning: {
                let halves: &[(&'static str, AttachType, bool)] = match tier {
                    Tier::Session => &[("end_session", AttachType::UprobeSession, false)],
                    // As of calls.
                    Tier::UprobeMulti | Tier::PerfEvent => {
                        &[("end_return", pair, true), ("end_enter", pair, false)]
                    }
                };
                load(halves, returns)?
            },
            emitting: {
                let half = match by_session {
                    true => ("emit_session", AttachType::UprobeSession, false),
                    false => ("emit", pair, false),
                };
                load(&[half], sites.iter().any(Site::emits))?
            },
            pmu,
        })
    }

    /// Whether the end of a call is seen by who was attached at its beginning only: the kernel calls a session's program at the
    /// return for the attachment that it called it for at the entry (`return_consumer_find` in kernel/events/uprobes.c), and of
    /// pairs the program at the return for every one.
    pub(super) fn are_sessions(&self) -> bool {
        let mut halves = self.timing.iter();
        halves.any(|half| half.attach_type == AttachType::UprobeSession)
    }

    /// Whether each site has links of its own in any case.
    pub(super) fn attach_one_by_one(&self) -> bool {
        self.pmu.is_some()
    }

    /// Attaches to every site, or to none.
    pub(super) fn attach(
        &self,
        pid: u32,
        sites: &[(u16, &Site)],
        group: Group,
    ) -> Result<Links, AttachError> {
        // Asked now and not waited for within the attaching, which would hold what others need.
        for site in one_of_each_file(sites) {
            let answer = site.binary.ask();
            answer.map_err(|source| error(&[(0, site)], source))?;
        }
        let mut descriptors = Vec::new();
        let apart = |(_, site): &(u16, &Site)| site.entry_only && self.counting.is_some();
        let (hit, others): (Vec<_>, Vec<_>) =
            sites.iter().partition(|(_, site)| site.hit.is_some());
        let (emitting, hit): (Vec<_>, Vec<_>) = hit.into_iter().partition(|(_, site)| site.emits());
        let (returning, hit): (Vec<_>, Vec<_>) =
            hit.into_iter().partition(|(_, site)| site.ends_at_return());
        let (counted, timed): (Vec<_>, Vec<_>) = others.into_iter().partition(apart);
        let counting = self.counting.iter().flatten().map(|half| (half, &counted));
        let timing = self.timing.iter().map(|half| (half, &timed));
        let hitting = self.hitting.iter().map(|half| (half, &hit));
        let returning = self.returning.iter().map(|half| (half, &returning));
        let hitting = hitting.chain(returning);
        let emitters = self.emitting.iter().map(|half| (half, &emitting));
        for (half, sites) in timing.chain(counting).chain(hitting).chain(emitters) {
            match self.pmu {
                Some(pmu) => half.attach_each(pmu, pid, sites, group, &mut descriptors)?,
                None => half.attach_all(pid, sites, group, &mut descriptors)?,
            }
        }
        // Whoever leaves from here on has its memory traced already.
        if sys::lives_without_main_thread(pid) {
            return Err(AttachError::NoMainThread { process: pid });
        }
        Ok(Links::of(descriptors))
    }
}

/// One site in each of the files that they are in.
fn one_of_each_file<'a>(sites: &[(u16, &'a Site)]) -> impl Iterator<Item = &'a Site> {
    let files: BTreeMap<_, _> = sites
        .iter()
        .map(|(_, site)| (site.binary.attach_path(), *site))
        .collect();
    files.into_values()
}

impl LinkHalf {
    /// One link for all sites of a file (kernel 6.6 and later).
    fn attach_all(
        &self,
        pid: u32,
        sites: &[(u16, &Site)],
        group: Group,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(), AttachError> {
        for (path, sites) in by_file(sites) {
            let offsets: Vec<u64> = sites.iter().map(|(_, site)| site.offset).collect();
            let cookies = sites.iter().map(|(place, site)| site.cookie(group, *place));
            let cookies: Vec<u64> = cookies.collect();
            let semaphores = sites.iter().map(|(_, site)| site.semaphore.unwrap_or(0));
            let semaphores: Vec<u64> = semaphores.collect();
            let link = sys::c_path(&path).and_then(|path| {
                sys::link_multi(&MultiLink {
                    program: &self.program,
                    attach_type: self.attach_type,
                    returns: self.returns,
                    path: &path,
                    offsets: &offsets,
                    cookies: &cookies,
                    semaphores: &semaphores,
                    pid,
                })
            });
            descriptors.push(link.map_err(|source| error(&sites, source))?);
        }
        Ok(())
    }

    /// A perf event for each site.
    fn attach_each(
        &self,
        pmu: ProbePmu,
        pid: u32,
        sites: &[(u16, &Site)],
        group: Group,
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<(), AttachError> {
        for (place, site) in sites {
            let link = sys::c_path(&site.binary.attach_path()).and_then(|path| {
                let cookie = site.cookie(group, *place);
                sys::link_perf_event(&sys::PerfLink {
                    program: &self.program,
                    pmu,
                    returns: self.returns,
                    path: &path,
                    offset: site.offset,
                    semaphore: site.semaphore.unwrap_or(0),
                    cookie,
                    pid: Some(pid),
                })
            });
            descriptors.extend(link.map_err(|source| error(&[(*place, site)], source))?);
        }
        Ok(())
    }
}

/// Sites, each with its number among all.
type Numbered<'a> = Vec<(u16, &'a Site)>;

fn by_file<'a>(sites: &[(u16, &'a Site)]) -> BTreeMap<PathBuf, Numbered<'a>> {
    let mut files: BTreeMap<PathBuf, Numbered<'a>> = BTreeMap::new();
    for numbered in sites {
        files
            .entry(numbered.1.binary.attach_path())
            .or_default()
            .push(*numbered);
    }
    files
}

fn error(sites: &[(u16, &Site)], source: io::Error) -> AttachError {
    let path = sites
        .first()
        .map(|(_, site)| site.binary.path().to_path_buf());
    AttachError::Link {
        symbols: sites
            .iter()
            .map(|(_, site)| site.symbol.as_str())
            .collect::<Vec<_>>()
            .join(", "),
        path: path.unwrap_or_default(),
        source,
    }
}
