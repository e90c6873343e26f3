//! Requests to the node's disks. One object for the node: see `ebpf/programs/src/bin/block_io`.

mod diskstats;

use std::thread;

pub use ckb_probe_common::block_io::{SlowRequest, UNKNOWN};
use ckb_probe_common::{
    block_io::{
        Control, MAX_PAYERS, MAX_SLOTS, MAX_THRESHOLDS, Met, NO_SLOT, Owner, Slot, Times, Totals,
        Untold,
    },
    maximum_of,
};
use ckb_probe_figures::{Distribution, Histogram};

use super::{
    AttachError, Identity, Links, ReadError,
    btf::{self, Types},
    maps::GRACE,
    memory::Reservation,
    object::Object,
    programs,
    tracing::Tracepoints,
    typed::{Counts, PerCpu, SharedRing, Table, Values},
};
use ckb_probe_symbols::text;
use diskstats::{DiskstatsCheck, Ended};

/// In the order in which `request.rs` of the programs has them, and how many bytes it takes them to have.
const FIELDS: [(&str, &str, u32); 9] = [
    ("request", "q", 8),
    ("request", "cmd_flags", 4),
    ("request", "rq_flags", 4),
    ("request", "__data_len", 4),
    ("request", "start_time_ns", 8),
    ("request_queue", "disk", 8),
    ("gendisk", "major", 4),
    ("gendisk", "first_minor", 4),
    ("gendisk", "disk_name", 32),
];

/// The bits of two flags of a request before they were enumerators that the kernel tells of: Linux 5.15 to 6.11.
const RQF_FLUSH_SEQ: u32 = 4;
const RQF_IO_STAT: u32 = 13;

/// What is counted of all disks, once for the node.
pub struct Disks {
    // Declared first: links go before the maps that their programs write to.
    links: Option<Links>,
    tracepoints: Tracepoints,
    witness: DiskstatsCheck,
    tells_beginnings: bool,
    control: Control,
    control_map: Values<Control>,
    owners: Table<u32, Owner>,
    slots: Values<Slot>,
    slots_taken: Values<u32>,
    totals: Values<Totals>,
    times: Values<Times>,
    met: PerCpu<Met>,
    namespaces: Values<u32>,
    untold: Values<Untold>,
    slow_requests: SharedRing<SlowRequest>,
    _room: Option<Reservation>,
}

/// What one disk did of one sort for one owner, since the load; maxima since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskSlot {
    /// Its number: what was counted in a slot stays there.
    pub slot: u32,
    /// The disk's number.
    pub device: u32,
    /// The disk's name, as in /proc/diskstats; empty for those that had no room.
    pub disk: String,
    /// As in [`ckb_probe_common::block_io::Direction`].
    pub direction: u16,
    /// Whose requests: see [`Disks::own`]; 0 for others', [`UNKNOWN`] for those that nobody saw begin.
    pub owner: u16,
    /// Bytes.
    pub bytes: u64,
    /// By threshold: how many took as long.
    pub slow: [u64; MAX_THRESHOLDS],
    /// Nanoseconds before the device had them.
    pub queue: Distribution,
    /// Nanoseconds that it had them.
    pub in_device: Distribution,
    /// The longest of the one and the other.
    pub longest: (u64, u64),
}

/// What could not be recorded since the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisksLost {
    /// Requests that ended and were not seen: in no figure. The kernel runs a program not twice at a time on a CPU, and sometimes not
    /// at all; so this is known from /proc/diskstats as well: at least, and exactly once a disk is at rest.
    pub requests: u64,
    /// Requests that were counted without their times.
    pub times: u64,
}

impl Disks {
    /// Loads the programs, and attaches nothing yet.
    pub fn load() -> Result<Self, AttachError> {
        Self::load_as(&Types::read()?, None)
    }

    /// The same, as if the kernel told of the beginnings and ends of requests, or not.
    pub(super) fn load_as(types: &Types, tells: Option<bool>) -> Result<Self, AttachError> {
        let told = |name| types.typedef(name).is_some();
        let tells_beginnings = tells
            .unwrap_or_else(|| told("btf_trace_block_io_start") && told("btf_trace_block_io_done"));
        let bit = |name, before| 1 << types.enumerator(name).unwrap_or(before);
        let control = Control {
            generation: 0,
            epoch: 0,
            accounted: bit("__RQF_IO_STAT", RQF_IO_STAT),
            sequenced: bit("__RQF_FLUSH_SEQ", RQF_FLUSH_SEQ),
            since_ns: 0,
            least_threshold_ns: u64::MAX,
            thresholds_ns: [u64::MAX; MAX_THRESHOLDS],
        };
        let fields = types.fields(&FIELDS.map(|(structure, field, _)| (structure, field)))?;
        for (found, (structure, field, size)) in fields.iter().zip(FIELDS) {
            if found.size != size {
                return Err(AttachError::NoField { structure, field });
            }
        }
        let fields = btf::as_bytes(&fields);
        let identity = Identity::fields(types)?;
        let constants: [(&str, &[u8]); 2] = [("FIELDS", &fields), ("IDENTITY", &identity)];
        let mut object = Object::load_with(programs::named("block_io")?, &[], &constants)?;
        let programs: &[(&'static str, &'static str)] = if tells_beginnings {
            &[
                ("done", "block_io_done"),
                ("complete", "block_rq_complete"),
                ("merge", "block_rq_merge"),
                ("issue", "block_rq_issue"),
                ("begin", "block_io_start"),
            ]
        } else {
            &[
                ("complete_last", "block_rq_complete"),
                ("merge", "block_rq_merge"),
                ("issue_first", "block_rq_issue"),
                ("insert", "block_rq_insert"),
            ]
        };
        Ok(Self {
            links: None,
            tracepoints: Tracepoints::load(&object, types, programs)?,
            witness: DiskstatsCheck::default(),
            tells_beginnings,
            control,
            control_map: Values::take(&mut object, "CONTROL")?,
            owners: Table::take(&mut object, "OWNERS")?,
            slots: Values::take(&mut object, "SLOTS")?,
            slots_taken: Values::take(&mut object, "SLOTS_TAKEN")?,
            totals: Values::take(&mut object, "TOTALS")?,
            times: Values::take(&mut object, "TIMES")?,
            met: PerCpu::take(&mut object, "MET")?,
            namespaces: Values::take(&mut object, "NAMESPACES")?,
            untold: Values::take(&mut object, "UNTOLD")?,
            slow_requests: SharedRing::take(&mut object, "SLOW_REQUESTS")?,
            _room: object.take_room(),
        })
    }

    /// Whether the kernel says on whose behalf every request begins. Where it does not (before Linux 6.5), a request is taken
    /// to be of the process that puts it into a queue or gives it to the device.
    pub fn tells_beginnings(&self) -> bool {
        self.tells_beginnings
    }

    /// Begins to count; what it counted before stays.
    pub fn attach(&mut self) -> Result<(), AttachError> {
        self.order(|control| control.generation = control.generation.wrapping_add(1))?;
        self.links = Some(self.tracepoints.attach()?);
        self.order(|control| control.since_ns = monotonic_ns())?;
        let counted = self.ended()?;
        self.witness.begin(counted, diskstats::ended());
        Ok(())
    }

    /// Counts no more once what it hands back is dropped. What could not be recorded until now is what [`Self::lost`] said last.
    pub fn detach(&mut self) -> Option<Links> {
        self.witness.end();
        self.links.take()
    }

    /// From now on, counts the requests of a process apart, as this owner's, and has the namespace of this number pay for telling of
    /// slow ones. 0 is nobody's.
    pub fn own(&mut self, process: Identity, owner: u16, namespace: u32) -> Result<(), ReadError> {
        self.namespaces.set(owner.into(), namespace)?;
        let known = Owner {
            since_ns: process.since_ns,
            number: owner.into(),
        };
        self.owners.insert(process.number, known)
    }

    /// Counts them as everybody's again.
    pub fn disown(&mut self, process: u32) -> Result<(), ReadError> {
        self.owners.remove(process)
    }

    /// Sets from when on requests are slow; `u64::MAX` where there is no such threshold.
    pub fn set_thresholds(&mut self, nanos: [u64; MAX_THRESHOLDS]) -> Result<(), ReadError> {
        self.order(|control| {
            control.thresholds_ns = nanos;
            control.least_threshold_ns = nanos.into_iter().min().unwrap_or(u64::MAX);
        })
    }

    /// How many requests have ended.
    pub fn requests(&self) -> Result<u64, ReadError> {
        Ok(self.met()?.requests)
    }

    /// What could not be recorded, of these disks where it is known of which.
    pub fn lost(&mut self, wanted: impl Fn(&str) -> bool) -> Result<DisksLost, ReadError> {
        self.look()?;
        let met = self.met()?;
        let ends = ["block_io_done", "block_rq_complete"];
        let missed: u64 = ends.map(|end| self.tracepoints.missed(end)).iter().sum();
        Ok(DisksLost {
            requests: missed.max(self.witness.unseen(wanted)),
            times: met.untimed,
        })
    }

    /// What was counted.
    pub fn read(&mut self) -> Result<Vec<DiskSlot>, ReadError> {
        let retired = self.control.epoch;
        self.order(|control| control.epoch = retired.wrapping_add(1))?;
        thread::sleep(GRACE);
        self.counts(Some(retired))
    }

    /// What was counted, but for maxima.
    pub fn counted(&self) -> Result<Vec<DiskSlot>, ReadError> {
        self.counts(None)
    }

    /// Slow requests that were counted and not told since the load, by who would have paid for that: see `payer` of
    /// `ckb_probe_common::block_io`.
    pub fn untold(&self) -> Result<[u64; MAX_PAYERS as usize], ReadError> {
        Ok(self.untold.get(0)?.counts)
    }

    /// Takes the slow requests that wait.
    pub fn slow_requests(&mut self) -> Vec<SlowRequest> {
        let slow = self.slow_requests.drain(|request| request.payer);
        slow.into_iter().map(|(request, _)| request).collect()
    }

    /// What a slot is of, without its counts; None for one without a disk.
    pub fn slot(&self, slot: u32) -> Option<DiskSlot> {
        let known = self.slots.get(slot).ok()?;
        let of = DiskSlot::of(slot, &known);
        (!of.disk.is_empty()).then_some(of)
    }

    /// Holds what was counted against /proc/diskstats.
    fn look(&mut self) -> Result<(), ReadError> {
        if let Some(ended) = diskstats::ended() {
            self.witness.look(&ended, &self.ended()?);
        }
        Ok(())
    }

    /// The requests that were seen to end, by disk.
    fn ended(&self) -> Result<Ended, ReadError> {
        let mut ended = Ended::new();
        for slot in self
            .counted()?
            .into_iter()
            .filter(|slot| !slot.disk.is_empty())
        {
            *ended.entry(slot.disk).or_default() += slot.queue.count();
        }
        Ok(ended)
    }

    fn met(&self) -> Result<Met, ReadError> {
        self.met.sum(0)
    }

    fn order(&mut self, change: impl FnOnce(&mut Control)) -> Result<(), ReadError> {
        change(&mut self.control);
        self.control_map.set(0, self.control)
    }

    fn counts(&self, retired: Option<u32>) -> Result<Vec<DiskSlot>, ReadError> {
        let taken = self.slots_taken.get(0)?;
        let slots = (NO_SLOT + 1..=taken.min(MAX_SLOTS - 1)).chain([NO_SLOT]);
        let mut counted = Vec::new();
        for slot in slots {
            let known = self.slots.get(slot)?;
            let mut of = DiskSlot::of(slot, &known);
            // Its name is on its way: it is read the next time.
            if of.disk.is_empty() && slot != NO_SLOT {
                continue;
            }
            self.count(&mut of, retired)?;
            counted.push(of);
        }
        Ok(counted)
    }

    fn count(&self, of: &mut DiskSlot, retired: Option<u32>) -> Result<(), ReadError> {
        let totals = self.totals.get(of.slot)?;
        let times = self.times.get(of.slot)?;
        let distribution = |buckets: &[u64], sum| {
            let mut histogram = Histogram::default();
            for (bucket, count) in (0..).zip(buckets) {
                histogram.add(bucket, *count);
            }
            Distribution {
                histogram,
                sum,
                unmeasured: totals.unmeasured,
            }
        };
        of.bytes = totals.bytes;
        of.slow = totals.slow;
        of.queue = distribution(&times.queue, totals.queue_ns);
        of.in_device = distribution(&times.device, totals.device_ns);
        let longest = |maxima: [u64; 2]| {
            let longest = retired.and_then(|epoch| maximum_of(epoch, maxima[epoch as usize & 1]));
            longest.unwrap_or_default()
        };
        of.longest = (longest(totals.queue_maxima), longest(totals.device_maxima));
        Ok(())
    }
}

/// By the clock of `bpf_ktime_get_ns`.
pub(super) fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl Counts for Met {}

impl DiskSlot {
    fn of(slot: u32, known: &Slot) -> Self {
        Self {
            slot,
            device: known.key.device,
            disk: text::of_padded(&known.disk),
            direction: known.key.direction,
            owner: known.key.owner,
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
