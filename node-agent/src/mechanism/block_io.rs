//! Requests to the node's disks, by tracepoints.
//!
//! What disks do is the same whoever looks. So there is one set of programs and of counters for the node, attached while anybody
//! counts, and each target has a view of it: what was added while its own gate was open. What another view does never shows.

mod devices;
mod shared;

use std::{collections::BTreeMap, time::Duration};

use ckb_probe_crds::{Figures, Name, Reason};
use devices::{Head, Resolved, is_wanted, resolve};
use k8s_openapi::jiff::Timestamp;
use shared::NodeDisks;

use super::{
    Accepted, BeginContext, Breakdown, Coverage, Detail, Event, Lost, Mechanism, OneBegun, Reading,
    Refusal, RowId, RowReading, Single, Subscription, identity, reason_of,
    shared::{Gate, Handle, OneGroup, Shared},
};
use crate::{
    kernel::{AttachError, DiskSlot, Links, ReadError, SlowRequest, UNKNOWN},
    observe, text,
};

/// What a kind wants of the disks.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockIoConfig {
    /// What is measured, in the kind's words.
    pub measures: Measures,
    /// Of which disks, volumes or partitions; empty: of all disks.
    pub disks: Vec<String>,
    /// Requests that take at least this long are slow.
    pub slow_threshold_ns: u64,
}

/// The names of what is measured of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measures {
    /// How long the device had it.
    pub device: Name,
    /// The longest of that.
    pub device_longest: Name,
    /// How long it waited before.
    pub queue: Name,
    /// The longest of that.
    pub queue_longest: Name,
    /// Bytes.
    pub bytes: Name,
    /// How many were slow.
    pub slow: Name,
}

/// What a request costs whoever is on the CPU then: the programs at its four tracepoints took 1.41 us by the kernel's own count
/// (`kernel.bpf_stats_enabled`, 60,000 reads of a loop device on Linux 6.18), which leaves out the way to them.
const COST: Duration = Duration::from_nanos(1500);

/// A slow request of somebody else's is told where it takes at least this long: what is shorter tells more of others than of the disk.
const OTHERS_SLOW_NS: u64 = 1_000_000;

/// The parts of a row.
const OWN: &str = "own";
const OTHER: &str = "other";
/// Of what began before it was looked at: before a slice, or before the kernel's programs were attached.
const BEGAN_BEFORE: &str = "unknown";

/// In the order of [`ckb_probe_common::block_io::Direction`].
const DIRECTIONS: [&str; 4] = ["read", "write", "discard", "flush"];

/// One target's view of the disks.
struct Disks {
    ask: BlockIoConfig,
    handle: Handle<NodeDisks>,
    /// Which of the thresholds is its own.
    threshold: usize,
    /// Whose requests are its own.
    owner: u16,
    /// Whether requests of others are told with what they are about.
    tells_others: bool,
    gate: Gate,
    /// Up to the last time that its gate was closed.
    closed: Counts,
    /// As its gate was opened.
    opened: Counts,
    booted: Timestamp,
}

/// What was counted, by slot.
#[derive(Clone, Debug, Default)]
struct Counts(BTreeMap<u32, Figures>);

impl Counts {
    /// What was added since then.
    fn since(&self, earlier: &Self) -> Self {
        let none = Figures::default();
        let slots = self.0.iter().map(|(slot, figures)| {
            let before = earlier.0.get(slot).unwrap_or(&none);
            (*slot, figures.since(before))
        });
        Self(slots.collect())
    }

    fn add(&mut self, other: &Self) {
        for (slot, figures) in &other.0 {
            self.0.entry(*slot).or_default().merge(figures);
        }
    }
}

impl Single for BlockIoConfig {
    fn begin_one(&self, context: BeginContext<'_>) -> Result<OneBegun, Refusal> {
        let resolved = self.resolved()?;
        let group = || NodeDisks::load().map(Shared::of);
        let shared = context.node.shared(group).map_err(refusal)?;
        let tells_others = context.node.policy.tells_others;
        let (process, namespace) = (identity(context.process), context.namespace);
        let handle = Handle::to(shared, |program| {
            let view = program.view(&resolved.disks, self.slow_threshold_ns, process, namespace)?;
            view.ok_or_else(|| {
                Refusal::new(
                    Reason::AttachFailed,
                    "there is no room for another value of slowThreshold for blockIo: a node has eight, of which one namespace has no more than it \
                     leaves to others: take one that the probes of this namespace have already",
                )
            })
        })?;
        let own = handle.with(|program, view| {
            let tells_beginnings = program.disks.tells_beginnings();
            (
                view.threshold,
                view.owner,
                sentence(view.owner, tells_beginnings),
            )
        });
        let (threshold, owner, sentence) = own.unwrap_or_default();
        let disks = Disks {
            ask: Self {
                disks: resolved.disks,
                ..self.clone()
            },
            handle,
            threshold,
            owner,
            tells_others,
            gate: Gate::of(context.first),
            closed: Counts::default(),
            opened: Counts::default(),
            booted: observe::boot_time(),
        };
        let opened = Accepted {
            subscriptions: vec![Subscription {
                group: context.first,
                row: None,
                parts: if owner > 0 {
                    Breakdown::All
                } else {
                    Breakdown::None
                },
                ..Subscription::default()
            }],
            coverage: Coverage {
                sentence: sentence + &resolved.coverage.sentence,
                ..resolved.coverage
            },
        };
        Ok((Box::new(disks), opened))
    }
}

impl BlockIoConfig {
    /// The disks that are asked for, by what the kernel lists now. Where it lists nothing that can be read, they are taken as given.
    fn resolved(&self) -> Result<Resolved, Refusal> {
        match observe::block_devices() {
            Ok(there) if !self.disks.is_empty() => resolve(&self.disks, &there),
            _ => Ok(Resolved {
                disks: self.disks.clone(),
                coverage: Coverage::default(),
            }),
        }
    }
}

/// A kernel that does not have what the programs need is no fault of the target's.
fn refusal(error: AttachError) -> Refusal {
    Refusal::new(reason_of(&error), error.to_string())
}

/// Whose figures they are.
fn sentence(owner: u16, tells_beginnings: bool) -> String {
    let whose = if owner == 0 {
        "too many processes of this node, or of this namespace on it, are probed to tell whose a request is"
    } else if tells_beginnings {
        "own are the requests that a thread of the target asked for; what the kernel writes later on its behalf is other"
    } else {
        "own are the requests that a thread of the target queued; this kernel does not say of all whose they are"
    };
    format!("; the figures are of the node's disks: {whose}")
}

impl Disks {
    fn is_wanted(&self, slot: &DiskSlot) -> bool {
        is_wanted(&self.ask.disks, &slot.disk)
    }

    /// Whether more is told of these requests than how many there are, and how long they take.
    fn tells_all_of(&self, slot: &DiskSlot) -> bool {
        self.tells_others || self.owner > 0 && slot.owner == self.owner
    }

    fn figures(&self, slot: &DiskSlot) -> Figures {
        let names = &self.ask.measures;
        let mut figures = Figures::default();
        let slow = slot.slow.get(self.threshold).copied().unwrap_or_default();
        figures.sums.insert(names.slow.clone(), slow);
        if self.tells_all_of(slot) {
            figures.sums.insert(names.bytes.clone(), slot.bytes);
        }
        let distributions = &mut figures.distributions;
        distributions.insert(names.device.clone(), slot.in_device.clone());
        distributions.insert(names.queue.clone(), slot.queue.clone());
        figures
    }

    fn counts(&self, slots: &[DiskSlot]) -> Counts {
        let wanted = slots.iter().filter(|slot| self.is_wanted(slot));
        Counts(wanted.map(|slot| (slot.slot, self.figures(slot))).collect())
    }

    /// What was counted up to now, but for the longest times.
    fn counted(&self) -> Result<Counts, ReadError> {
        let slots = self.handle.lock().program.disks.counted()?;
        Ok(self.counts(&slots))
    }

    /// What was counted, with the longest times since it was last asked.
    fn slots(&self) -> Result<Vec<DiskSlot>, ReadError> {
        let mut slots = {
            let mut shared = self.handle.lock();
            let slots = shared.program.disks.read()?;
            shared.subscribers().for_each(|view| view.see(&slots));
            slots
        };
        self.handle.with(|_, view| view.take_longest(&mut slots));
        Ok(slots)
    }

    /// What stands for a slot's row and part.
    fn place(&self, slot: &DiskSlot) -> (Option<RowId>, Option<RowId>) {
        let direction = DIRECTIONS.get(usize::from(slot.direction));
        let (place, disk) = match Head::of(&slot.disk) {
            Some(head) => (head.place(), head.name()),
            None => (u64::from(slot.device), slot.disk.clone()),
        };
        let row = (!slot.disk.is_empty()).then(|| RowId {
            place: place << 8 | u64::from(slot.direction),
            number: u64::from(slot.device),
            text: format!("{disk} {}", direction.copied().unwrap_or_default()),
        });
        let (place, name) = match slot.owner {
            owner if owner == self.owner => (1, OWN),
            UNKNOWN => (2, BEGAN_BEFORE),
            _ => (0, OTHER),
        };
        let part = (self.owner > 0).then(|| RowId {
            place,
            number: 0,
            text: name.to_string(),
        });
        (row, part)
    }

    fn event(&self, slow: &SlowRequest) -> Option<Event> {
        let slot = self.handle.lock().program.disks.slot(slow.slot)?;
        let tells_all = self.tells_all_of(&slot);
        let threshold = match tells_all {
            true => self.ask.slow_threshold_ns,
            false => self.ask.slow_threshold_ns.max(OTHERS_SLOW_NS),
        };
        if slow.duration_ns < threshold || !self.is_wanted(&slot) {
            return None;
        }
        let mut details = vec![("duration", Detail::Nanoseconds(slow.duration_ns))];
        // Its beginning was not seen.
        if slow.thread > 0 && tells_all {
            details.push(("bytes", Detail::Bytes(u64::from(slow.bytes))));
        }
        if slow.device_ns > 0 {
            let queue = slow.duration_ns.saturating_sub(slow.device_ns);
            details.push(("queue", Detail::Portion(queue)));
            details.push(("device", Detail::Portion(slow.device_ns)));
        }
        let (row, part) = self.place(&slot);
        Some(Event {
            time: observe::since_boot(self.booted, slow.time_ns),
            group: self.gate.group(),
            row,
            part,
            thread: if tells_all { slow.thread } else { 0 },
            thread_name: match tells_all {
                true => text::of_padded(&slow.thread_name),
                false => String::new(),
            },
            weight: slow.duration_ns,
            details,
        })
    }
}

impl OneGroup for Disks {
    fn gate(&mut self) -> &mut Gate {
        &mut self.gate
    }

    /// What is counted between the attaching and the reading is nobody's.
    fn open(&mut self) -> Result<(), AttachError> {
        self.handle.open()?;
        match self.counted() {
            Ok(counted) => self.opened = counted,
            Err(error) => {
                drop(self.handle.close()?);
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        let counted = self.counted();
        let links = self.handle.close()?;
        self.closed.add(&counted?.since(&self.opened));
        Ok(links)
    }
}

impl Mechanism for Disks {
    fn costs(&self) -> &[Option<Duration>] {
        &[Some(COST)]
    }

    fn one_group(&mut self) -> Option<&mut dyn OneGroup> {
        Some(self)
    }

    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        Ok(vec![self.handle.charged()?])
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let slots = self.slots()?;
        let mut counts = self.closed.clone();
        if self.gate.is_open() {
            counts.add(&self.counts(&slots).since(&self.opened));
        }
        let names = &self.ask.measures;
        let mut rows = Vec::new();
        for slot in &slots {
            let Some(figures) = counts.0.get(&slot.slot) else {
                continue;
            };
            if figures.is_idle() {
                continue;
            }
            let mut figures = figures.clone();
            let (queue, device) = slot.longest;
            figures.maxima.insert(names.queue_longest.clone(), queue);
            figures.maxima.insert(names.device_longest.clone(), device);
            let (row, part) = self.place(slot);
            // What found no room has no disk: it counts as the others.
            let row = Some(row.unwrap_or_else(|| RowId {
                place: u64::MAX,
                number: 0,
                text: ckb_probe_crds::report::OTHER.to_string(),
            }));
            rows.push(RowReading {
                row,
                part,
                figures,
                folded: 0,
            });
        }
        Ok(Reading {
            groups: [(self.gate.group(), rows)].into(),
            lost: vec![Lost {
                groups: [self.gate.group()].into(),
                counts: self.handle.lost()?,
            }],
            ..Reading::default()
        })
    }

    fn events(&mut self) -> Vec<Event> {
        // The wall clock may have been set since.
        self.booted = observe::boot_time();
        let slow = self.handle.events();
        slow.iter().filter_map(|one| self.event(one)).collect()
    }
}
