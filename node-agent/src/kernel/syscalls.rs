//! System calls of many processes, by one pair of programs for the node.
//!
//! Attached, they slow every system call of every process on the node: attach while somebody asks, and no longer.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use aya::{
    include_bytes_aligned,
    maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues, RingBuf, Stack},
    util::nr_cpus,
};
pub use ckb_probe_common::syscalls::{Met, SlowSyscall, SyscallLosses};
use ckb_probe_common::{
    BUCKETS,
    syscalls::{MAX_TARGETS, NO_ROW, NUMBERS, Order, Row, Table, of_error_key},
};
use ckb_probe_crds::Histogram;

use super::{
    AttachError, Links, ReadError,
    btf::{self, Types},
    maps::{GRACE, error},
    object::Object,
    pod::pod,
    tracing::Tracepoints,
};
use crate::observe::syscall_number;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/syscalls"));

/// System calls with a path, by which argument it is, counting from 1.
const PATHS: [(u8, &[&str]); 2] = [
    (
        1,
        &[
            "open",
            "stat",
            "lstat",
            "access",
            "truncate",
            "chdir",
            "rename",
            "mkdir",
            "rmdir",
            "creat",
            "link",
            "unlink",
            "symlink",
            "readlink",
            "chmod",
            "chown",
            "lchown",
            "utime",
            "mknod",
            "statfs",
            "chroot",
            "mount",
            "umount2",
            "execve",
            "utimes",
            "symlinkat",
        ],
    ),
    (
        2,
        &[
            "openat",
            "mkdirat",
            "mknodat",
            "fchownat",
            "futimesat",
            "newfstatat",
            "unlinkat",
            "renameat",
            "linkat",
            "readlinkat",
            "fchmodat",
            "faccessat",
            "utimensat",
            "renameat2",
            "execveat",
            "statx",
            "openat2",
            "faccessat2",
            "fchmodat2",
            "inotify_add_watch",
        ],
    ),
];

pod! {
    OrderValue(Order);
    TableValue(Table);
    RowValue(Row);
    MetValue(Met);
    LossesValue(SyscallLosses);
}

/// How much a tracer can hold, for all of its targets.
#[derive(Clone, Copy, Debug)]
pub struct SyscallSizes {
    /// System calls of targets that are told apart: 5 KiB on each CPU.
    pub rows: u32,
    /// Numbers of errors that are told apart, for each of those.
    pub errors: u32,
    /// Size of the ring buffer for slow calls: a power of two, and a multiple of the page size.
    pub ring_bytes: u32,
}

/// What is asked of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyscallOptions {
    /// The numbers that are wanted; none: all, also those that are not known here.
    pub wanted: Option<BTreeSet<u32>>,
    /// Calls that take at least so long are slow.
    pub slow_threshold_ns: u64,
    /// So many system calls are told apart; what comes then is counted as others.
    pub most_rows: u32,
}

impl Default for SyscallOptions {
    fn default() -> Self {
        Self {
            wanted: None,
            slow_threshold_ns: u64::MAX,
            most_rows: 96,
        }
    }
}

impl SyscallOptions {
    fn order(&self, other_row: u32) -> Order {
        let mut order = Order {
            gate: 0,
            epoch: 0,
            other_row,
            most_rows: self.most_rows,
            other_wanted: u32::from(self.wanted.is_none()),
            slow_threshold_ns: self.slow_threshold_ns,
            wanted: [0; NUMBERS / 64],
        };
        match &self.wanted {
            None => order.wanted = [u64::MAX; NUMBERS / 64],
            Some(wanted) => {
                for number in wanted {
                    if let Some(word) = order.wanted.get_mut((number / 64) as usize) {
                        *word |= 1 << (number % 64);
                    }
                }
            }
        }
        order
    }
}

/// Names a target of a tracer, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(u32);

/// What a target did since it was added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetReading {
    /// By number; those that were not told apart come last.
    pub calls: Vec<SyscallReading>,
}

/// One system call over all CPUs, since the target was added; `max_ns` since the reading before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallReading {
    /// Its number; none: all that were not told apart.
    pub number: Option<u32>,
    /// Nanoseconds spent in the calls.
    pub sum_ns: u64,
    /// Calls at or above the slow threshold.
    pub slow: u64,
    /// Longest call since the reading before.
    pub max_ns: u64,
    /// Calls by duration.
    pub histogram: Histogram,
    /// Calls that failed.
    pub failed: u64,
    /// How: calls by the error's number. Less than `failed` where numbers were lost.
    pub errors: Vec<(u32, u64)>,
}

/// What is traced of one process.
struct Target {
    process: u32,
    order: Order,
}

/// The programs, loaded once for a node, and their targets. Dropping it detaches.
pub struct SyscallTracer {
    // Declared first: links go before the maps that their programs write to.
    links: Option<Links>,
    tracepoints: Tracepoints,
    targets: BTreeMap<TargetId, Target>,
    /// The last number that a gate had.
    gates: u64,
    places: HashMap<MapData, u32, u32>,
    maybe: Array<MapData, u8>,
    orders: Array<MapData, OrderValue>,
    met: PerCpuArray<MapData, MetValue>,
    tables: Array<MapData, TableValue>,
    rows: PerCpuArray<MapData, RowValue>,
    free: Stack<MapData, u32>,
    errors: HashMap<MapData, u32, u64>,
    losses: PerCpuArray<MapData, LossesValue>,
    slow_calls: RingBuf<MapData>,
}

impl SyscallTracer {
    /// Loads the programs, and attaches nothing yet.
    pub fn load(sizes: &SyscallSizes) -> Result<Self, AttachError> {
        let types = Types::read()?;
        let fields = types.fields(&[("task_struct", "thread_info.status")])?;
        let mut object = Object::load_with(
            OBJECT,
            &[
                ("ROWS", sizes.rows.max(1)),
                ("FREE", sizes.rows.max(1)),
                ("ERRORS", sizes.errors.max(1)),
                ("SLOW_CALLS", sizes.ring_bytes),
            ],
            &[("FIELDS", &btf::as_bytes(&fields)), ("PATHS", &paths())],
        )?;
        // Ends first: a call that begins in between is ignored at its end.
        let tracepoints = Tracepoints::load(
            &object,
            &types,
            &[("syscall_exit", "sys_exit"), ("syscall_enter", "sys_enter")],
        )?;
        let mut tracer = Self {
            links: None,
            tracepoints,
            targets: BTreeMap::new(),
            gates: 0,
            places: object.take_map("TARGETS")?,
            maybe: object.take_map("MAYBE")?,
            orders: object.take_map("ORDERS")?,
            met: object.take_map("MET")?,
            tables: object.take_map("TABLES")?,
            rows: object.take_map("ROWS")?,
            free: object.take_map("FREE")?,
            errors: object.take_map("ERRORS")?,
            losses: object.take_map("LOSSES")?,
            slow_calls: object.take_map("SLOW_CALLS")?,
        };
        for row in (0..sizes.rows).rev() {
            tracer.free.push(row, 0).map_err(error("FREE"))?;
        }
        Ok(tracer)
    }

    /// Attaches to all system calls of the node. A call that is under way is not recorded.
    pub fn attach(&mut self) -> Result<(), AttachError> {
        if self.links.is_none() {
            // What began before an earlier detach was not seen to end.
            let open = |target: &Target| target.order.gate != 0;
            let ids = self.targets.iter().filter(|(_, target)| open(target));
            for id in ids.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.set_gate(id, true)?;
            }
            self.links = Some(self.tracepoints.attach()?);
        }
        Ok(())
    }

    /// Hands back the links: dropping them detaches.
    pub fn detach(&mut self) -> Option<Links> {
        self.links.take()
    }

    /// Whether the programs are attached.
    pub fn is_attached(&self) -> bool {
        self.links.is_some()
    }

    /// Makes a process a target, with its gate closed. It is one already: refused.
    pub fn add_target(
        &mut self,
        process: u32,
        options: &SyscallOptions,
    ) -> Result<TargetId, AttachError> {
        if self
            .targets
            .values()
            .any(|target| target.process == process)
        {
            return Err(AttachError::NoRoom("this one is traced already"));
        }
        let id = (0..MAX_TARGETS as u32)
            .map(TargetId)
            .find(|id| !self.targets.contains_key(id))
            .ok_or(AttachError::NoRoom("as many are traced as can be"))?;
        let other_row = match self.free.pop(0) {
            Ok(row) => row,
            Err(MapError::ElementNotFound) => {
                return Err(AttachError::NoRoom("all rows are taken"));
            }
            Err(source) => return Err(error("FREE")(source).into()),
        };
        let target = Target {
            process,
            order: options.order(other_row),
        };
        // From here on, whatever fails: what was taken is given back with the target.
        self.targets.insert(id, target);
        let added = self.install(id, process);
        if added.is_err() {
            let _ = self.remove_target(id);
        }
        added.map(|()| id).map_err(AttachError::from)
    }

    fn install(&mut self, id: TargetId, process: u32) -> Result<(), ReadError> {
        self.tables
            .set(id.0, TableValue(Table::EMPTY), 0)
            .map_err(error("TABLES"))?;
        self.set_met(id.0)?;
        self.order(id, |_| {})?;
        self.places
            .insert(process, id.0, 0)
            .map_err(error("TARGETS"))?;
        self.count_maybe(process)
    }

    /// Begins to record a target's calls, or ceases to. Calls that are under way are not recorded.
    pub fn set_gate(&mut self, id: TargetId, open: bool) -> Result<(), ReadError> {
        self.gates += 1;
        let gate = if open { self.gates } else { 0 };
        self.order(id, |order| order.gate = gate)
    }

    /// Changes the threshold of slow calls.
    pub fn set_slow_threshold(&mut self, id: TargetId, ns: u64) -> Result<(), ReadError> {
        self.order(id, |order| order.slow_threshold_ns = ns)
    }

    fn order(&mut self, id: TargetId, change: impl FnOnce(&mut Order)) -> Result<(), ReadError> {
        let Some(target) = self.targets.get_mut(&id) else {
            return Ok(());
        };
        change(&mut target.order);
        self.orders
            .set(id.0, OrderValue(target.order), 0)
            .map_err(error("ORDERS"))
    }

    /// What targets did, in the order in which they are asked for; nothing of one that was removed.
    pub fn read(&mut self, ids: &[TargetId]) -> Result<Vec<TargetReading>, ReadError> {
        for id in ids {
            self.order(*id, |order| order.epoch = order.epoch.wrapping_add(1))?;
        }
        thread::sleep(GRACE);
        let mut errors = BTreeMap::<u32, Vec<(u32, u64)>>::new();
        for entry in self.errors.iter() {
            let (key, count) = entry.map_err(error("ERRORS"))?;
            let (row, error) = of_error_key(key);
            errors.entry(row).or_default().push((error, count));
        }
        ids.iter()
            .map(|id| self.read_target(*id, &errors))
            .collect()
    }

    fn read_target(
        &self,
        id: TargetId,
        errors: &BTreeMap<u32, Vec<(u32, u64)>>,
    ) -> Result<TargetReading, ReadError> {
        let Some(Target { order, .. }) = self.targets.get(&id) else {
            return Ok(TargetReading::default());
        };
        let own = self.rows_of(id)?;
        let own = own.iter().map(|(number, row)| (Some(*number), *row));
        let calls = own.chain([(None, order.other_row)]).map(|(number, row)| {
            let mut reading = self.read_row(row, order.epoch.wrapping_sub(1))?;
            reading.number = number;
            reading.errors = errors.get(&row).cloned().unwrap_or_default();
            reading.errors.sort_unstable();
            Ok(reading)
        });
        let mut calls: Vec<SyscallReading> = calls.collect::<Result<_, ReadError>>()?;
        calls.retain(|call| call.histogram.count() > 0);
        Ok(TargetReading { calls })
    }

    /// The numbers that have a row of their own, with it.
    fn rows_of(&self, id: TargetId) -> Result<Vec<(u32, u32)>, ReadError> {
        let Some(Target { order, .. }) = self.targets.get(&id) else {
            return Ok(Vec::new());
        };
        let TableValue(table) = self.tables.get(&id.0, 0).map_err(error("TABLES"))?;
        Ok((0..)
            .zip(table.rows)
            .filter(|(_, row)| *row != NO_ROW && *row != order.other_row)
            .collect())
    }

    fn read_row(&self, row: u32, retired: u32) -> Result<SyscallReading, ReadError> {
        let mut reading = SyscallReading::default();
        for RowValue(cpu) in self.rows.get(&row, 0).map_err(error("ROWS"))?.iter() {
            reading.sum_ns += cpu.sum_ns;
            reading.failed += cpu.errors;
            reading.slow += cpu.slow;
            let maximum = ckb_probe_common::maximum_of(retired, cpu.maxima[retired as usize & 1]);
            reading.max_ns = reading.max_ns.max(maximum.unwrap_or_default());
            for (bucket, count) in (0..).zip(cpu.histogram.buckets) {
                reading.histogram.add(bucket, count);
            }
        }
        Ok(reading)
    }

    /// How many calls of a target met the programs, since it was added: cheap to ask often.
    pub fn hits(&self, id: TargetId) -> Result<Met, ReadError> {
        self.met_at(id.0)
    }

    /// How many calls of processes that are no targets met the programs, since the load.
    pub fn misses(&self) -> Result<u64, ReadError> {
        Ok(self.met_at(MAX_TARGETS as u32)?.left)
    }

    fn met_at(&self, place: u32) -> Result<Met, ReadError> {
        let cpus = self.met.get(&place, 0).map_err(error("MET"))?;
        Ok(cpus.iter().fold(Met::default(), |sum, MetValue(cpu)| Met {
            taken: sum.taken + cpu.taken,
            left: sum.left + cpu.left,
        }))
    }

    fn set_met(&mut self, place: u32) -> Result<(), ReadError> {
        let none = on_each_cpu(MetValue(Met::default())).map_err(error("MET"))?;
        self.met.set(place, none, 0).map_err(error("MET"))
    }

    /// What could not be recorded since the load, of all targets.
    pub fn losses(&self) -> Result<SyscallLosses, ReadError> {
        let cpus = self.losses.get(&0, 0).map_err(error("LOSSES"))?;
        Ok(cpus
            .iter()
            .fold(SyscallLosses::default(), |sum, LossesValue(cpu)| {
                SyscallLosses {
                    calls: sum.calls + cpu.calls,
                    events: sum.events + cpu.events,
                    error_numbers: sum.error_numbers + cpu.error_numbers,
                }
            }))
    }

    /// Takes the slow calls that wait in the ring buffer; those of targets that were removed are dropped.
    pub fn slow_calls(&mut self) -> Vec<(TargetId, SlowSyscall)> {
        let mut calls = Vec::new();
        while let Some(item) = self.slow_calls.next() {
            if item.len() < size_of::<SlowSyscall>() {
                continue;
            }
            // SAFETY: long enough, and a SlowSyscall is integers only; read_unaligned relies on no alignment.
            let call = unsafe { item.as_ptr().cast::<SlowSyscall>().read_unaligned() };
            let id = TargetId(call.target);
            let target = self.targets.get(&id);
            if target.is_some_and(|target| target.process == call.process) {
                calls.push((id, call));
            }
        }
        calls
    }

    /// Forgets a target: its rows are given back, empty.
    pub fn remove_target(&mut self, id: TargetId) -> Result<(), ReadError> {
        self.order(id, |order| order.gate = 0)?;
        let rows = self.rows_of(id)?;
        let Some(target) = self.targets.remove(&id) else {
            return Ok(());
        };
        // It may not have been put there.
        let _ = self.places.remove(&target.process);
        self.count_maybe(target.process)?;
        // A program that saw the gate open may still write.
        thread::sleep(GRACE);
        let rows = rows.into_iter().map(|(_, row)| row);
        let rows: BTreeSet<u32> = rows.chain([target.order.other_row]).collect();
        self.forget_errors(&rows)?;
        for row in rows {
            let empty = Row {
                sum_ns: 0,
                errors: 0,
                slow: 0,
                maxima: [0; 2],
                histogram: ckb_probe_common::Histogram {
                    buckets: [0; BUCKETS],
                },
            };
            let empty = on_each_cpu(RowValue(empty)).map_err(error("ROWS"))?;
            self.rows.set(row, empty, 0).map_err(error("ROWS"))?;
            self.free.push(row, 0).map_err(error("FREE"))?;
        }
        Ok(())
    }

    fn forget_errors(&mut self, rows: &BTreeSet<u32>) -> Result<(), ReadError> {
        let keys: Result<Vec<u32>, MapError> = self.errors.keys().collect();
        for key in keys.map_err(error("ERRORS"))? {
            if rows.contains(&of_error_key(key).0) {
                self.errors.remove(&key).map_err(error("ERRORS"))?;
            }
        }
        Ok(())
    }

    /// Tells the programs how many targets have numbers with the lower bits of this process's.
    fn count_maybe(&mut self, process: u32) -> Result<(), ReadError> {
        let place = process % self.maybe.len();
        let alike = |target: &&Target| target.process % self.maybe.len() == place;
        let count = self.targets.values().filter(alike).count() as u8;
        self.maybe.set(place, count, 0).map_err(error("MAYBE"))
    }
}

fn on_each_cpu<T: aya::Pod>(value: T) -> Result<PerCpuValues<T>, MapError> {
    let cpus = nr_cpus().map_err(|(_, source)| source)?;
    Ok(PerCpuValues::try_from(vec![value; cpus])?)
}

fn paths() -> [u8; NUMBERS] {
    let mut paths = [0; NUMBERS];
    for (argument, names) in PATHS {
        for number in names.iter().filter_map(|name| syscall_number(name)) {
            if let Some(path) = paths.get_mut(number as usize) {
                *path = argument;
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests;
