//! What mechanisms have once for all processes of the node: programs at tracepoints are loaded once, however many targets ask,
//! since the kernel runs them for every process.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use ckb_probe_crds::Reason;

use super::{Refusal, calls, kernel_functions::KernelRegistry};
use crate::{
    kernel::{CalibratedTier, memory},
    observe::are_numbers_the_kernels,
};

/// By type and name.
type Known = HashMap<(TypeId, &'static str), Box<dyn Any + Send>>;

/// What whoever looks after the node lets be looked at beyond the process that is asked about, whatever is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct NodePolicy {
    /// Whether requests of others to the disks are told with their bytes, and slow ones with their threads, however short they are.
    pub tells_others: bool,
    /// How the names of functions of the kernel begin that may be probed; None: whatever the kernel lets.
    pub kernel_functions: Option<Vec<String>>,
    /// CPU-seconds per second that all may cost together who have functions of the kernel probed; None: their budgets are enough.
    pub bystanders: Option<f64>,
}

/// On one's own machine everything is one's own.
impl Default for NodePolicy {
    fn default() -> Self {
        Self {
            tells_others: true,
            kernel_functions: None,
            bystanders: None,
        }
    }
}

/// Programs in the kernel would take other processes for those that are asked for, and count none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this runs in a PID namespace of its own, where processes go by other numbers than in the kernel: who is asked for would be taken for another \
     process; in a container, share the host's PID namespace (hostPID: true, docker run --pid=host); a node that is a container itself, as those of \
     kind, cannot be measured"
)]
pub struct Foreign;

impl Foreign {
    /// Fails where this is so.
    pub fn check() -> Result<(), Self> {
        are_numbers_the_kernels().then_some(()).ok_or(Self)
    }
}

impl From<Foreign> for Refusal {
    fn from(foreign: Foreign) -> Self {
        Self::new(Reason::PreflightFailed, foreign.to_string())
    }
}

/// What there is on a node for all of its processes. Clones are of the same.
#[derive(Clone)]
pub struct Node {
    /// How functions of processes are attached to; or why they are not, which leaves other mechanisms working.
    pub tier: Result<CalibratedTier, Refusal>,
    /// What may be looked at.
    pub policy: Arc<NodePolicy>,
    /// Who has functions of its kernel probed, and which cannot be.
    pub kernel: KernelRegistry,
    /// What was found in files.
    pub found: Arc<calls::Caches>,
    /// One thing of each type and name that mechanisms ask for, for as long as any of them holds it.
    shared: Arc<Mutex<Known>>,
}

/// One where functions of processes can't be attached to.
impl Default for Node {
    fn default() -> Self {
        Self::new(Err(Refusal::new(
            Reason::PreflightFailed,
            "functions are not attached to here",
        )))
    }
}

impl Node {
    /// One where functions are attached to like this.
    pub fn new(tier: Result<CalibratedTier, Refusal>) -> Self {
        Self {
            tier,
            policy: Arc::default(),
            kernel: KernelRegistry::default(),
            found: Arc::default(),
            shared: Arc::default(),
        }
    }

    /// The same, where no more may be looked at than that.
    #[must_use]
    pub fn with_policy(mut self, policy: NodePolicy) -> Self {
        self.policy = Arc::new(policy);
        self
    }

    /// The one that others hold, or a new one, made by `make`.
    pub fn shared<T: Send + 'static, E>(
        &mut self,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<Mutex<T>>, E> {
        self.shared_as("", make)
    }

    /// The one of this name that others hold, or a new one, made by `make`.
    pub fn shared_as<T: Send + 'static, E>(
        &mut self,
        name: &'static str,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<Mutex<T>>, E> {
        let key = (TypeId::of::<T>(), name);
        // What it holds is right at any time. Nothing that is made asks anything of a target's files.
        let mut all = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let held = all.get(&key);
        let held = held.and_then(|held| held.downcast_ref::<Weak<Mutex<T>>>());
        if let Some(shared) = held.and_then(Weak::upgrade) {
            return Ok(shared);
        }
        // It is nobody's who asks for it first.
        let made = memory::on_behalf_of(None, make)?;
        let shared = Arc::new(Mutex::new(made));
        let weak = Box::new(Arc::downgrade(&shared));
        all.insert(key, weak);
        Ok(shared)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    #[test]
    fn there_is_one_for_as_long_as_it_is_held() {
        let mut node = Node::default();
        let one = |made| move || Ok::<u32, Infallible>(made);
        let Ok(first) = node.shared(one(1));
        let Ok(second) = node.shared(one(2));
        assert!(Arc::ptr_eq(&first, &second));
        let Ok(named) = node.shared_as("other", one(4));
        assert_eq!(named.lock().map(|held| *held).ok(), Some(4));
        drop((first, second));
        let Ok(third) = node.shared(one(3));
        assert_eq!(third.lock().map(|held| *held).ok(), Some(3));
    }
}
