//! Where links are dropped: the kernel takes its time to detach, and nobody should wait for it.

use std::{
    any::Any,
    sync::mpsc::{Sender, channel},
    thread,
};

/// Drops what it takes on a thread of its own, in order.
#[derive(Clone)]
pub struct Reaper(Option<Sender<Box<dyn Any + Send>>>);

impl Reaper {
    /// The thread ends with the last of the reaper's clones. Where there can be none, things are dropped at once.
    pub fn start() -> Self {
        let (sender, receiver) = channel::<Box<dyn Any + Send>>();
        let thread = thread::Builder::new()
            .name("reaper".to_string())
            .spawn(move || receiver.into_iter().for_each(drop));
        Self(thread.is_ok().then_some(sender))
    }

    /// Takes something to drop.
    pub fn take<T: Send + 'static>(&self, thing: T) {
        if let Some(sender) = &self.0 {
            // Without the thread it is dropped here.
            let _ = sender.send(Box::new(thing));
        }
    }
}
