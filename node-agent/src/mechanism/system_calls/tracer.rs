//! The node's tracer, shared by all that trace: who of them it is attached for, and who pays for what it costs the others.

use std::{
    collections::{BTreeMap, VecDeque},
    hint::black_box,
    time::Duration,
};

use tracing::warn;

use crate::{
    kernel::{
        AttachError, Links, ReadError,
        syscalls::{
            SlowSyscall, SyscallLosses, SyscallOptions, SyscallSizes, SyscallTracer, TargetId,
            TargetReading,
        },
    },
    observe::thread_time,
};

/// What is told apart for all targets of a node: 5 KiB for each system call on each CPU.
const SIZES: SyscallSizes = SyscallSizes {
    rows: 512,
    errors: 4096,
    ring_bytes: 256 << 10,
};

/// Slow calls of one target that wait for whoever asks for them; the oldest are dropped, and counted.
const MAX_WAITING: usize = 4096;

/// Calls for a calibration.
pub(in crate::mechanism) const CALLS: u32 = 20_000;

/// What the programs cost.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// A call that is recorded.
    hit: Duration,
    /// One that is left alone: of a process that is no target, or not wanted.
    miss: Duration,
}

/// The tracer, loaded once.
pub struct Tracer {
    tracer: SyscallTracer,
    costs: Costs,
    targets: BTreeMap<TargetId, Account>,
    misses: u64,
}

/// One target's.
#[derive(Default)]
struct Account {
    open: bool,
    /// Its part of the calls of processes that are no targets.
    misses: f64,
    waiting: VecDeque<SlowSyscall>,
    dropped: u64,
    losses_before: (u64, u64, u64),
}

impl Tracer {
    /// Loads it, and measures on a call of the agent's own what it costs.
    pub fn load() -> Result<Self, AttachError> {
        let mut tracer = SyscallTracer::load(&SIZES)?;
        let costs = calibrate(&mut tracer)?;
        Ok(Self {
            misses: tracer.misses()?,
            tracer,
            costs,
            targets: BTreeMap::new(),
        })
    }

    /// What a call that is recorded costs.
    pub fn cost_of_hit(&self) -> Duration {
        self.costs.hit
    }

    /// Makes a process a target, with its gate closed.
    pub fn add(&mut self, pid: u32, options: &SyscallOptions) -> Result<TargetId, AttachError> {
        let id = self.tracer.add_target(pid, options)?;
        let losses = self.tracer.losses()?;
        let account = Account {
            losses_before: (losses.calls, losses.events, losses.error_numbers),
            ..Account::default()
        };
        self.targets.insert(id, account);
        Ok(id)
    }

    /// Opens or closes a target's gate. The links, if nobody is traced any more.
    pub fn set_gate(&mut self, id: TargetId, open: bool) -> Result<Option<Links>, AttachError> {
        if !open {
            return Ok(self.close_gate(id)?);
        }
        self.settle()?;
        self.tracer.set_gate(id, true)?;
        if let Some(account) = self.targets.get_mut(&id) {
            account.open = true;
        }
        self.tracer.attach()?;
        Ok(None)
    }

    /// Closes a target's gate.
    pub fn close_gate(&mut self, id: TargetId) -> Result<Option<Links>, ReadError> {
        self.settle()?;
        self.tracer.set_gate(id, false)?;
        if let Some(account) = self.targets.get_mut(&id) {
            account.open = false;
        }
        Ok(self.detach_if_idle())
    }

    fn detach_if_idle(&mut self) -> Option<Links> {
        if self.targets.values().any(|account| account.open) {
            return None;
        }
        self.tracer.detach()
    }

    /// About how many calls a target has had, as many as cost what its own calls and its part of the others' cost.
    pub fn hits(&mut self, id: TargetId) -> Result<u64, ReadError> {
        self.settle()?;
        let met = self.tracer.hits(id)?;
        let missed = self.targets.get(&id).map_or(0.0, |account| account.misses);
        let worth = self.costs.miss.as_secs_f64() / self.costs.hit.as_secs_f64().max(1e-9);
        Ok(met.taken + ((met.left as f64 + missed) * worth) as u64)
    }

    /// Charges those that are traced, in equal parts, with the calls of processes that are no targets.
    fn settle(&mut self) -> Result<(), ReadError> {
        let misses = self.tracer.misses()?;
        let news = misses.saturating_sub(self.misses);
        self.misses = misses;
        let open = self.targets.values().filter(|account| account.open).count();
        for account in self.targets.values_mut().filter(|account| account.open) {
            account.misses += news as f64 / open as f64;
        }
        Ok(())
    }

    /// What a target did, and what could not be recorded since it was added, whosesoever it was.
    pub fn read(&mut self, id: TargetId) -> Result<(TargetReading, SyscallLosses), ReadError> {
        let reading = self.tracer.read(&[id])?.pop().unwrap_or_default();
        let mut losses = self.tracer.losses()?;
        if let Some(account) = self.targets.get(&id) {
            let (calls, events, error_numbers) = account.losses_before;
            losses.calls = losses.calls.saturating_sub(calls);
            losses.events = losses.events.saturating_sub(events) + account.dropped;
            losses.error_numbers = losses.error_numbers.saturating_sub(error_numbers);
        }
        Ok((reading, losses))
    }

    /// Takes the slow calls of a target.
    pub fn slow_calls(&mut self, id: TargetId) -> Vec<SlowSyscall> {
        for (of, call) in self.tracer.slow_calls() {
            if let Some(account) = self.targets.get_mut(&of) {
                if account.waiting.len() == MAX_WAITING {
                    account.waiting.pop_front();
                    account.dropped += 1;
                }
                account.waiting.push_back(call);
            }
        }
        let account = self.targets.get_mut(&id);
        account.map_or_else(Vec::new, |account| account.waiting.drain(..).collect())
    }

    /// Forgets a target. The links, if nobody is traced any more.
    pub fn remove(&mut self, id: TargetId) -> Option<Links> {
        if let Err(error) = self.settle().and_then(|()| self.tracer.remove_target(id)) {
            warn!(%error, "a target of the system call tracer is not forgotten");
        }
        self.targets.remove(&id);
        self.detach_if_idle()
    }
}

/// Calls `getppid` as often as it takes: untraced, traced as a bystander, and as a target.
fn calibrate(tracer: &mut SyscallTracer) -> Result<Costs, AttachError> {
    let untraced = time_of_a_call();
    let own = tracer.add_target(std::process::id(), &SyscallOptions::default())?;
    tracer.attach()?;
    let left = time_of_a_call();
    tracer.set_gate(own, true)?;
    let traced = time_of_a_call();
    drop(tracer.detach());
    tracer.remove_target(own)?;
    Ok(Costs {
        hit: traced.saturating_sub(untraced),
        miss: left.saturating_sub(untraced),
    })
}

/// The least of several rounds: what others took of the CPU's caches is not the programs' doing.
pub(in crate::mechanism) fn time_of_a_call() -> Duration {
    let round = |_| {
        let start = thread_time();
        for _ in 0..CALLS / 5 {
            black_box(rustix::process::getppid());
        }
        thread_time().saturating_sub(start) / (CALLS / 5)
    };
    (0..5).map(round).min().unwrap_or_default()
}
