//! Where links are dropped: the kernel takes its time to detach, and nobody should wait for it.
//!
//! What a slice leaves goes at once, whatever else is going: its target pays for it until then, and no slice begins before. All
//! that is measured of a process may be hundreds of links, seconds each: those go one process after another, so that the kernel
//! has time for the others in between.

use std::{
    any::Any,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use super::super::workers::Workers;
use crate::kernel::release_memory;

/// Where so much waits to be dropped in its turn, nothing is begun that would come to wait behind it: the kernel does not detach. Of what
/// slices leave, each process has one at most.
const MOST_WAITING: usize = 128;

/// Drops what it takes, on threads of its own.
#[derive(Clone)]
pub struct Reaper {
    /// None: without a thread things are dropped at once.
    in_order: Option<Sender<Job>>,
    at_once: Workers,
    /// What waits for its turn, or has it.
    waiting: Arc<AtomicUsize>,
    /// What is dropped at once, and not gone yet.
    going: Arc<AtomicUsize>,
}

/// Tells when something is gone.
#[derive(Clone, Debug, Default)]
pub struct DropHandle(Arc<OnceLock<Duration>>);

struct Job {
    thing: Box<dyn Any + Send>,
    taken: Instant,
    receipt: DropHandle,
}

impl Reaper {
    /// Its threads end with the last of the reaper's clones. Where there can be none, things are dropped where they are taken.
    pub fn start() -> Self {
        let (sender, receiver) = channel::<Job>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&waiting);
        let thread = thread::Builder::new()
            .name("reaper".to_string())
            .spawn(move || {
                for job in receiver {
                    job.run();
                    count.fetch_sub(1, Ordering::Release);
                    // What was measured of a process took memory here and there. Kept, it would be more with each that ends.
                    release_memory();
                }
            });
        Self {
            in_order: thread.is_ok().then_some(sender),
            at_once: Workers::default(),
            waiting,
            going: Arc::default(),
        }
    }

    /// Whether all that it took is gone.
    pub fn is_idle(&self) -> bool {
        let all = [&self.waiting, &self.going];
        all.iter().all(|count| count.load(Ordering::Acquire) == 0)
    }

    /// Whether so much waits that no more should be begun.
    pub fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= MOST_WAITING
    }

    /// Takes something to drop at once, beside whatever else is going.
    pub fn take_soon<T: Send + 'static>(&self, thing: T) -> DropHandle {
        let (job, receipt) = Job::new(thing);
        let count = Arc::clone(&self.going);
        count.fetch_add(1, Ordering::Relaxed);
        self.at_once.hand_over(move || {
            job.run();
            count.fetch_sub(1, Ordering::Release);
        });
        receipt
    }

    /// Takes something to drop, after what was taken before.
    pub fn take<T: Send + 'static>(&self, thing: T) -> DropHandle {
        let (job, receipt) = Job::new(thing);
        match &self.in_order {
            Some(sender) => {
                self.waiting.fetch_add(1, Ordering::Relaxed);
                // Without the thread it is dropped here.
                if let Err(job) = sender.send(job) {
                    job.0.run();
                    self.waiting.fetch_sub(1, Ordering::Release);
                }
            }
            None => job.run(),
        }
        receipt
    }
}

impl Job {
    fn new<T: Send + 'static>(thing: T) -> (Self, DropHandle) {
        let receipt = DropHandle::default();
        let job = Self {
            thing: Box::new(thing),
            taken: Instant::now(),
            receipt: receipt.clone(),
        };
        (job, receipt)
    }

    fn run(self) {
        drop(self.thing);
        self.receipt.sign(self.taken.elapsed());
    }
}

impl DropHandle {
    pub(super) fn sign(&self, took: Duration) {
        // The first and only time.
        let _ = self.0.set(took);
    }

    /// How long it took from when the reaper was given the thing until it was gone; None while it is not.
    pub fn took(&self) -> Option<Duration> {
        self.0.get().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_receipt_is_blank_until_the_thing_is_gone() {
        struct Slow(mpsc::Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                // An error is an end, too.
                let _ = self.0.recv();
            }
        }
        let (end, wait) = mpsc::channel();
        let begun = Instant::now();
        let reaper = Reaper::start();
        let slow = reaper.take(Slow(wait));
        let next = reaper.take(());
        // What a slice leaves is not kept waiting.
        let soon = reaper.take_soon(());
        while soon.took().is_none() {
            thread::yield_now();
        }
        assert_eq!((slow.took(), next.took()), (None, None));
        assert!(!reaper.is_idle());
        drop(end);
        while !reaper.is_idle() {
            thread::yield_now();
        }
        assert!(next.took().is_some());
        assert!(slow.took().is_some_and(|took| took <= begun.elapsed()));
        let (end, wait) = mpsc::channel();
        reaper.take_soon(Slow(wait));
        assert!(!reaper.is_idle());
        drop(end);
        while !reaper.is_idle() {
            thread::yield_now();
        }
    }

    #[test]
    fn who_has_too_much_to_drop_is_behind_until_it_is_gone() {
        let (end, wait) = mpsc::channel::<()>();
        struct Slow(mpsc::Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let reaper = Reaper::start();
        let mut last = reaper.take(Slow(wait));
        for _ in 1..MOST_WAITING {
            assert!(!reaper.is_behind());
            last = reaper.take(());
        }
        assert!(reaper.is_behind());
        drop(end);
        while reaper.is_behind() || last.took().is_none() {
            thread::yield_now();
        }
    }

    /// Pages of this process that are in memory, in bytes.
    fn resident() -> u64 {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }

    #[test]
    fn the_memory_of_what_is_gone_is_given_back() {
        const BYTES: usize = 256 << 20;
        let reaper = Reaper::start();
        let mut pieces: Vec<Vec<u8>> = (0..BYTES / 1024).map(|_| vec![1; 1024]).collect();
        // What is still there behind it keeps the allocator from doing that by itself.
        let last = pieces.pop();
        let full = resident();
        let gone = reaper.take(pieces);
        let end = Instant::now() + Duration::from_secs(60);
        while gone.took().is_none() || full.saturating_sub(resident()) < BYTES as u64 / 2 {
            assert!(Instant::now() < end, "{full}, and then {}", resident());
            thread::sleep(Duration::from_millis(1));
        }
        drop(last);
    }

    #[test]
    fn without_a_thread_things_go_at_once() {
        let reaper = Reaper {
            in_order: None,
            ..Reaper::start()
        };
        assert!(reaper.take(()).took().is_some());
    }
}
