//! Every exec on this host, told by the kernel as it happens.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    time::Duration,
};

use ckb_probe_common::Exec;
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    AttachError,
    object::Object,
    programs,
    sys::{self, AttachType, ProgramType},
    typed::Ring,
};

const TRACEPOINT: &str = "sched_process_exec";

/// Execs told of between two readings, at most; whoever misses one finds the process by looking at /proc.
const RING_BYTES: u32 = 64 << 10;

/// After a wake-up, execs are gathered for so long: a host that starts a thousand processes a second wakes the agent
/// a hundred times.
const GATHER: Duration = Duration::from_millis(10);

/// A watch for execs. Dropping it ends it.
pub struct Execs {
    ring: AsyncFd<Ring<Exec>>,
    _link: OwnedFd,
}

impl Execs {
    /// Begins to watch. Inside a tokio runtime only.
    pub fn watch() -> Result<Self, AttachError> {
        let error = |source| AttachError::Tracepoint {
            name: TRACEPOINT,
            source,
        };
        let mut object = Object::load(programs::named("exec")?, &[("EXECS", RING_BYTES)])?;
        let program =
            object.program("process_exec", ProgramType::RawTracepoint, AttachType::None)?;
        let link =
            sys::open_raw_tracepoint(&program, Some(c"sched_process_exec")).map_err(error)?;
        let ring = Ring::take(&mut object, "EXECS")?;
        #[expect(
            deprecated,
            reason = "a ring buffer owns its descriptor, which is what its successor is unsafe for"
        )]
        let ring = AsyncFd::with_interest(ring, Interest::READABLE).map_err(error)?;
        Ok(Self { ring, _link: link })
    }

    /// Waits for execs, and returns the processes that made them.
    pub async fn next(&mut self) -> io::Result<Vec<u32>> {
        loop {
            drop(self.ring.readable().await?);
            tokio::time::sleep(GATHER).await;
            let mut guard = self.ring.readable_mut().await?;
            let execs = guard.get_inner_mut().drain();
            let pids: Vec<u32> = execs.into_iter().map(|exec| exec.pid).collect();
            guard.clear_ready();
            if !pids.is_empty() {
                return Ok(pids);
            }
        }
    }
}

impl std::fmt::Debug for Execs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Execs({})", self.ring.get_ref().as_raw_fd())
    }
}
