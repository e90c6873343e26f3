//! Where links are dropped: the kernel takes its time to detach, and nobody should wait for it.

use std::{
    any::Any,
    sync::{
        Arc, OnceLock,
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Drops what it takes on a thread of its own, in order.
#[derive(Clone)]
pub struct Reaper(Option<Sender<Job>>);

/// Tells when something is gone.
#[derive(Clone, Debug, Default)]
pub struct Receipt(Arc<OnceLock<Duration>>);

struct Job {
    thing: Box<dyn Any + Send>,
    taken: Instant,
    receipt: Receipt,
}

impl Reaper {
    /// The thread ends with the last of the reaper's clones. Where there can be none, things are dropped at once.
    pub fn start() -> Self {
        let (sender, receiver) = channel::<Job>();
        let thread = thread::Builder::new()
            .name("reaper".to_string())
            .spawn(move || receiver.into_iter().for_each(Job::run));
        Self(thread.is_ok().then_some(sender))
    }

    /// Takes something to drop.
    pub fn take<T: Send + 'static>(&self, thing: T) -> Receipt {
        let receipt = Receipt::default();
        let job = Job {
            thing: Box::new(thing),
            taken: Instant::now(),
            receipt: receipt.clone(),
        };
        match &self.0 {
            Some(sender) => {
                // Without the thread it is dropped here.
                if let Err(job) = sender.send(job) {
                    job.0.run();
                }
            }
            None => job.run(),
        }
        receipt
    }
}

impl Job {
    fn run(self) {
        drop(self.thing);
        self.receipt.sign(self.taken.elapsed());
    }
}

impl Receipt {
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
        assert_eq!((slow.took(), next.took()), (None, None));
        drop(end);
        while next.took().is_none() {
            thread::yield_now();
        }
        assert!(slow.took().is_some_and(|took| took <= begun.elapsed()));
    }

    #[test]
    fn without_a_thread_things_go_at_once() {
        assert!(Reaper(None).take(()).took().is_some());
    }
}
