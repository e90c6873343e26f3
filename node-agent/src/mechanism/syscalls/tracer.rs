//! The node's tracer, shared by all that trace: who of them it is attached for, and who pays for what it costs the others.

use std::{collections::BTreeMap, hint::black_box, time::Duration};

use ckb_probe_common::syscalls::MAX_TARGETS;
use ckb_probe_crds::Name;

use crate::{
    kernel::{
        AttachError, Identity, Links, ReadError,
        syscalls::{
            SlowSyscall, SyscallOptions, SyscallSizes, SyscallTracer, TargetId, TargetReading,
        },
    },
    mechanism::shared::{Losses, NodeEvent, NodeProgram, Spent},
    observe::thread_time,
    share,
};

/// What is told apart for all targets of a node: 5 KiB for each system call on each CPU, and as much for what is not, of each target.
const SIZES: SyscallSizes = SyscallSizes {
    rows: 448,
    errors: 4096,
    ring_bytes: 256 << 10,
};

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
    /// Whose they are, by the namespace.
    targets: BTreeMap<TargetId, String>,
}

impl Tracer {
    /// Loads it, and measures on a call of the agent's own what it costs.
    pub fn load() -> Result<Self, AttachError> {
        let mut tracer = SyscallTracer::load(&SIZES)?;
        let costs = calibrate(&mut tracer)?;
        Ok(Self {
            tracer,
            costs,
            targets: BTreeMap::new(),
        })
    }

    /// What a call that is recorded costs.
    pub fn cost_of_hit(&self) -> Duration {
        self.costs.hit
    }

    /// Makes a process of this namespace a target, with its gate closed.
    pub fn add(
        &mut self,
        process: Identity,
        namespace: &str,
        options: &SyscallOptions,
    ) -> Result<TargetId, AttachError> {
        if !share::may_take_one(self.namespaces(), namespace, MAX_TARGETS) {
            return Err(AttachError::NoRoom(
                "a node traces 64, of which one namespace has no more than it leaves to others",
            ));
        }
        let id = self.tracer.add_target(process, options)?;
        self.targets.insert(id, namespace.to_string());
        if let Err(error) = self.share_rows() {
            self.targets.remove(&id);
            self.tracer.remove_target(id)?;
            return Err(error.into());
        }
        Ok(id)
    }

    fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.targets.values().map(String::as_str)
    }

    /// Has the namespaces share the rows, and each of them its targets. What has a row keeps it.
    fn share_rows(&mut self) -> Result<(), ReadError> {
        let most = SyscallOptions::default().most_rows as usize;
        let namespaces = self.targets.values().map(String::as_str);
        let shares = share::of_each(namespaces, SIZES.rows as usize, most);
        for (id, namespace) in &self.targets {
            let rows = shares.get(namespace.as_str()).copied().unwrap_or_default();
            self.tracer.set_most_rows(*id, rows as u32)?;
        }
        Ok(())
    }

    /// About how many calls a target has had: as many as cost what its own calls cost and so many of bystanders.
    pub fn hits(&self, id: TargetId, bystanders: u64) -> Result<u64, ReadError> {
        let met = self.tracer.hits(id)?;
        let worth = self.costs.miss.as_secs_f64() / self.costs.hit.as_secs_f64().max(1e-9);
        Ok(met.taken + ((met.left + bystanders) as f64 * worth) as u64)
    }

    /// What a target did.
    pub fn read(&mut self, id: TargetId) -> Result<TargetReading, ReadError> {
        Ok(self.tracer.read(&[id])?.pop().unwrap_or_default())
    }
}

/// A subscriber is a target of its own.
impl NodeProgram for Tracer {
    type Subscriber = TargetId;
    type Key = TargetId;
    type Event = SlowSyscall;

    const MAX_WAITING: usize = 4096;
    const EVENTS_LOST: &'static str = "events";

    fn key(target: &TargetId) -> TargetId {
        *target
    }

    fn attach(&mut self) -> Result<(), AttachError> {
        self.tracer.attach()
    }

    fn detach(&mut self) -> Option<Links> {
        self.tracer.detach()
    }

    fn open(&mut self, target: &mut TargetId, _: &[&TargetId]) -> Result<(), AttachError> {
        Ok(self.tracer.set_gate(*target, true)?)
    }

    fn close(&mut self, target: &mut TargetId, _: &[&TargetId]) -> Result<(), ReadError> {
        self.tracer.set_gate(*target, false)
    }

    fn forget(&mut self, target: TargetId, _: &[&TargetId]) -> Result<(), ReadError> {
        self.targets.remove(&target);
        let shared = self.share_rows();
        self.tracer.remove_target(target).and(shared)
    }

    /// Calls of processes that are no targets.
    fn costs(&self) -> Result<Spent<TargetId>, ReadError> {
        Ok(vec![(None, self.tracer.misses()?)])
    }

    /// Whosesoever it was.
    fn lost(&mut self, _: &TargetId) -> Result<Losses, ReadError> {
        let lost = self.tracer.losses()?;
        let counts = [
            ("calls", lost.calls),
            (Self::EVENTS_LOST, lost.events),
            ("errorNumbers", lost.error_numbers),
        ];
        Ok(counts
            .map(|(what, count)| (Name::Borrowed(what), count))
            .into())
    }

    fn drain(&mut self) -> Vec<NodeEvent<TargetId, SlowSyscall>> {
        let calls = self.tracer.slow_calls().into_iter();
        let told = calls.map(|(target, call)| NodeEvent {
            key: Some(target),
            time_ns: call.time_ns,
            event: call,
        });
        told.collect()
    }
}

/// Calls `getppid` as often as it takes: untraced, traced as a bystander, and as a target.
fn calibrate(tracer: &mut SyscallTracer) -> Result<Costs, AttachError> {
    let untraced = time_of_a_call();
    let own = Identity::of_now(std::process::id())?;
    let own = tracer.add_target(own, &SyscallOptions::default())?;
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
