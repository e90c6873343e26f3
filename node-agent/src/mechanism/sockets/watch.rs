//! What the watchers of all processes share: one set of programs, the cost of which is theirs in equal parts.

use std::collections::BTreeMap;

use ckb_probe_common::sockets::Met;

use crate::kernel::{AttachError, Links, Passes, ReadError, Socket, SocketWatch};

/// What waits for a watcher to take it, at most: 3 MiB.
const MAX_CHANGED: usize = 32 << 10;

/// The programs, and those who watch by them.
pub struct Watch {
    kernel: SocketWatch,
    watchers: BTreeMap<u64, Watcher>,
    entered: u64,
    /// What was shared out.
    met: Met,
    /// What could not be shared out evenly.
    left: u64,
}

#[derive(Default)]
struct Watcher {
    process: u32,
    watches: bool,
    changed: Vec<Socket>,
    hits: u64,
    lost: u64,
}

impl Watch {
    /// Loads the programs.
    pub fn load() -> Result<Self, AttachError> {
        Ok(Self {
            kernel: SocketWatch::load()?,
            watchers: BTreeMap::new(),
            entered: 0,
            met: Met::default(),
            left: 0,
        })
    }

    /// What goes through the sockets of a process.
    pub fn over(&self, process: u32) -> Result<Passes, AttachError> {
        self.kernel.over(process)
    }

    /// One more watcher, which does not watch yet.
    pub fn enter(&mut self, process: u32) -> u64 {
        self.entered += 1;
        let watcher = Watcher {
            process,
            ..Watcher::default()
        };
        self.watchers.insert(self.entered, watcher);
        self.entered
    }

    /// Has it watch.
    pub fn resume(&mut self, watcher: u64) -> Result<(), AttachError> {
        self.share_out()?;
        let Some(own) = self.watchers.get_mut(&watcher) else {
            return Ok(());
        };
        own.watches = true;
        self.kernel.add(own.process)?;
        self.kernel.attach()
    }

    /// Has it watch no more, and hands back the links if nobody else does.
    pub fn pause(&mut self, watcher: u64) -> Option<Links> {
        // What cannot be read now was not spent.
        let _ = self.share_out();
        let own = self.watchers.get_mut(&watcher)?;
        own.watches = false;
        own.changed.clear();
        let process = own.process;
        let mut watching = self.watchers.values().filter(|one| one.watches);
        if !watching.clone().any(|one| one.process == process) {
            self.kernel.remove(process);
        }
        if watching.next().is_some() {
            return None;
        }
        self.kernel.detach()
    }

    /// Removes a watcher; hands back the links if it was the last.
    pub fn leave(&mut self, watcher: u64) -> Option<Links> {
        let links = self.pause(watcher);
        self.watchers.remove(&watcher);
        links
    }

    /// Takes the sockets of its process that were established or closed while it watched.
    pub fn changed(&mut self, watcher: u64) -> Vec<Socket> {
        self.deliver();
        let own = self.watchers.get_mut(&watcher);
        own.map(|own| std::mem::take(&mut own.changed))
            .unwrap_or_default()
    }

    /// Hands what the kernel tells to those whom it concerns.
    fn deliver(&mut self) {
        for changed in self.kernel.changed() {
            let watchers = self.watchers.values_mut();
            let concerned = watchers.filter(|one| one.watches && one.process == changed.process);
            for one in concerned {
                if one.changed.len() < MAX_CHANGED {
                    one.changed.push(changed);
                } else {
                    one.lost += 1;
                }
            }
        }
    }

    /// Its part of how often the programs ran while it watched.
    pub fn hits(&mut self, watcher: u64) -> Result<u64, ReadError> {
        // Asked often, and so the kernel's room lasts.
        self.deliver();
        self.share_out()?;
        Ok(self.watchers.get(&watcher).map_or(0, |own| own.hits))
    }

    /// How many sockets that were established or closed it was not told of while it watched: its own or others', nobody knows.
    pub fn lost(&mut self, watcher: u64) -> Result<u64, ReadError> {
        self.share_out()?;
        Ok(self.watchers.get(&watcher).map_or(0, |own| own.lost))
    }

    fn share_out(&mut self) -> Result<(), ReadError> {
        let met = self.kernel.met()?;
        let changes = met.changes.saturating_sub(self.met.changes) + self.left;
        let lost = met.lost.saturating_sub(self.met.lost);
        self.met = met;
        let watching = self.watchers.values_mut().filter(|one| one.watches);
        let watching: Vec<&mut Watcher> = watching.collect();
        let many = watching.len() as u64;
        if many == 0 {
            self.left = 0;
            return Ok(());
        }
        self.left = changes % many;
        for one in watching {
            one.hits += changes / many;
            one.lost += lost;
        }
        Ok(())
    }
}
