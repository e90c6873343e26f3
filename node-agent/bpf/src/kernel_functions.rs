//! Functions of the kernel, called on behalf of one process: the programs are run for all, and record what one calls.
//!
//! They are named, not placed: nobody without more rights learns the kernel's addresses, and the kernel finds them itself.

use std::{
    collections::BTreeMap,
    ffi::CString,
    io,
    os::fd::OwnedFd,
    sync::OnceLock,
    time::{Duration, Instant},
};

use ckb_probe_common::{Control, Cookie, FamilyArgument, Group, MAX_OPERATIONS, Payload};
use nix::errno::Errno;
use strum::{IntoStaticStr, VariantArray};

use super::{
    AttachError, CALLS, Identity, Links, Probes, Slots,
    attached::Attachable,
    btf::Types,
    maps::Maps,
    object::Object,
    plan, programs,
    sys::{self, AttachType, ProbePmu, ProgramType},
};
use ckb_probe_symbols::text;

/// How the kernel is asked to attach to functions of its own. The best is the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", prefix = "kprobe-")]
pub enum KernelTier {
    /// One link and one program for both ends of a call: kernel 6.14 and later. Since 6.10 they are there, but up to 6.13 the
    /// kernel has room for no more than two calls in flight for each function and CPU, and says nothing of those that
    /// found none.
    Session,
    /// One link for all entries and one for all returns: kernel 5.18 and later. A call that finds no such room is counted and
    /// not timed.
    Multi,
    /// A pair of perf events for each function: kernel 5.15 and later, needs CAP_SYS_ADMIN where the kernel is strict with perf
    /// events. There is room for at least ten calls in flight for each function. Detaching is slow.
    PerfEvent,
}

impl KernelTier {
    /// Every tier, the best first.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Whether the kernel waits after each function that it detaches.
    pub fn detaches_one_by_one(self) -> bool {
        self == Self::PerfEvent
    }

    /// The word in messages.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Its programs: by name, and whether they are for returns. Returns first: a call that enters in between is ignored at
    /// its return.
    fn programs(self) -> (AttachType, &'static [(&'static str, bool)]) {
        const PAIR: &[(&str, bool)] = &[("kernel_return", true), ("kernel_enter", false)];
        match self {
            Self::Session => (AttachType::KprobeSession, &[("kernel_session", false)]),
            Self::Multi => (AttachType::KprobeMulti, PAIR),
            Self::PerfEvent => (AttachType::None, PAIR),
        }
    }
}

/// A function of the kernel, whose calls count in a slot of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelSite {
    /// The name of the function.
    pub function: String,
    /// Calls that take at least this long are slow.
    pub slow_threshold_ns: u64,
}

/// What to load for one process.
#[derive(Clone, Debug)]
pub struct KernelPlan {
    /// The process.
    pub process: Identity,
    /// The functions, by slot: at most 256.
    pub sites: Vec<KernelSite>,
    /// Size of the ring buffer for slow calls: a power of two, and a multiple of the page size.
    pub ring_bytes: u32,
    /// Nanoseconds that the probes add to every call as the programs see it.
    pub trap_ns: u64,
}

impl Probes {
    /// Loads an object for a process and functions of the kernel, and attaches nothing yet.
    pub fn load_kernel(tier: KernelTier, plan: &KernelPlan) -> Result<Self, AttachError> {
        let (programs, maps) = load(tier, plan)?;
        let names = names(plan.sites.iter().map(|site| &*site.function))?;
        Ok(Self::new(Box::new(Functions { programs, names }), maps))
    }
}

fn load(tier: KernelTier, plan: &KernelPlan) -> Result<(Programs, Maps), AttachError> {
    let slots = plan.sites.len().clamp(1, MAX_OPERATIONS) as u32;
    let Identity { number, since_ns } = plan.process;
    let mut control = Control::of(number, since_ns, slots, plan.trap_ns);
    for (threshold, site) in control.slow_thresholds_ns.iter_mut().zip(&plan.sites) {
        *threshold = site.slow_threshold_ns;
    }
    let identity = Identity::fields(&Types::read()?)?;
    let mut object = Object::load_with(
        programs::named(CALLS)?,
        &[
            ("TOTALS", slots),
            ("HISTOGRAMS", slots),
            ("MORE_CALLS", plan::MORE_CALLS),
            ("SLOW_CALLS", plan.ring_bytes),
        ],
        &[("IDENTITY", &identity)],
    )?;
    let programs = Programs::load(&object, tier)?;
    let maps = Maps::take(&mut object, slots, control, Vec::new(), None)?;
    Ok((programs, maps))
}

/// What became of functions that were attached to and let go again, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial(pub BTreeMap<String, Tried>);

/// What became of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Whether the kernel lets it be probed.
    pub admitted: bool,
    /// How many calls of it there were meanwhile, by whomever.
    pub calls: u64,
    /// From before it was attached until it was gone; nothing of one that the kernel does not let be probed.
    pub lasted: Duration,
    /// For how long it was attached for each that came and went: of that, where the kernel waits after each, its own part.
    pub edge: Duration,
}

impl Trial {
    /// Attaches to these functions. The kernel says of all together that it takes them or not, so they are halved until it is known which.
    pub fn of(tier: KernelTier, functions: &[&str]) -> Result<Self, AttachError> {
        let mut all = BTreeMap::new();
        for some in functions.chunks(MAX_OPERATIONS) {
            all.extend(Self::of_some(tier, some)?);
        }
        Ok(Self(all))
    }

    /// How many calls there were of all of them.
    pub fn calls(&self) -> u64 {
        self.0.values().map(|tried| tried.calls).sum()
    }

    /// The same of as many as have a slot each.
    fn of_some(tier: KernelTier, functions: &[&str]) -> Result<Vec<(String, Tried)>, AttachError> {
        let site = |function: &&str| KernelSite {
            function: (*function).to_string(),
            slow_threshold_ns: u64::MAX,
        };
        let nobody = KernelPlan {
            process: Identity::nobody(),
            sites: functions.iter().map(site).collect(),
            ring_bytes: super::DEFAULT_RING_BYTES,
            trap_ns: 0,
        };
        let (programs, maps) = load(tier, &nobody)?;
        let names = names(functions.iter().copied())?;
        let slotted: Vec<(u8, &CString)> = (0..=u8::MAX).zip(&names).collect();
        let untried = Tried {
            admitted: true,
            calls: 0,
            lasted: Duration::ZERO,
            edge: Duration::ZERO,
        };
        let mut tried = vec![untried; names.len()];
        let mut left = Vec::from([std::ops::Range {
            start: 0,
            end: names.len(),
        }]);
        while let Some(range) = left.pop() {
            let (some, began) = (&slotted[range.clone()], Instant::now());
            match programs.link(some, Group::First) {
                // Where it refuses one, nothing is counted: returns are attached first, and are refused as entries are.
                Ok(links) => {
                    // Until they are gone, they are run.
                    drop(links);
                    let lasted = began.elapsed();
                    let edge = match tier.detaches_one_by_one() {
                        true => lasted / range.len().max(1) as u32,
                        false => lasted,
                    };
                    for one in &mut tried[range] {
                        (one.lasted, one.edge) = (lasted, edge);
                    }
                }
                Err(source) if !is_about_functions(&source) => return Err(error(some, source)),
                Err(_) if range.len() > 1 => {
                    let middle = range.start + range.len() / 2;
                    left.extend([middle..range.end, range.start..middle]);
                }
                Err(_) => tried[range.start].admitted = false,
            }
        }
        // Where it cannot be read, nobody knows.
        let met = maps.met().unwrap_or_default();
        for (tried, (hits, others)) in tried.iter_mut().zip(met) {
            tried.calls = hits + others;
        }
        let names = functions.iter().map(ToString::to_string);
        Ok(names.zip(tried).collect())
    }
}

/// Whether this is what the kernel says of a function that it does not know or that cannot be probed.
fn is_about_functions(error: &io::Error) -> bool {
    let number = error.raw_os_error().map(Errno::from_raw);
    matches!(
        number,
        Some(Errno::ESRCH | Errno::ENOENT | Errno::EINVAL | Errno::EADDRNOTAVAIL)
    )
}

/// Whether this kernel keeps calls in flight in a pool of a fixed size, and not with their threads.
fn has_little_room() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let types = Types::read();
        types.is_ok_and(|types| types.field("fprobe", "rethook").is_some())
    })
}

/// What sees calls by a tier.
struct Programs {
    attach_type: AttachType,
    parts: Vec<(OwnedFd, bool)>,
    /// None: by one link for all functions.
    pmu: Option<ProbePmu>,
}

impl Programs {
    fn load(object: &Object, tier: KernelTier) -> Result<Self, AttachError> {
        if tier == KernelTier::Session && has_little_room() {
            return Err(AttachError::NoRoomForSessions);
        }
        let (attach_type, parts) = tier.programs();
        let parts = parts.iter().map(|&(name, returns)| {
            let program = object.program(name, ProgramType::Kprobe, attach_type)?;
            Ok((program, returns))
        });
        Ok(Self {
            attach_type,
            parts: parts.collect::<Result<_, AttachError>>()?,
            pmu: match tier {
                KernelTier::PerfEvent => {
                    Some(ProbePmu::of_kprobes().map_err(AttachError::NoKprobePmu)?)
                }
                KernelTier::Session | KernelTier::Multi => None,
            },
        })
    }

    /// Attaches to all of these functions, each with its slot, or to none.
    fn link(&self, functions: &[(u8, &CString)], group: Group) -> io::Result<Links> {
        let cookie = |slot| Cookie::new(slot, Payload::Unknown, FamilyArgument::None, 0, group).0;
        if let Some(pmu) = self.pmu {
            let mut descriptors = Vec::new();
            for (program, returns) in &self.parts {
                for (slot, name) in functions {
                    let cookie = cookie(*slot);
                    descriptors.extend(sys::link_perf_event(&sys::PerfLink {
                        program,
                        pmu,
                        returns: *returns,
                        path: name,
                        offset: 0,
                        semaphore: 0,
                        cookie,
                        pid: None,
                    })?);
                }
            }
            return Ok(Links::of(descriptors));
        }
        let names: Vec<&CString> = functions.iter().map(|(_, name)| *name).collect();
        let cookies: Vec<u64> = functions.iter().map(|(slot, _)| cookie(*slot)).collect();
        let links = self.parts.iter().map(|(program, returns)| {
            sys::link_kernel_functions(program, self.attach_type, *returns, &names, &cookies)
        });
        Ok(Links::of(links.collect::<io::Result<_>>()?))
    }
}

/// Functions of the kernel, by slot.
struct Functions {
    programs: Programs,
    names: Vec<CString>,
}

impl Attachable for Functions {
    fn link(&self, slots: &Slots, group: Group) -> Result<Option<Links>, AttachError> {
        let functions: Vec<(u8, &CString)> = slots
            .iter()
            .filter_map(|slot| Some((*slot, self.names.get(usize::from(*slot))?)))
            .collect();
        if functions.is_empty() {
            return Ok(None);
        }
        let links = self.programs.link(&functions, group);
        links.map(Some).map_err(|source| error(&functions, source))
    }

    fn bundles(&self, slots: &Slots) -> Vec<Slots> {
        match self.programs.pmu {
            Some(_) => slots.iter().map(|slot| Slots::from([*slot])).collect(),
            None => vec![slots.clone()],
        }
    }

    /// What an interrupt calls while a program runs on its CPU, or a program calls itself (`bpf_prog_active`): of whichever process.
    fn missed(&self) -> u64 {
        let programs = self.programs.parts.iter();
        let missed = programs.map(|(program, _)| sys::missed_runs(program).unwrap_or_default());
        // An entry that was missed has no return, and a return that was has an entry: each of them is a call.
        missed.sum()
    }

    /// Of a session the kernel does.
    fn remembers(&self) -> bool {
        self.programs.attach_type != AttachType::KprobeSession
    }

    /// Of what was not attached at a call's beginning, the kernel runs nothing at its end.
    fn outlives_its_links(&self, _: u8) -> bool {
        false
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<CString>, AttachError> {
    let name = |name: &str| {
        CString::new(name).map_err(|_| AttachError::KernelLink {
            functions: name.to_string(),
            source: io::ErrorKind::InvalidInput.into(),
        })
    };
    names.map(name).collect()
}

fn error(functions: &[(u8, &CString)], source: io::Error) -> AttachError {
    let names = functions.iter().map(|(_, name)| text::of(name.as_bytes()));
    AttachError::KernelLink {
        functions: names.collect::<Vec<_>>().join(", "),
        source,
    }
}
