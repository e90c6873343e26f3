//! Threads for what may take its time, the kernel's or that of a file system that does not answer any more: whoever asks goes on,
//! and fetches what came of it.
//!
//! There are as many as are busy at once, and one that has nothing to do for a while ends. One that never comes back ends with
//! what it waits for, or with the process; it holds nothing that others need.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering},
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use crate::{kernel::release_memory, share};

/// A thread without work ends after so long.
const IDLE: Duration = Duration::from_secs(5);

/// So many may have been given up and still be under way, of which a namespace has half at most: more is not begun for it.
const MOST_STUCK: usize = 32;

type Job = Box<dyn FnOnce() + Send>;

/// The threads.
#[derive(Clone, Default)]
pub struct Workers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    done: Notify,
    /// How many were given up and are still under way, by the namespace.
    stuck: Mutex<BTreeMap<Arc<str>, usize>>,
    threads: Threads,
}

/// Where threads come from, and what one does before it ends.
struct Threads {
    begin: fn(Box<dyn FnOnce() + Send>) -> io::Result<()>,
    end: fn(),
}

impl Default for Threads {
    fn default() -> Self {
        Self {
            begin: |work| {
                let thread = thread::Builder::new().name("worker".to_string());
                thread.spawn(work).map(drop)
            },
            // To attach takes memory that nobody needs afterwards, and the allocator would keep it: a megabyte with ten targets.
            end: release_memory,
        }
    }
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
}

/// Something that is being done. Whoever drops it has given it up: what comes of it is dropped where it is done.
pub struct Errand<T> {
    outcome: Receiver<T>,
    began: Instant,
    ticket: Arc<Ticket>,
}

/// How an errand stands.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// This came of it.
    Done(T),
    /// It is still being done.
    UnderWay,
    /// Nothing comes of it any more: its thread panicked.
    Lost,
}

/// Whether anybody wants what comes of an errand, as whoever does it asks before it does what costs others.
pub struct Wanted(Arc<Ticket>);

impl Wanted {
    /// It was neither given up nor [let go](Errand::let_go).
    pub fn is_wanted(&self) -> bool {
        !self.0.unwanted.load(Ordering::Acquire)
    }
}

/// An errand as those know it who count them.
struct Ticket {
    fate: AtomicU8,
    unwanted: AtomicBool,
    namespace: Arc<str>,
    shared: Arc<Shared>,
}

const UNDER_WAY: u8 = 0;
const DONE: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Ends an errand, also where its thread panics.
struct End(Arc<Ticket>);

impl Drop for End {
    fn drop(&mut self) {
        let Ticket {
            fate,
            namespace,
            shared,
            ..
        } = &*self.0;
        if fate.swap(DONE, Ordering::AcqRel) == GIVEN_UP {
            shared.comes_back(namespace);
        }
        shared.done.notify_one();
    }
}

impl Workers {
    /// Has this done at once, whatever else is being done.
    pub fn start<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Errand<T> {
        self.start_for(&Arc::default(), work)
    }

    /// The same on behalf of a namespace, which answers for it where it is given up.
    pub fn start_for<T: Send + 'static>(
        &self,
        namespace: &Arc<str>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Errand<T> {
        self.start_wanted(namespace, |_| work())
    }

    /// The same of what may end early, where nobody wants it any more.
    pub fn start_wanted<T: Send + 'static>(
        &self,
        namespace: &Arc<str>,
        work: impl FnOnce(&Wanted) -> T + Send + 'static,
    ) -> Errand<T> {
        let (sender, outcome) = sync_channel(1);
        let ticket = Arc::new(Ticket {
            fate: AtomicU8::new(UNDER_WAY),
            unwanted: AtomicBool::new(false),
            namespace: Arc::clone(namespace),
            shared: Arc::clone(&self.0),
        });
        let (end, wanted) = (End(Arc::clone(&ticket)), Wanted(Arc::clone(&ticket)));
        self.run(Box::new(move || {
            // Dropped in this order, also where it panics: whoever is told that it is done finds what came of it.
            let (_end, sender) = (end, sender);
            drop(sender.send(work(&wanted)));
        }));
        Errand {
            outcome,
            began: Instant::now(),
            ticket,
        }
    }

    /// The same of what nobody asks after.
    pub fn hand_over(&self, work: impl FnOnce() + Send + 'static) {
        self.run(Box::new(work));
    }

    /// Has this done, and waits for it without keeping a thread; None where that panicked. Nobody else is to wait by these workers.
    pub async fn done<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let errand = self.start(work);
        loop {
            match errand.outcome() {
                Outcome::Done(done) => return Some(done),
                Outcome::Lost => return None,
                Outcome::UnderWay => self.any_done().await,
            }
        }
    }

    /// Waits until something that was started is done.
    pub async fn any_done(&self) {
        self.0.done.notified().await;
    }

    /// Whether so many were given up that no more should be begun for this namespace that may come to the same.
    pub fn are_stuck(&self, namespace: &str) -> bool {
        let stuck = self.0.stuck();
        let held = stuck.get(namespace).copied().unwrap_or_default();
        let left = MOST_STUCK.saturating_sub(stuck.values().sum());
        !share::may_take(held, 1, left)
    }

    fn run(&self, job: Job) {
        let mut queue = self.0.queue();
        queue.jobs.push_back(job);
        if queue.idle >= queue.jobs.len() {
            self.0.work.notify_one();
            return;
        }
        drop(queue);
        let shared = Arc::clone(&self.0);
        let begin = self.0.threads.begin;
        if begin(Box::new(move || shared.work())).is_err() {
            // Without threads it is done here.
            let job = self.0.queue().jobs.pop_back();
            job.into_iter().for_each(|job| job());
        }
    }
}

impl Shared {
    fn stuck(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, usize>> {
        // Nothing panics while it is held.
        self.stuck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_given_up(&self, namespace: &Arc<str>) {
        *self.stuck().entry(Arc::clone(namespace)).or_default() += 1;
    }

    fn comes_back(&self, namespace: &str) {
        let mut all = self.stuck();
        if let Some(stuck) = all.get_mut(namespace) {
            *stuck -= 1;
            if *stuck == 0 {
                all.remove(namespace);
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics while it is held.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
        (self.threads.end)();
    }

    /// The next job; None where none comes for a while.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            queue.idle += 1;
            let waited = self.work.wait_timeout(queue, IDLE);
            let (held, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            queue = held;
            queue.idle -= 1;
            if timeout.timed_out() && queue.jobs.is_empty() {
                return None;
            }
        }
    }
}

impl<T> Errand<T> {
    /// Nobody wants what comes of it any more. It is waited for all the same.
    pub fn let_go(&self) {
        self.ticket.unwanted.store(true, Ordering::Release);
    }

    /// How long it has been under way.
    pub fn lasts(&self) -> Duration {
        self.began.elapsed()
    }

    /// What came of it, which is told once.
    pub fn outcome(&self) -> Outcome<T> {
        self.within(Duration::ZERO)
    }

    /// The same; waits for it until it has been under way for so long.
    pub fn within(&self, patience: Duration) -> Outcome<T> {
        let patience = patience.saturating_sub(self.lasts());
        match self.outcome.recv_timeout(patience) {
            Ok(outcome) => Outcome::Done(outcome),
            Err(RecvTimeoutError::Timeout) => Outcome::UnderWay,
            Err(RecvTimeoutError::Disconnected) => Outcome::Lost,
        }
    }
}

impl<T> Drop for Errand<T> {
    fn drop(&mut self) {
        self.let_go();
        let Ticket {
            fate,
            namespace,
            shared,
            ..
        } = &*self.ticket;
        // Counted first: whoever ends it meanwhile takes it back.
        shared.is_given_up(namespace);
        let before =
            fate.compare_exchange(UNDER_WAY, GIVEN_UP, Ordering::AcqRel, Ordering::Acquire);
        if before.is_err() {
            shared.comes_back(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn where_there_are_no_threads_any_more_it_is_done_by_who_asks() {
        let shared = Shared {
            threads: Threads {
                begin: |_| Err(io::ErrorKind::WouldBlock.into()),
                ..Threads::default()
            },
            ..Shared::default()
        };
        let workers = Workers(Arc::new(shared));
        let own = thread::current().id();
        let by = workers.done(|| thread::current().id()).await;
        assert_eq!(by, Some(own));
        assert!(workers.0.queue().jobs.is_empty());
    }

    #[test]
    fn a_thread_without_work_gives_back_the_memory_of_what_it_did() {
        static ENDED: AtomicU8 = AtomicU8::new(0);
        let shared = Shared {
            threads: Threads {
                end: || {
                    ENDED.fetch_add(1, Ordering::AcqRel);
                },
                ..Threads::default()
            },
            ..Shared::default()
        };
        let workers = Workers(Arc::new(shared));
        assert_eq!(workers.start(|| 7).within(SOON), Outcome::Done(7));
        let began = Instant::now();
        while ENDED.load(Ordering::Acquire) == 0 && began.elapsed() < SOON {
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(ENDED.load(Ordering::Acquire), 1);
    }

    #[tokio::test]
    async fn what_is_done_elsewhere_is_waited_for_and_so_is_what_panics() {
        let workers = Workers::default();
        assert_eq!(workers.done(|| 7).await, Some(7));
        let panics = || std::panic::resume_unwind(Box::new(()));
        assert_eq!(workers.done::<()>(panics).await, None);
        assert_eq!(workers.done(|| 8).await, Some(8));
    }

    #[test]
    fn what_never_ends_keeps_nobody_waiting() {
        let workers = Workers::default();
        let (release, held) = channel::<()>();
        let stuck = workers.start(move || held.recv().is_err());
        let other = workers.start(|| 7);
        assert_eq!(other.within(SOON), Outcome::Done(7));
        assert_eq!(stuck.outcome(), Outcome::UnderWay);
        drop(release);
        assert_eq!(stuck.within(SOON), Outcome::Done(true));
    }

    #[test]
    fn what_is_given_up_counts_until_it_ends_and_leaves_nothing_behind() {
        struct Kept(std::sync::mpsc::Sender<thread::ThreadId>);
        impl Drop for Kept {
            fn drop(&mut self) {
                let _ = self.0.send(thread::current().id());
            }
        }
        let workers = Workers::default();
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (dropped, drops) = channel();
        // One namespace keeps itself waiting, and others only where each of several does the same.
        for (namespace, most) in [("one", 16), ("other", 8)] {
            for _ in 0..most {
                assert!(!workers.are_stuck(namespace));
                let (held, kept) = (Arc::clone(&held), Kept(dropped.clone()));
                drop(workers.start_for(&namespace.into(), move || {
                    let _ = held.lock().map(|held| held.recv());
                    kept
                }));
            }
            assert!(workers.are_stuck(namespace));
        }
        assert!(!workers.are_stuck("third"));
        drop(release);
        for _ in 0..16 + 8 {
            assert_ne!(drops.recv_timeout(SOON).unwrap(), thread::current().id());
        }
        while !workers.0.stuck().is_empty() {
            thread::yield_now();
        }
    }

    #[test]
    fn whoever_works_knows_whether_that_is_wanted() {
        let workers = Workers::default();
        let (turn, turns) = channel::<()>();
        let (say, said) = channel();
        let work = move |wanted: &Wanted| {
            for () in turns {
                let _ = say.send(wanted.is_wanted());
            }
        };
        let errand = workers.start_wanted(&"one".into(), work);
        let next = || {
            turn.send(()).unwrap();
            said.recv_timeout(SOON).unwrap()
        };
        assert!(next());
        errand.let_go();
        assert!(!next());
        assert_eq!(errand.outcome(), Outcome::UnderWay);
        // Given up, it is not wanted either.
        let (say, said) = channel();
        let (release, held) = channel::<()>();
        drop(workers.start_wanted(&"one".into(), move |wanted| {
            let _ = held.recv();
            let _ = say.send(wanted.is_wanted());
        }));
        drop(release);
        assert!(!said.recv_timeout(SOON).unwrap());
    }

    #[test]
    fn a_panic_is_told() {
        let workers = Workers::default();
        let lost = workers.start(|| assert!(std::hint::black_box(false), "on purpose"));
        assert_eq!(lost.within(SOON), Outcome::Lost);
        assert_eq!(workers.start(|| 1).within(SOON), Outcome::Done(1));
    }

    #[tokio::test]
    async fn whoever_waits_is_told() {
        let workers = Workers::default();
        let errand = workers.start(|| 3);
        workers.any_done().await;
        assert_eq!(errand.outcome(), Outcome::Done(3));
    }
}
