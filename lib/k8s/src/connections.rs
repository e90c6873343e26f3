//! Who is connected, and who has to go when there are too many.

use std::{collections::VecDeque, net::IpAddr};

/// Connections, the oldest first.
#[derive(Debug)]
pub struct Connections<T> {
    places: ConnectionLimits,
    present: VecDeque<(IpAddr, T)>,
}

/// How many connections there may be: at least one of each.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// How many there may be in all.
    pub all: usize,
    /// Of one address.
    pub each: usize,
}

impl<T> Connections<T> {
    /// Nobody yet.
    pub fn new(places: ConnectionLimits) -> Self {
        Self {
            places,
            present: VecDeque::with_capacity(places.all),
        }
    }

    /// Forgets those that have gone.
    pub fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        self.present.retain(|(_, guest)| stays(guest));
    }

    /// Lets another one in, and returns who has to go for it: the oldest of its own address where that has its share already;
    /// where all places are taken, the oldest of the address that has the most. So who opens many keeps out nobody
    /// but itself, and whoever comes is let in.
    pub fn admit(&mut self, peer: IpAddr, guest: T) -> Option<T> {
        let peer = peer.to_canonical();
        let crowded = if self.held_by(peer) >= self.places.each {
            Some(peer)
        } else if self.present.len() >= self.places.all {
            self.most_present(peer)
        } else {
            None
        };
        let goes = crowded.and_then(|crowded| {
            let mut present = self.present.iter();
            let oldest = present.position(|(held_by, _)| *held_by == crowded)?;
            self.present.remove(oldest)
        });
        self.present.push_back((peer, guest));
        goes.map(|(_, guest)| guest)
    }

    fn held_by(&self, peer: IpAddr) -> usize {
        self.present.iter().filter(|(by, _)| *by == peer).count()
    }

    /// The address with the most connections, the one that comes counted; among equals, whose oldest is the oldest of all.
    fn most_present(&self, comes: IpAddr) -> Option<IpAddr> {
        let held = |peer| self.held_by(peer) + usize::from(peer == comes);
        let present = self.present.iter().map(|(peer, _)| *peer);
        present.rev().max_by_key(|peer| held(*peer))
    }
}

#[cfg(test)]
mod tests;
