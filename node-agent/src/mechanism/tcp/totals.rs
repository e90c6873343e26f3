//! What the sockets of a process did, by row: made of what was seen of each of them. Pure.

mod folded;
mod row;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use ckb_probe_common::tcp::{CLOSED, INCOMING, MAX_TOLD, OPENED, OUTGOING, family, state};
use ckb_probe_crds::{
    Distribution,
    histogram::bucket,
    report::{MAX_ROWS, OTHER},
};

use indexmap::IndexMap;

use super::{Endpoint, Measures, Naming, Role};
use crate::{
    kernel::Socket,
    mechanism::{RowId, RowReading},
};
use folded::Folded;
pub use row::blank;
use row::{Moved, RowTotals};

/// Parts of a row that are told apart: ports that a process listens on are few.
const MAX_PARTS: usize = 16;

/// Sockets that are known at a time, at most: as many as two passes tell of.
pub const MAX_KNOWN: usize = 2 * MAX_TOLD as usize;

/// What the kernel keeps with a socket of a process on the agent's account: a storage, and an element of it, each in a slab of the next
/// power of two (struct bpf_local_storage and bpf_local_storage_elem of Linux 6.1 to 6.18).
const KEPT_BYTES: usize = 256 + 128;

/// A connection that the process has closed, and of whose end the kernel does not tell, is forgotten.
const FORGOTTEN_NS: u64 = 20 * 60 * 1_000_000_000;

/// What the sockets of a process did since the ledger was made.
#[derive(Debug)]
pub struct SocketTotals {
    naming: Arc<dyn Naming>,
    tick_ns: u64,
    /// What began before this is counted from where it stood when it was seen first.
    since_ns: u64,
    passes: u32,
    /// By cookie, in the order in which the last pass came by. The next comes by in much the same, and so goes through memory from
    /// one end to the other: of ten thousand none is in the caches.
    known: IndexMap<u64, Known>,
    /// Ports that the process listens on.
    listening: BTreeSet<u16>,
    /// Places by row and part.
    places: BTreeMap<(String, Option<String>), usize>,
    rows: Vec<RowTotals>,
    /// Each row's number.
    names: BTreeMap<String, u64>,
    /// What of them there was no room for.
    folded: Folded,
    /// So many may be known.
    most: usize,
    /// Of how many sockets there was more to tell than there is memory for.
    lost: u64,
    /// How many sockets a pass left out at most: one after the other leaves out much the same.
    left_out: u64,
    /// How many the next pass left out before it was told here.
    untold: u64,
}

/// A socket that was seen before.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The place of its row; None where it is not asked for.
    place: Option<usize>,
    last: Moved,
    opened: bool,
    established: bool,
    seen: u32,
    seen_ns: u64,
}

impl SocketTotals {
    /// An empty one, of a kernel with such ticks.
    pub fn new(naming: Arc<dyn Naming>, tick: Duration) -> Self {
        Self {
            naming,
            tick_ns: tick.as_nanos() as u64,
            since_ns: 0,
            passes: 0,
            known: IndexMap::new(),
            listening: BTreeSet::new(),
            places: BTreeMap::new(),
            rows: Vec::new(),
            names: BTreeMap::new(),
            folded: Folded::default(),
            most: MAX_KNOWN,
            lost: 0,
            left_out: 0,
            untold: 0,
        }
    }

    /// How many bytes it takes to know so many sockets beside those that are known: what is known of them, where that is found, and
    /// what the kernel keeps.
    pub fn bytes_with(&self, more: usize) -> u64 {
        // What grows doubles.
        let each = 2 * (size_of::<Known>() + 3 * size_of::<u64>()) + KEPT_BYTES;
        ((self.known.len() + more).min(MAX_KNOWN) * each) as u64
    }

    /// Knows so many sockets at most, or those that it knows.
    pub fn bound(&mut self, most: usize) {
        self.most = most.min(MAX_KNOWN);
    }

    /// How many sockets are known.
    pub fn known(&self) -> usize {
        self.known.len()
    }

    /// So many sockets were left out of the pass that is about to be told.
    pub fn leave_out(&mut self, sockets: u64) {
        self.untold = sockets;
    }

    /// How many sockets there was no memory for.
    pub fn lost(&self) -> u64 {
        self.lost.saturating_add(self.left_out)
    }

    /// From this time on: what was there before counts from where it stands at the first pass to come.
    pub fn begin(&mut self, now_ns: u64) {
        self.since_ns = now_ns;
        self.known.clear();
    }

    /// All sockets that are open.
    pub fn pass(&mut self, sockets: &[Socket]) {
        self.passes = self.passes.wrapping_add(1);
        for row in &mut self.rows {
            row.connections = 0;
            row.established = 0;
            row.listening = 0;
        }
        let mut new: Vec<&Socket> = Vec::new();
        let mut next = 0;
        for socket in sockets.iter().filter(|one| one.state != state::CLOSE) {
            match self.find(socket, next) {
                // Another descriptor of one that was seen.
                Some(place) if place < next => {}
                Some(place) => {
                    self.known.swap_indices(place, next);
                    self.see(socket, next);
                    next += 1;
                }
                None => new.push(socket),
            }
        }
        let listening = sockets.iter().filter(|one| one.state == state::LISTEN);
        self.listening = listening.map(|one| one.local_port).collect();
        self.meet(new);
        let now = sockets.iter().map(|socket| socket.time_ns).max();
        if let Some(now) = now {
            self.known
                .retain(|_, known| now.saturating_sub(known.seen_ns) < FORGOTTEN_NS);
        }
    }

    /// A socket that was established, or closed: then with its last figures.
    pub fn changed(&mut self, socket: &Socket) {
        // While nothing was recorded: the programs go on for a moment after they were told to stop.
        if socket.time_ns < self.since_ns {
            return;
        }
        match socket.event {
            OPENED => self.opened(socket),
            CLOSED => self.closed(socket),
            _ => {}
        }
    }

    fn opened(&mut self, socket: &Socket) {
        if !self.known.contains_key(&socket.cookie) && self.know(socket).is_none() {
            self.lost += 1;
            return;
        }
        let Some(known) = self.known.get_mut(&socket.cookie) else {
            return;
        };
        let place = known.place.filter(|_| !known.opened);
        known.opened = true;
        if let Some(row) = place.and_then(|place| self.rows.get_mut(place)) {
            row.opened += 1;
        }
    }

    fn closed(&mut self, socket: &Socket) {
        if !self.known.contains_key(&socket.cookie) && self.know(socket).is_none() {
            self.lost += 1;
            return;
        }
        let Some(mut known) = self.known.swap_remove(&socket.cookie) else {
            return;
        };
        let more = known.last.advance(&Moved::of(socket));
        let Some(row) = known.place.and_then(|place| self.rows.get_mut(place)) else {
            return;
        };
        row.moved.add(&more);
        if known.seen == self.passes && self.passes > 0 {
            // It stood in the levels.
            row.connections = row.connections.saturating_sub(1);
            row.established = row.established.saturating_sub(known.established.into());
        }
        if socket.state == state::SYN_SENT {
            row.failed += 1;
            return;
        }
        row.opened += u64::from(!known.opened && is_since(socket.established_ns, self.since_ns));
        row.closed += 1;
        if socket.established_ns == 0 {
            row.lifetime.unmeasured += 1;
        } else {
            let lifetime = socket.time_ns.saturating_sub(socket.established_ns);
            measure(&mut row.lifetime, lifetime);
        }
    }

    /// What there is to tell.
    pub fn reading(&self, measures: &Measures) -> Vec<RowReading> {
        let rows = self.rows.iter();
        rows.map(|row| RowReading {
            row: Some(row.row.clone()),
            part: row.part.clone(),
            figures: row.figures(measures, self.tick_ns),
            folded: self.folded.parts_of(row),
        })
        .collect()
    }

    /// How many rows count in `other`, since there is no room to tell them apart.
    pub fn folded(&self) -> u64 {
        self.folded.rows()
    }

    /// Takes in sockets that were not known: first those that matter most, as rows are bounded.
    fn meet(&mut self, mut new: Vec<&Socket>) {
        new.sort_by_key(|socket| {
            let moved = socket.bytes_sent.saturating_add(socket.bytes_received);
            Reverse((socket.state == state::LISTEN, moved))
        });
        let mut left_out = std::mem::take(&mut self.untold);
        for socket in new {
            // Another descriptor of the same is known by then.
            let place = match self.known.get_index_of(&socket.cookie) {
                Some(place) => Some(place),
                None => self.know(socket),
            };
            match place {
                Some(place) => self.see(socket, place),
                None => left_out += 1,
            }
        }
        self.left_out = self.left_out.max(left_out);
    }

    /// Where a socket is among those that are known: most likely here.
    fn find(&self, socket: &Socket, likely: usize) -> Option<usize> {
        match self.known.get_index(likely) {
            Some((cookie, _)) if *cookie == socket.cookie => Some(likely),
            _ => self.known.get_index_of(&socket.cookie),
        }
    }

    /// Sees a socket for the first time. Where it is among those that are known; None where there is no room for it.
    fn know(&mut self, socket: &Socket) -> Option<usize> {
        if self.known.len() >= self.most {
            return None;
        }
        let place = self.place(&endpoint(socket, &self.listening));
        let began_since = is_since(socket.began_ns, self.since_ns);
        let known = Known {
            place,
            last: if began_since {
                Moved::default()
            } else {
                Moved::of(socket)
            },
            opened: false,
            established: false,
            seen: self.passes.wrapping_sub(1),
            seen_ns: socket.time_ns,
        };
        Some(self.known.insert_full(socket.cookie, known).0)
    }

    /// Sees a socket in a pass that is known in this place.
    fn see(&mut self, socket: &Socket, place: usize) {
        // Another descriptor of the same may have been seen.
        let known = self.known.get_index_mut(place);
        let Some((_, known)) = known.filter(|(_, known)| known.seen != self.passes) else {
            return;
        };
        known.seen = self.passes;
        known.seen_ns = socket.time_ns;
        let more = known.last.advance(&Moved::of(socket));
        let Some(row) = known.place.and_then(|place| self.rows.get_mut(place)) else {
            return;
        };
        row.moved.add(&more);
        if socket.state == state::LISTEN {
            row.listening += 1;
            return;
        }
        row.connections += 1;
        known.established = socket.state == state::ESTABLISHED;
        if known.established {
            row.established += 1;
            if socket.rtt > 0 {
                measure(&mut row.rtt, u64::from(socket.rtt) * 125);
            }
        }
        if !known.opened && is_since(socket.established_ns, self.since_ns) {
            known.opened = true;
            row.opened += 1;
        }
    }

    fn place(&mut self, end: &Endpoint) -> Option<usize> {
        let (row, part) = self.naming.place(end)?;
        let room = self.names.len() + 1 < MAX_ROWS || self.names.contains_key(&row);
        let row = if room {
            row
        } else {
            self.folded.row(&row);
            OTHER.to_string()
        };
        let key = (row, part);
        if let Some(place) = self.places.get(&key) {
            return Some(*place);
        }
        let (row, part) = key;
        let parts = self.rows.iter().filter(|known| known.row.text == row);
        let part = match part {
            Some(own) if parts.count() + 1 >= MAX_PARTS => {
                self.folded.part(&row, &own);
                Some(OTHER.to_string())
            }
            part => part,
        };
        if let Some(place) = self.places.get(&(row.clone(), part.clone())) {
            return Some(*place);
        }
        let number = self.names.len() as u64;
        let number = *self.names.entry(row.clone()).or_insert(number);
        let place = self.rows.len();
        self.rows.push(RowTotals {
            row: RowId {
                place: number,
                number: 0,
                text: row.clone(),
            },
            part: part.clone().map(|text| RowId {
                place: place as u64,
                number: 0,
                text,
            }),
            ..RowTotals::default()
        });
        self.places.insert((row, part), place);
        Some(place)
    }
}

/// Whether it is known to have been since then.
fn is_since(time_ns: u64, since_ns: u64) -> bool {
    time_ns != 0 && time_ns >= since_ns
}

fn measure(values: &mut Distribution, nanos: u64) {
    values.histogram.add(bucket(nanos), 1);
    values.sum = values.sum.saturating_add(nanos);
}

/// What a socket is. One whose beginning was not seen was accepted if the process listens on its port.
fn endpoint(socket: &Socket, listening: &BTreeSet<u16>) -> Endpoint {
    let role = match (socket.state, socket.direction) {
        (state::LISTEN, _) => Role::Listening,
        (_, OUTGOING) => Role::Outgoing,
        (_, INCOMING) => Role::Incoming,
        _ if listening.contains(&socket.local_port) => Role::Incoming,
        _ => Role::Outgoing,
    };
    Endpoint {
        role,
        remote: address(socket.family, socket.remote),
        remote_port: socket.remote_port,
        local_port: socket.local_port,
    }
}

/// An address: IPv4 within IPv6 is IPv4.
fn address(of: u8, bytes: [u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    match of {
        family::INET6 => Ipv6Addr::from(bytes).to_canonical(),
        _ => Ipv4Addr::new(a, b, c, d).into(),
    }
}

#[cfg(test)]
mod tests;
