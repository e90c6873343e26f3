//! Stacks of the threads of one process: of those that run, by the tick, and of all of them, whenever that is asked for.
//!
//! Copies of stacks are secrets of the process. They are seen in the slots that the programs fill, which are memory of the
//! kernel's and of this process only, by a closure, and wiped when it returns.

mod slow;
mod waiting;

use std::{
    io::Read,
    sync::atomic::{AtomicU32, Ordering, compiler_fence},
    time::{Duration, Instant},
};

use aya::maps::MapError;
use ckb_probe_common::{
    Field, Group,
    stacks::{ANY, BEGINS_LATER, FILLED, FREE, LEARN, NAMES, Order, PAGE, Pace, STACK_PAGES, Slot},
};
use ckb_probe_symbols::Machine;

use super::{
    AttachError, Identity, Links, Operand, ReadError, Site, Tier,
    btf::{self, Types},
    links::Programs,
    memory::{self, Reservation},
    object::Object,
    programs,
    sys::{self, Mapped},
    tracing::{Iteration, Iterator, Tracepoints},
    typed::{PerCpu, Table, Values, error},
};
pub use ckb_probe_common::stacks::{FREED, Head, MOVED, NO_USER, ON_CPU, UNCHANGED, allocations};
pub use slow::SlowStacks;
pub(super) use slow::constants;

/// Programs, each with its tracepoint.
const TICK: &[(&str, &str)] = &[("timer_expires", "hrtimer_expire_entry")];
const FAULTS: &[(&str, &str)] = &[
    ("page_touched", "page_fault_user"),
    ("page_touched_by_kernel", "page_fault_kernel"),
];

/// Threads that are gone through at a time.
const THREAD_SLOTS: u32 = 16;

/// Samples of a CPU that may wait to be looked at.
const SLOTS_OF_A_CPU: u32 = 16;
const MIN_SLOTS: u32 = 64;
const MAX_SLOTS: u32 = 256;

/// For how long the tick is looked for. It comes every 1 to 10 ms where a CPU is busy.
const LEARNING: Duration = Duration::from_millis(60);

/// How the kernel calls the function of the tick: since 6.9, and before.
const TICKS: [&str; 2] = ["tick_nohz_handler", "tick_sched_timer"];

/// What the programs read, in the order in which they number it.
const FIELDS: [(&str, &str); 8] = [
    ("task_struct", "pid"),
    ("task_struct", "tgid"),
    ("task_struct", "comm"),
    ("task_struct", "__state"),
    ("task_struct", "on_cpu"),
    ("task_struct", "nvcsw"),
    ("task_struct", "nivcsw"),
    ("task_struct", "flags"),
];

/// The number of the function of a timer.
const FUNCTION: usize = FIELDS.len() + 1;

/// Where the kernel keeps the return addresses that it has replaced, if it has probes there.
const RETURNS: [(&str, &str); 5] = [
    ("task_struct", "utask"),
    ("uprobe_task", "return_instances"),
    ("return_instance", "orig_ret_vaddr"),
    ("return_instance", "chained"),
    ("return_instance", "next"),
];

/// Where a thread's control block is, which ends its stack; not all kernels say it.
const CONTROL_BLOCK: (&str, &str) = match Machine::NATIVE {
    Machine::X86_64 => ("task_struct", "thread.fsbase"),
    Machine::Aarch64 => ("task_struct", "thread.uw.tp_value"),
};

/// The stack of a thread as it was copied.
#[derive(Clone, Copy)]
pub struct Copied<'a> {
    /// Where the copy begins in the process.
    pub begin: u64,
    /// What was there. A secret of the process's.
    pub bytes: &'a [u8],
}

/// How many samples were taken, and at what pace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// For how long CPUs ticked.
    pub ticking: Duration,
    /// How often it was looked who runs meanwhile.
    pub looks: u64,
    /// How often that was the process; or how many pages it touched that were not there; or how often its allocator was met.
    pub met: u64,
    /// How many pages it wrote that were there, and not to be written.
    pub written: u64,
    /// Of these, those that were lost.
    pub lost: u64,
    /// How many were no samples, since more came than were read: others stand for them.
    pub left_out: u64,
    /// What all of these took, at the process's expense.
    pub spent: Duration,
    /// How many bytes it allocated, and how many it freed, while that was sampled.
    pub allocated: [u64; 2],
}

/// Programs for one process. Dropping it ends them.
pub struct Stacks {
    // Declared first: links go before the maps that their programs write to.
    links: Option<Links>,
    tracepoints: Option<Tracepoints>,
    threads: Option<Iteration>,
    names: Iteration,
    order: Values<Order>,
    pace: PerCpu<Pace>,
    next: Values<u32>,
    functions: Table<u64, u64>,
    allocated: PerCpu<[u64; 2]>,
    uprobes: Option<(Programs, Vec<Site>)>,
    addresses: Values<u64>,
    slots: Mapped,
    told: Order,
    _room: Option<Reservation>,
}

/// What is to be sampled of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// The threads that run, so often on each CPU. As often as the kernel ticks, at most.
    Running {
        /// Time between two samples of a CPU.
        period: Duration,
    },
    /// The threads that touch a page that is not there, or write to one that is not to be written yet.
    Faults {
        /// Of how many page faults one is a sample.
        one_in: u32,
    },
    /// The threads that allocate and free, by [`Allocator`].
    Allocations {
        /// For how many times [`allocations::UNIT`] bytes a sample stands at the least.
        one_in: u32,
    },
    /// All threads, whenever [`Stacks::pass`] is called.
    All {
        /// Whether a thread that has not run since it was seen last comes as [`UNCHANGED`], and without its stacks.
        skip_unchanged: bool,
    },
}

/// Where a process has its allocator, and how that is attached to.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// By which way its functions are attached to.
    pub tier: Tier,
    /// Functions, each with what it is among [`allocations`] for a slot, and [`hit`](Site::hit).
    pub sites: Vec<Site>,
    /// Where the process says by itself what it does: by site, the address, and for how many bytes that stands. Empty where it does not.
    pub said: Vec<[Operand; 2]>,
}

impl Allocator {
    /// Whether the process says by itself what it frees; None where it does not even say what it allocates.
    pub fn says_what_it_frees(&self) -> Option<bool> {
        let frees = |site: &Site| u32::from(site.slot) == allocations::SAYS_FREED;
        (!self.said.is_empty()).then(|| self.sites.iter().any(frees))
    }

    /// Of the maps that are for what a process says by itself, how many entries they have.
    fn sizes(&self) -> [(&'static str, u32); 2] {
        [
            ("OPERANDS", self.said.len().max(1) as u32),
            remembered(!self.said.is_empty()),
        ]
    }
}

/// How many entries the map has of what a process has said that it allocated, where it says that.
fn remembered(says: bool) -> (&'static str, u32) {
    ("SAID", if says { allocations::REMEMBERED } else { 1 })
}

/// How long the kernel makes a tick, in nanoseconds: as often it sets the clock that tells the time of the last one.
fn tick_length() -> u64 {
    let length = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    u64::try_from(length.tv_nsec).unwrap_or_default()
}

fn slots_of_all_cpus() -> u32 {
    let cpus = memory::possible_cpus().max(1);
    let wanted = cpus.saturating_mul(SLOTS_OF_A_CPU);
    wanted.next_power_of_two().clamp(MIN_SLOTS, MAX_SLOTS)
}

impl Stacks {
    /// How many bytes its maps take at most, of one that samples what comes in bursts, or does not; and of one that remembers what a process
    /// has said that it allocated, or has no need to.
    pub fn bytes(bursts: bool, remembers: bool) -> Result<u64, AttachError> {
        let slots = if bursts {
            MAX_SLOTS
        } else {
            slots_of_all_cpus()
        };
        let sizes = [("SLOTS", slots), remembered(remembers)];
        let shapes = memory::shapes(programs::named("stacks")?, &sizes)?;
        Ok(memory::sum(&shapes, memory::possible_cpus()))
    }

    /// Loads the programs, and begins.
    pub fn begin(process: Identity, sampled: Sampled) -> Result<Self, AttachError> {
        Self::begin_at(process, sampled, None)
    }

    /// The same, of a process with this allocator.
    pub fn begin_at(
        process: Identity,
        sampled: Sampled,
        allocator: Option<&Allocator>,
    ) -> Result<Self, AttachError> {
        let types = Types::read()?;
        let known = fields(&types)?;
        let constants = btf::as_bytes(&known);
        let count = match sampled {
            Sampled::Running { .. } => slots_of_all_cpus(),
            // They come in bursts.
            Sampled::Faults { .. } | Sampled::Allocations { .. } => MAX_SLOTS,
            Sampled::All { .. } => THREAD_SLOTS,
        };
        let program = programs::named("stacks")?;
        let identity = Identity::fields(&types)?;
        let constants: [(&str, &[u8]); 2] = [("FIELDS", &constants), ("IDENTITY", &identity)];
        let mut sizes = vec![("SLOTS", count)];
        sizes.extend(allocator.iter().flat_map(|allocator| allocator.sizes()));
        let mut object = Object::load_with(program, &sizes, &constants)?;
        let slots = object.map_memory("SLOTS", count as usize * size_of::<Slot>())?;
        let names = Iterator::load(&object, &types, "names", "task")?.over(std::process::id())?;
        let (mut tracepoints, mut threads) = (None, None);
        let Identity {
            number: process,
            since_ns,
        } = process;
        let mut told = Order {
            process,
            since_ns,
            mask: count - 1,
            tick: LEARN,
            tick_ns: tick_length(),
            ..Order::default()
        };
        match sampled {
            Sampled::Running { period } => {
                told.period_ns = u64::try_from(period.as_nanos()).unwrap_or(u64::MAX);
                tracepoints = Some(Tracepoints::load(&object, &types, TICK)?);
            }
            Sampled::Faults { one_in } => {
                told.period_ns = one_in.into();
                tracepoints = Some(Tracepoints::load(&object, &types, FAULTS)?);
            }
            Sampled::Allocations { one_in } => told.period_ns = one_in.into(),
            Sampled::All { skip_unchanged } => {
                told.skip_unchanged = skip_unchanged.into();
                if sys::lives_without_main_thread(process) {
                    return Err(AttachError::NoMainThread { process });
                }
                sys::may_read_memory(process)
                    .map_err(|source| AttachError::Memory { process, source })?;
                let program = Iterator::load(&object, &types, "threads", "task")?;
                threads = Some(program.over(process)?);
            }
        }
        let uprobes = match allocator {
            Some(Allocator { tier, sites, .. }) => {
                Some((Programs::load(&object, *tier, sites)?, sites.clone()))
            }
            None => None,
        };
        let mut operands: Values<[Operand; 2]> = Values::take(&mut object, "OPERANDS")?;
        let said = allocator.iter().flat_map(|allocator| &allocator.said);
        for (place, said) in (0..).zip(said) {
            operands.set(place, *said)?;
        }
        let mut stacks = Self {
            links: None,
            threads,
            names,
            order: Values::take(&mut object, "ORDER")?,
            pace: PerCpu::take(&mut object, "PACE")?,
            next: Values::take(&mut object, "NEXT")?,
            functions: Table::take(&mut object, "FUNCTIONS")?,
            allocated: PerCpu::take(&mut object, "ALLOCATED")?,
            addresses: Values::take(&mut object, "ADDRESSES")?,
            slots,
            told,
            tracepoints,
            uprobes,
            _room: object.take_room(),
        };
        stacks.tell()?;
        if let Some(tracepoints) = &stacks.tracepoints {
            stacks.links = Some(tracepoints.attach()?);
        }
        stacks.resume()?;
        if let Sampled::Running { .. } = sampled {
            stacks.learn_tick(&known)?;
        }
        Ok(stacks)
    }

    /// Learns which timer's function is that of the tick. A kernel that hides a timer's function has any timer serve: all of them are
    /// looked at then.
    fn learn_tick(&mut self, known: &[Field]) -> Result<(), ReadError> {
        let tells_function = known.get(FUNCTION).is_some_and(|field| field.offset > 0);
        self.told.tick = match tells_function {
            true => self.tick()?.unwrap_or(ANY),
            false => ANY,
        };
        self.tell()
    }

    fn tell(&mut self) -> Result<(), ReadError> {
        self.order.set(0, self.told)
    }

    /// Of how many page faults one is a sample from now on; or for how many [`allocations::UNIT`] bytes it stands at the least.
    pub fn set_one_in(&mut self, one_in: u32) -> Result<(), ReadError> {
        self.told.period_ns = one_in.into();
        self.tell()
    }

    /// Looks for the function of the timer that is the tick, keeping a CPU busy so that there is one.
    fn tick(&mut self) -> Result<Option<u64>, ReadError> {
        let end = Instant::now() + LEARNING;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        let met = self.functions.keys()?;
        let names = self.names(&met)?;
        let mut found = met.iter().zip(&names);
        let tick = found.find(|(_, name)| TICKS.contains(&name.as_str()));
        Ok(tick.map(|(function, _)| *function))
    }

    /// The names of functions of the kernel, of as many addresses in them. What has none is a number.
    pub fn names(&mut self, addresses: &[u64]) -> Result<Vec<String>, ReadError> {
        let failed = |source| error("iter/task")(MapError::IoError(source));
        let mut names = Vec::with_capacity(addresses.len());
        for some in addresses.chunks(NAMES) {
            for (index, address) in (0..).zip(some) {
                self.addresses.set(index, *address)?;
            }
            let mut text = String::new();
            let mut file = self.names.begin().map_err(failed)?;
            file.read_to_string(&mut text).map_err(failed)?;
            let mut lines = text.lines();
            names.extend(some.iter().map(|_| match lines.next() {
                Some(line) => line.to_string(),
                None => "[unknown]".to_string(),
            }));
        }
        Ok(names)
    }

    /// Hands over the samples that wait, each with its stack, which is wiped then: from the first on, so that what comes meanwhile finds
    /// the slots free in the order in which it tries them.
    pub fn samples(&mut self, mut each: impl FnMut(&Head, Copied<'_>)) -> Result<(), ReadError> {
        let next = self.next.get(0)?;
        for slot in 0..=self.told.mask {
            let index = next.wrapping_add(slot) & self.told.mask;
            self.take(index as usize, true, &mut each);
        }
        Ok(())
    }

    /// Goes through all threads, and hands over each with its stack, which is wiped then. Where a stack is not in memory, waits until it is:
    /// nobody but the caller waits for that.
    pub fn pass(&mut self, mut each: impl FnMut(&Head, Copied<'_>)) -> Result<(), ReadError> {
        self.go_through(&mut each)
            .map_err(|source| error("iter/task")(MapError::IoError(source)))
    }

    /// Hands over what is in a slot, if it is filled, and wipes it. `shared`: programs may be about to fill it.
    fn take(&self, index: usize, shared: bool, each: &mut impl FnMut(&Head, Copied<'_>)) {
        take(&self.slots, index, shared.then_some(FREE), each);
    }

    /// How many samples were taken since it began.
    pub fn taken(&self) -> Result<Taken, ReadError> {
        let missed = self.tracepoints.as_ref();
        let missed = missed.map_or(0, |tracepoints| {
            let all = TICK.iter().chain(FAULTS);
            all.map(|(_, name)| tracepoints.missed(name)).sum()
        });
        let mut taken = Taken {
            lost: missed,
            ..Taken::default()
        };
        for cpu in self.pace.get(0)? {
            taken.ticking += Duration::from_nanos(cpu.ticking_ns);
            taken.looks += cpu.taken;
            taken.met += cpu.met;
            taken.written += cpu.written;
            taken.lost += cpu.lost;
            taken.left_out += cpu.left_out;
            taken.spent += Duration::from_nanos(cpu.spent_ns);
        }
        for cpu in self.allocated.get(0)? {
            for (sum, bytes) in taken.allocated.iter_mut().zip(cpu) {
                *sum += bytes;
            }
        }
        Ok(taken)
    }

    /// Whether the tick was not found, so that any timer serves which expires: also those of the process, which is met in step with them.
    pub fn is_by_any_timer(&self) -> bool {
        self.told.tick == ANY
    }

    /// Samples again, after [`Self::stop`], what is attached to functions.
    pub fn resume(&mut self) -> Result<(), AttachError> {
        if let Some((programs, sites)) = &self.uprobes {
            self.told.slice += 1;
            self.order.set(0, self.told)?;
            let sites: Vec<(u16, &Site)> = (0..).zip(sites).collect();
            let links = programs.attach(self.told.process, &sites, Group::First)?;
            self.links = Some(links);
        }
        Ok(())
    }

    /// Takes no more samples: those that wait can still be handed over.
    pub fn stop(&mut self) {
        self.links = None;
    }
}

/// Hands over what is in a slot, if it is filled, and wipes it. It has the state `then` from there on; None: that it had.
fn take(slots: &Mapped, index: usize, then: Option<u32>, each: &mut impl FnMut(&Head, Copied<'_>)) {
    let Some(slot) = slots.element::<Slot>(index) else {
        return;
    };
    let slot = slot.as_ptr();
    // SAFETY: the slot is in the mapping, aligned to pages. A program writes to it only while it is free or being filled,
    // and the state is written last; so what is read here stands still. Heads are integers, stacks bytes.
    unsafe {
        let state = AtomicU32::from_ptr(&raw mut (*slot).head.state);
        if state.load(Ordering::Acquire) != FILLED {
            return;
        }
        let mut head = (*slot).head;
        let pages = (head.pages as usize).min(STACK_PAGES);
        let stack: &[u8] =
            std::slice::from_raw_parts((&raw const (*slot).stack).cast(), pages * PAGE);
        head.state = FREE;
        // What is not there is no zeros: they would be the end of a stack.
        let missing = match head.flags & BEGINS_LATER {
            0 => 0,
            _ => PAGE.min(stack.len()),
        };
        each(
            &head,
            Copied {
                begin: (head.sp & !(PAGE as u64 - 1)).saturating_add(missing as u64),
                bytes: &stack[missing..],
            },
        );
        // And what follows: two copies may have failed, and have left a part of a page each. Where none was tried, it is wiped already.
        let touched = match head.flags & UNCHANGED {
            0 => (pages + 2).min(STACK_PAGES),
            _ => 0,
        };
        std::ptr::write_bytes((&raw mut (*slot).stack).cast::<u8>(), 0, PAGE * touched);
        compiler_fence(Ordering::SeqCst);
        if let Some(then) = then {
            state.store(then, Ordering::Release);
        }
    }
}

fn fields(types: &Types) -> Result<Vec<Field>, AttachError> {
    let mut fields = types.fields(&FIELDS)?;
    let arrived = types.field("task_struct", "sched_info.last_arrival");
    fields.push(arrived.unwrap_or_default());
    // Where it is not known, the first word is read, and not looked at.
    let first = Field { offset: 0, size: 8 };
    fields.push(types.field("hrtimer", "function").unwrap_or(first));
    let optional = RETURNS
        .iter()
        .map(|(structure, field)| types.field(structure, field));
    fields.extend(optional.map(Option::unwrap_or_default));
    let faults_off = types.field("task_struct", "pagefault_disabled");
    fields.push(faults_off.unwrap_or_default());
    let (structure, control_block) = CONTROL_BLOCK;
    let control_block = types.field(structure, control_block);
    fields.push(control_block.unwrap_or_default());
    Ok(fields)
}

#[cfg(test)]
mod tests;
