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
    ring_bytes: 512 << 10,
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
    targets: BTreeMap<TargetId, Owner>,
}

/// Whose a target is.
struct Owner {
    namespace: String,
    /// The namespace's number, for its share of the ring.
    payer: u32,
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
        let known = self.targets.values();
        let known = known.map(|owner| (owner.namespace.as_str(), owner.payer));
        let payer = share::number_of(known, namespace);
        let options = SyscallOptions {
            payer,
            ..options.clone()
        };
        let id = self.tracer.add_target(process, &options)?;
        let owner = Owner {
            namespace: namespace.to_string(),
            payer,
        };
        self.targets.insert(id, owner);
        if let Err(error) = self.share_rows() {
            self.targets.remove(&id);
            self.tracer.remove_target(id)?;
            return Err(error.into());
        }
        Ok(id)
    }

    fn namespaces(&self) -> impl Iterator<Item = &str> {
        self.targets.values().map(|owner| owner.namespace.as_str())
    }

    /// Has the namespaces share rows and numbers of errors, and each of them its targets. What has one keeps it.
    fn share_rows(&mut self) -> Result<(), ReadError> {
        let most = SyscallOptions::default().most_rows as usize;
        let owners = || self.targets.values().map(|owner| owner.namespace.as_str());
        let rows = share::of_each(owners(), SIZES.rows as usize, most);
        let errors = share::of_each(owners(), SIZES.errors as usize, SIZES.errors as usize);
        for (id, Owner { namespace, .. }) in &self.targets {
            let share = |of: &BTreeMap<&str, usize>| of.get(namespace.as_str()).copied();
            let share = |of| share(of).unwrap_or_default() as u32;
            self.tracer.set_most(*id, share(&rows), share(&errors))?;
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

    fn lost(&mut self, target: &TargetId) -> Result<Losses, ReadError> {
        let met = self.tracer.hits(*target)?;
        let counts = [
            ("calls", met.calls_lost),
            (Self::EVENTS_LOST, met.events_lost),
            ("errorNumbers", met.error_numbers_lost),
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
