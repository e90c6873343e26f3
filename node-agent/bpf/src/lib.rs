//! The kernel side of a target: one loaded BPF object for each process, its maps sized to what is measured
//! and freed with it. The one crate that names aya, makes bpf(2) calls and holds `unsafe`.
//!
//! All links are file descriptors of this process: however it ends, the kernel removes every probe.
//!
//! aya 0.14 knows neither uprobe_multi nor sessions, and the aya that does needs a newer compiler than the
//! project's. So [`object`] and [`links`] load and link by bpf(2); of aya serve its ELF parser and its maps.
#![allow(unsafe_code)]

mod attached;
mod attachment;
mod binary;
mod block_io;
mod btf;
mod calibrate;
mod confined;
pub mod counts;
mod error;
mod execs;
mod file_io;
mod floor;
pub mod health;
mod identity;
mod kernel_functions;
mod links;
mod maps;
pub mod memory;
mod nesting;
mod object;
mod own;

mod plan;
mod programs;
mod relocations;
pub mod spans;
pub mod stacks;
mod sys;
pub mod syscalls;
mod tcp;
mod tracing;
mod typed;
mod walk;

use std::{collections::BTreeSet, time::Duration};

use attached::{Attachable, Attached};
pub use binary::Binary;
pub use block_io::{DiskSlot, Disks, DisksLost, SlowRequest, UNKNOWN};
pub use calibrate::{Attempt, CalibratedTier, Calibration, CalibrationError, calibrate, try_tiers};
use ckb_probe_common::{Control, Gate, Group};
pub use ckb_probe_common::{
    FamilyArgument, FileIo, Files, MAX_CAUSE, Payload, SlowArguments, SlowCall, TEXT_BYTES,
    UNREADABLE,
    hits::{Operand, PAYLOAD_BYTES, Role, SITE, VALUES, Value, ValueKind, ZERO},
};
pub use confined::{ConfinedError, ConfinedReturn, run_child_if_asked};
pub use error::{AttachError, ReadError};
pub use execs::Execs;
pub use file_io::tells_file_io;
pub use floor::Floor;
pub use identity::Identity;
pub use kernel_functions::{KernelPlan, KernelSite, KernelTier, Trial, Tried};
pub use links::Links;
use links::Programs;
pub use maps::{
    FamilyReading, MapsReading, PayloadsLost, SeenCall, SeenPayload, SlotReading, ValueReading,
};
use maps::{Hits, Maps};
use object::Object;
pub use plan::{CallSizes, DEFAULT_RING_BYTES, KeptArguments, LookedAt, Plan, Site};
pub use relocations::forget_relocations;
use stacks::SlowStacks;
use strum::{EnumString, IntoStaticStr, VariantArray};
pub use syscalls::{
    Met, SlowSyscall, SyscallOptions, SyscallReading, SyscallSizes, SyscallTracer, TargetId,
    TargetReading,
};
pub use tcp::{Pass, Passes, Socket, SocketWatch};
pub use tracing::Traced;

/// The program.
const CALLS: &str = "calls";

/// How the kernel is asked to attach: the one thing that differs between kernels. The best is the least.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray, EnumString,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown_tier)]
pub enum Tier {
    /// One link for all functions of a file, one program for both ends of a call, and what it must remember kept by
    /// the kernel: kernel 6.13 and later.
    Session,
    /// One link for all functions of a file: kernel 6.6 and later. Detaches in milliseconds.
    UprobeMulti,
    /// A pair of perf events for each function: kernel 5.15 and later, needs CAP_SYS_ADMIN. Detaching takes the
    /// kernel a tenth of a second or two for each event.
    PerfEvent,
}

impl Tier {
    /// Every tier, the best first.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Whether the kernel waits after each site that it detaches, so that the last of them cost until then. By the other
    /// tiers they all go at first, and then it waits once.
    pub fn detaches_one_by_one(self) -> bool {
        self == Self::PerfEvent
    }

    /// The word in statuses and logs.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

fn unknown_tier(text: &str) -> String {
    let known: Vec<&str> = Tier::ALL.iter().map(|tier| tier.as_str()).collect();
    format!("no tier {text:?}; there are {}", known.join(", "))
}

/// A process's slots.
pub type Slots = BTreeSet<u8>;

/// What is loaded for one process, and the probes in place on it. Dropping it detaches them all.
pub struct Probes {
    // Declared first: links go before the maps that their programs write to.
    attached: Attached,
    maps: Maps,
    slow_stacks: Option<SlowStacks>,
}

/// Functions of a process.
struct Own {
    programs: Programs,
    pid: u32,
    sites: Vec<Site>,
}

impl Own {
    /// Those of these slots, each with its number among all.
    fn of<'a>(&'a self, slots: &'a Slots) -> impl Iterator<Item = (u16, &'a Site)> {
        let sites = (0..).zip(&self.sites);
        sites.filter(|(_, site)| slots.contains(&site.slot))
    }

    fn ends_at_return(&self, slot: u8) -> bool {
        let mut sites = self.sites.iter().filter(|site| site.slot == slot);
        sites.any(Site::ends_at_return)
    }

    fn cause(&self, slot: u8) -> u8 {
        let mut sites = self.sites.iter();
        sites
            .find(|site| site.slot == slot)
            .map_or(0, |site| site.cause)
    }
}

impl Attachable for Own {
    fn link(&self, slots: &Slots, group: Group) -> Result<Option<Links>, AttachError> {
        let sites: Vec<(u16, &Site)> = self.of(slots).collect();
        if sites.is_empty() {
            return Ok(None);
        }
        self.programs.attach(self.pid, &sites, group).map(Some)
    }

    /// What may take long has links of its own: it is nobody's loss then that another operation is let go of. So has what ends as a
    /// function returns, which nobody sees but who saw it begin.
    fn bundles(&self, slots: &Slots) -> Vec<Slots> {
        let alone = |slot: &u8| {
            self.programs.attach_one_by_one() || self.cause(*slot) > 0 || self.ends_at_return(*slot)
        };
        let (alone, together): (Slots, Slots) = slots.iter().partition(|slot| alone(slot));
        let alone = alone.into_iter().map(|slot| Slots::from([slot]));
        alone.chain([together]).collect()
    }

    /// Of a session the kernel does, but for what its arguments say, which are gone as it returns.
    fn remembers(&self) -> bool {
        let mut sites = self.sites.iter();
        !self.programs.are_sessions() || sites.any(|site| site.payload != Payload::Unknown)
    }

    fn outlives_its_links(&self, slot: u8) -> bool {
        let mut sites = self.sites.iter().filter(|site| site.slot == slot);
        !self.programs.are_sessions() || sites.any(Site::is_of_a_span)
    }
}

impl Probes {
    /// Loads an object for the process, and attaches nothing yet.
    pub fn load(tier: Tier, plan: &Plan) -> Result<Self, AttachError> {
        let sizes = plan.sizes();
        let slots = sizes.slots;
        // What a function costs at whose return something ends is a part of that, too.
        let returns = plan.sites.iter().any(Site::ends_at_return);
        let nests = (slots > 1 || returns) && !plan.inner_ns.is_empty();
        let nests = ("NESTS", vec![u8::from(nests)]);
        let mut constants = vec![nesting::constant(), file_io::constant(), nests];
        if sizes.stacks {
            constants.extend(stacks::constants());
        }
        let constants: Vec<(&'static str, &[u8])> = constants
            .iter()
            .map(|(name, bytes)| (*name, &bytes[..]))
            .collect();
        let program = programs::named(CALLS)?;
        let mut object = Object::load_with(program, &sizes.entries(), &constants)?;
        let slow_stacks = match sizes.stacks {
            true => Some(SlowStacks::of(&object)?),
            false => None,
        };
        let programs = Programs::load(&object, tier, &plan.sites)?;
        let mut control = Control::of(plan.pid, 0, slots, plan.trap_ns);
        for (inner_ns, known) in control.inner_ns.iter_mut().zip(&plan.inner_ns) {
            *inner_ns = *known;
        }
        for site in &plan.sites {
            control.stacks[usize::from(site.slot)] |= u8::from(site.stacks);
            control.files[usize::from(site.slot)] = site.files;
            if let Some(arguments) = site.arguments {
                control.texts[usize::from(site.slot)] = arguments.texts;
            }
            control.slow_thresholds_ns[usize::from(site.slot)] = site.slow_threshold_ns;
        }
        let places = Own {
            programs,
            pid: plan.pid,
            sites: plan.sites.clone(),
        };
        let causes = (0..slots).map(|slot| places.cause(slot as u8)).collect();
        let hits = Hits::take(&mut object, sizes, &plan.sites)?;
        let maps = Maps::take(&mut object, slots, control, causes, hits)?;
        Ok(Self {
            slow_stacks,
            ..Self::new(Box::new(places), maps)
        })
    }

    /// Attached to nothing yet.
    fn new(places: Box<dyn Attachable>, maps: Maps) -> Self {
        Self {
            attached: Attached::to_nothing(places),
            maps,
            slow_stacks: None,
        }
    }

    /// Attaches to the sites of these slots for good, in place of those that were so before, and hands back the links of those that
    /// are so no more: no call of a slot that is in both is missed or counted twice. Of a slot that is not, or whose links
    /// must be made anew, calls that do not end soon are counted, and not timed.
    pub fn attach(&mut self, slots: &Slots) -> Result<Option<Links>, AttachError> {
        self.attached.attach(slots, &mut self.maps)
    }

    /// Begins a slice: attaches to the sites of these slots, and then counts.
    pub fn open_slice(&mut self, slots: &Slots) -> Result<(), AttachError> {
        self.attached.open_slice(slots, &mut self.maps)
    }

    /// Ends a slice: counts no more, and hands back the links. Calls of the slice that have not ended are counted, and not timed.
    pub fn close_slice(&mut self) -> Result<Option<Links>, ReadError> {
        self.attached.close_slice(&mut self.maps)
    }

    /// Detaches from everything. What was handed back before is waited for, too, which somebody else detaches: programs are run
    /// until then. No longer than half a minute.
    pub fn detach(&mut self) {
        self.attached.detach();
    }

    /// Counts no more, whatever is attached.
    pub fn stop(&mut self) -> Result<(), ReadError> {
        self.maps
            .order(|control| control.gates.fill(Gate::default()))
    }

    /// About how many calls each slot has had while it was counted.
    pub fn hits(&self) -> Result<Vec<u64>, ReadError> {
        let met = self.maps.met()?;
        Ok(met.into_iter().map(|(hits, _)| hits).collect())
    }

    /// The same, and with it how many calls other processes have had that the programs were run for.
    pub fn met(&self) -> Result<Vec<(u64, u64)>, ReadError> {
        self.maps.met()
    }

    /// Frees the places of calls in flight whose threads have ended, in which they stay for as long as they are attached to all of the
    /// time, and counts the calls, and times none. `ended` says which of these threads have. It is looked once a second at most, and where
    /// nothing was found, once in 16 s.
    pub fn forget_ended(
        &mut self,
        ended: impl FnOnce(BTreeSet<u32>) -> BTreeSet<u32>,
    ) -> Result<(), ReadError> {
        match self.attached.remembers() {
            true => self.maps.forget_ended(ended),
            false => Ok(()),
        }
    }

    /// What was counted since the load; maxima since the last reading.
    pub fn read(&mut self) -> Result<MapsReading, ReadError> {
        let mut reading = self.maps.read()?;
        reading.calls_lost += self.attached.missed();
        Ok(reading)
    }

    /// Takes the slow calls that wait in the ring buffer. Their slots are those of operations or column families; see
    /// [`Self::family`].
    pub fn slow_calls(&mut self) -> Vec<SeenCall> {
        self.maps.slow_calls()
    }

    /// Takes the texts that were emitted and wait in their ring buffer.
    pub fn payloads(&mut self) -> Vec<SeenPayload> {
        self.maps.payloads()
    }

    /// The stacks of slow calls, if they are copied: handed over once.
    pub fn take_slow_stacks(&mut self) -> Option<SlowStacks> {
        self.slow_stacks.take()
    }

    /// By slot, where the stacks of slow calls are copied: how many were not.
    pub fn stacks_lost(&self) -> Result<Vec<u64>, ReadError> {
        self.maps.stacks_lost()
    }

    /// What it has cost to copy them.
    pub fn copying(&self) -> Result<Duration, ReadError> {
        self.maps.copying()
    }

    /// Its maps are about to be gone: what takes their place may have their memory.
    pub fn leave(&mut self) {
        self.maps.leave();
    }

    /// The value of an argument that a slot beyond those of operations and column families stands for.
    pub fn value(&self, slot: u32) -> Option<Value> {
        self.maps.value(slot)
    }

    /// The column family that a slot beyond the operations' stands for; without its reading.
    pub fn family(&self, slot: u32) -> Option<FamilyReading> {
        self.maps.family(slot)
    }
}

/// Has all threads of this program share their memory: those that search files would each keep what a search took.
pub fn share_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt has no preconditions.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives freed pages back, which the allocator would keep: once the kernel's type information was read, which takes megabytes, it
/// takes as much for what is to be kept.
pub fn release_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim has no preconditions.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod usdt_sites;
