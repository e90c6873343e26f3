//! Takes spans from whoever measures, and sends them from a thread of its own.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use ckb_probe_traces::{
    Counts, Group, Limits, Next, Offered, Outbox, Scope, Settings,
    answer::{Answer, Outcome},
};
use tokio::{
    runtime,
    sync::Notify,
    time::{Instant as TokioInstant, sleep_until},
};
use tracing::{info, warn};

use super::{sender::Sender, tls::TlsError};

/// How the thread is called.
const THREAD: &str = "otlp";

/// Nothing can be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// TLS is not set as it must be.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no thread for it.
    #[error("cannot begin to export: {0}")]
    Thread(#[from] io::Error),
}

/// Exports spans to one receiver. Dropping it ends that at once; [`Exporter::end`] waits a while for what there is.
#[derive(Debug)]
pub struct Exporter {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    receiver: String,
    items: &'static str,
}

#[derive(Debug)]
struct Shared {
    /// What is exported, for people.
    items: &'static str,
    state: Mutex<State>,
    /// There is something to send, or the end has come.
    wake: Notify,
    begun: Instant,
}

#[derive(Debug)]
struct State {
    outbox: Outbox,
    /// What the receiver said last, or what was in the way of asking it; None where all is well.
    problem: Option<String>,
    /// When nothing is sent any more.
    deadline: Option<Duration>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl Exporter {
    /// Begins to export to whom these settings name, as this program.
    pub fn start(settings: Settings, scope: Scope, limits: Limits) -> Result<Self, ExporterError> {
        let (receiver, items) = (settings.receiver(), settings.signal.items());
        let mut sender = Sender::new(settings)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            items,
            state: Mutex::new(State {
                outbox: Outbox::new(limits),
                problem: None,
                deadline: None,
            }),
            wake: Notify::new(),
            begun: Instant::now(),
        });
        let (mine, name) = (Arc::clone(&shared), receiver.clone());
        let thread = thread::Builder::new()
            .name(THREAD.to_string())
            .spawn(move || {
                runtime.block_on(run(&mine, &mut sender, &scope, &name));
                // A name that is looked up for ever is not waited for.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
            receiver,
            items,
        })
    }

    /// Takes spans that belong together, or drops them where too many wait already: false. Returns at once.
    pub fn offer(&self, group: Group) -> bool {
        let offered = self.shared.lock().outbox.offer(group, self.shared.now());
        if offered == Offered::Wakes {
            self.shared.wake.notify_one();
        }
        offered != Offered::Dropped
    }

    /// What became of all spans up to now.
    pub fn counts(&self) -> Counts {
        self.shared.lock().outbox.counts()
    }

    /// What became of those that are counted for this owner.
    pub fn counts_of(&self, owner: u64) -> Counts {
        self.shared.lock().outbox.counts_of(owner)
    }

    /// Forgets what it counted for an owner, who offers nothing any more.
    pub fn forget(&self, owner: u64) {
        self.shared.lock().outbox.forget(owner);
    }

    /// What is in the way, in words; None where the last request was taken whole.
    pub fn problem(&self) -> Option<String> {
        self.shared.lock().problem.clone()
    }

    /// The receiver, as people are told of it.
    pub fn receiver(&self) -> &str {
        &self.receiver
    }

    /// What is exported, for people.
    pub fn items(&self) -> &'static str {
        self.items
    }

    /// Sends what there is, for no longer than this, and says what became of all, and what was in the way, if anything was.
    pub fn end(mut self, within: Duration) -> (Counts, Option<String>) {
        self.finish(within);
        (self.counts(), self.problem())
    }

    fn finish(&mut self, within: Duration) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        {
            let mut state = self.shared.lock();
            state.outbox.hurry();
            state.deadline = Some(self.shared.now() + within);
        }
        self.shared.wake.notify_one();
        // It ends by the deadline; that it panicked is no reason to.
        let _ = thread.join();
        self.shared.lock().outbox.end();
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.finish(Duration::ZERO);
    }
}

/// What there is to do for the thread.
enum Step {
    Send(Arc<ckb_probe_traces::Batch>),
    Wait(Option<Duration>),
    End,
}

fn step(shared: &Shared) -> (Step, Option<Duration>) {
    let now = shared.now();
    let mut state = shared.lock();
    let deadline = state.deadline;
    if deadline.is_some_and(|deadline| deadline <= now) {
        return (Step::End, deadline);
    }
    let step = match state.outbox.next(now) {
        Next::Send(batch) => Step::Send(batch),
        Next::Wait(until) => Step::Wait(Some(deadline.map_or(until, |end| end.min(until)))),
        Next::Nothing if deadline.is_some() => Step::End,
        Next::Nothing => Step::Wait(None),
    };
    (step, deadline)
}

async fn run(shared: &Shared, sender: &mut Sender, scope: &Scope, receiver: &str) {
    loop {
        let (step, _) = step(shared);
        match step {
            Step::End => return,
            Step::Wait(None) => shared.wake.notified().await,
            Step::Wait(Some(until)) => {
                let until = TokioInstant::from_std(shared.begun + until);
                tokio::select! {
                    () = shared.wake.notified() => {}
                    () = sleep_until(until) => {}
                }
            }
            Step::Send(batch) => {
                let message = batch.request(scope);
                drop(batch);
                tokio::select! {
                    answer = sender.send(message) => note(shared, answer, receiver),
                    // Of what is under way nobody will know.
                    () = deadline(shared) => return,
                }
            }
        }
    }
}

/// Waits until nothing is to be sent any more; for ever as long as nobody says when.
async fn deadline(shared: &Shared) {
    loop {
        let deadline = shared.lock().deadline;
        match deadline {
            Some(deadline) => {
                sleep_until(TokioInstant::from_std(shared.begun + deadline)).await;
                return;
            }
            None => shared.wake.notified().await,
        }
    }
}

/// Enters what came of a request, and tells of it where that is new.
fn note(shared: &Shared, answer: Answer, receiver: &str) {
    let now = shared.now();
    let mut state = shared.lock();
    state.outbox.answered(&answer.outcome, now, fastrand::f64());
    let is_well = matches!(answer.outcome, Outcome::Taken { rejected: 0 });
    let was_well = state.problem.is_none();
    // Advice of a receiver that took all is nothing that is in the way.
    state.problem = (!is_well).then(|| answer.message.unwrap_or_else(|| "no reason given".into()));
    let problem = state.problem.clone();
    drop(state);
    match problem {
        Some(problem) if was_well => warn!(receiver, %problem, "{} are not taken", shared.items),
        None if !was_well => info!(receiver, "{} are taken again", shared.items),
        _ => {}
    }
}
