//! System calls of many processes, by one pair of programs for the node.
//!
//! Attached, they slow every system call of every process on the node: attach while somebody asks, and no longer.

mod options;
mod reading;

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use aya::maps::{MapData, Stack};
pub use ckb_probe_common::syscalls::{MAX_ERROR, Met, SlowSyscall};
use ckb_probe_common::{
    BUCKETS,
    syscalls::{self, CELLS, Cell, MAX_TARGETS, NOBODY, Order, SEVERAL, SyscallRow, of_error_key},
};
use ckb_probe_symbols::Machine;
use options::paths;
pub use options::{OF_PROBES, SyscallOptions, SyscallSizes};
pub use reading::{SyscallReading, TargetReading};

use super::{
    AttachError, Identity, Links, ReadError,
    btf::{self, Types},
    maps::GRACE,
    memory::Reservation,
    object::Object,
    programs,
    tracing::Tracepoints,
    typed::{PerCpu, SharedRing, Table, Values, error},
};

/// Names a target of a tracer, until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(u32);

/// What is traced of one process.
struct Target {
    process: u32,
    order: Order,
    /// By row: calls that began under a gate of before and had not ended as it closed.
    cut: BTreeMap<u32, u64>,
    /// A gate has closed since that was looked at.
    is_cut: bool,
}

/// The programs, loaded once for a node, and their targets. Dropping it detaches.
pub struct SyscallTracer {
    // Declared first: links go before the maps that their programs write to.
    links: Option<Links>,
    tracepoints: Tracepoints,
    targets: BTreeMap<TargetId, Target>,
    /// From here on each place has a row for what has none of its own, which nobody else can take.
    others_from: u32,
    /// The last number that a gate had.
    gates: u64,
    places: Table<u32, u32>,
    finder: Values<Cell>,
    orders: Values<Order>,
    met: PerCpu<Met>,
    tables: Values<syscalls::Table>,
    rows: PerCpu<SyscallRow>,
    free: Stack<MapData, u32>,
    errors: Table<u32, u64>,
    slow_calls: SharedRing<SlowSyscall>,
    _room: Option<Reservation>,
}

/// What of a thread says whether it is one of a 32-bit program, or in a system call of one.
const OF_32_BITS: &str = match Machine::NATIVE {
    Machine::X86_64 => "thread_info.status",
    Machine::Aarch64 => "thread_info.flags",
};

impl SyscallTracer {
    /// Loads the programs, and attaches nothing yet.
    pub fn load(sizes: &SyscallSizes) -> Result<Self, AttachError> {
        let types = Types::read()?;
        let fields = types.fields(&[
            ("task_struct", OF_32_BITS),
            ("task_struct", "files"),
            ("files_struct", "fdt"),
            ("fdtable", "max_fds"),
            ("fdtable", "fd"),
            ("file", "f_inode"),
            ("inode", "i_ino"),
            ("file", "f_path.dentry"),
            ("dentry", "d_name.name"),
            ("k_sigaction", "sa.sa_handler"),
            ("k_sigaction", "sa.sa_flags"),
        ])?;
        let mut object = Object::load_with(
            programs::named("syscalls")?,
            &[
                ("ROWS", sizes.rows + MAX_TARGETS as u32),
                ("FREE", sizes.rows.max(1)),
                ("ERRORS", sizes.errors.max(1)),
                ("SLOW_CALLS", sizes.ring_bytes),
            ],
            &[
                ("FIELDS", &btf::as_bytes(&fields)),
                ("IDENTITY", &Identity::fields(&types)?),
                ("PATHS", &paths()),
            ],
        )?;
        // Ends first: a call that begins in between is ignored at its end.
        let tracepoints = Tracepoints::load(
            &object,
            &types,
            &[
                ("signal_delivered", "signal_deliver"),
                ("syscall_exit", "sys_exit"),
                ("syscall_enter", "sys_enter"),
            ],
        )?;
        let mut tracer = Self {
            links: None,
            tracepoints,
            targets: BTreeMap::new(),
            others_from: sizes.rows,
            gates: 0,
            places: Table::take(&mut object, "TARGETS")?,
            finder: Values::take(&mut object, "FINDER")?,
            orders: Values::take(&mut object, "ORDERS")?,
            met: PerCpu::take(&mut object, "MET")?,
            tables: Values::take(&mut object, "TABLES")?,
            rows: PerCpu::take(&mut object, "ROWS")?,
            free: object.take_map("FREE")?,
            errors: Table::take(&mut object, "ERRORS")?,
            slow_calls: SharedRing::take(&mut object, "SLOW_CALLS")?,
            _room: object.take_room(),
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
        Identity {
            number: process,
            since_ns,
        }: Identity,
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
        let target = Target {
            process,
            order: options.order(since_ns, self.others_from + id.0),
            cut: BTreeMap::new(),
            is_cut: false,
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
        self.tables.set(id.0, syscalls::Table::EMPTY)?;
        self.met.set(id.0, Met::default())?;
        self.order(id, |_| {})?;
        self.places.insert(process, id.0)?;
        self.point_to(process)
    }

    /// Begins to record a target's calls, or ceases to. Calls that are under way as it begins are not recorded; those that are as
    /// it ceases are counted, and [cut](SyscallReading::cut).
    pub fn set_gate(&mut self, id: TargetId, open: bool) -> Result<(), ReadError> {
        self.close_gate(id)?;
        if !open {
            return Ok(());
        }
        if self.targets.get(&id).is_some_and(|target| target.is_cut) {
            // Once others begin, nobody can tell any more.
            thread::sleep(GRACE);
            self.look_at_cut(id)?;
        }
        self.gates += 1;
        let gate = self.gates;
        self.order(id, |order| order.gate = gate)
    }

    fn close_gate(&mut self, id: TargetId) -> Result<(), ReadError> {
        match self.targets.get_mut(&id) {
            Some(target) if target.order.gate != 0 => target.is_cut = true,
            _ => return Ok(()),
        }
        self.order(id, |order| order.gate = 0)
    }

    /// Changes the threshold of slow calls.
    pub fn set_slow_threshold(&mut self, id: TargetId, ns: u64) -> Result<(), ReadError> {
        self.order(id, |order| order.slow_threshold_ns = ns)
    }

    /// Tells no more system calls of a target apart than this from now on, and no more of their errors; those that are stay so.
    pub fn set_most(&mut self, id: TargetId, rows: u32, errors: u32) -> Result<(), ReadError> {
        self.order(id, |order| {
            order.most_rows = rows;
            order.most_errors = errors;
        })
    }

    fn order(&mut self, id: TargetId, change: impl FnOnce(&mut Order)) -> Result<(), ReadError> {
        let Some(target) = self.targets.get_mut(&id) else {
            return Ok(());
        };
        change(&mut target.order);
        self.orders.set(id.0, target.order)
    }

    /// Forgets a target: its rows are given back, empty.
    pub fn remove_target(&mut self, id: TargetId) -> Result<(), ReadError> {
        self.order(id, |order| order.gate = 0)?;
        let rows = self.rows_of(id)?;
        let Some(target) = self.targets.remove(&id) else {
            return Ok(());
        };
        self.places.remove(target.process)?;
        self.point_to(target.process)?;
        // A program that saw the gate open may still write.
        thread::sleep(GRACE);
        let rows = rows.into_iter().map(|(_, row)| row);
        let rows: BTreeSet<u32> = rows.chain([target.order.other_row]).collect();
        self.forget_errors(&rows)?;
        for row in rows {
            let empty = SyscallRow {
                begun: 0,
                restarts: 0,
                sum_ns: 0,
                errors: 0,
                slow: 0,
                maxima: [0; 2],
                histogram: ckb_probe_common::Histogram {
                    buckets: [0; BUCKETS],
                },
            };
            self.rows.set(row, empty)?;
            if row < self.others_from {
                self.free.push(row, 0).map_err(error("FREE"))?;
            }
        }
        Ok(())
    }

    fn forget_errors(&mut self, rows: &BTreeSet<u32>) -> Result<(), ReadError> {
        for key in self.errors.keys()? {
            if rows.contains(&of_error_key(key).0) {
                self.errors.remove(key)?;
            }
        }
        Ok(())
    }

    /// Tells the programs whose cell this process's is.
    fn point_to(&mut self, process: u32) -> Result<(), ReadError> {
        let index = process % CELLS;
        let mut here = self
            .targets
            .iter()
            .filter(|(_, target)| target.process % CELLS == index);
        let cell = match (here.next(), here.next()) {
            (None, _) => Cell {
                process: NOBODY,
                place: 0,
            },
            (Some((id, target)), None) => Cell {
                process: target.process,
                place: id.0,
            },
            (Some(_), Some(_)) => Cell {
                process: SEVERAL,
                place: 0,
            },
        };
        self.finder.set(index, cell)
    }
}

#[cfg(test)]
mod tests;
