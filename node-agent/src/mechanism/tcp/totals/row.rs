//! What is counted in a row, or a part of it.

use std::collections::BTreeMap;

use ckb_probe_common::tcp::state;
use ckb_probe_crds::{Distribution, Figures, Name};

use crate::{
    kernel::Socket,
    mechanism::{RowId, tcp::Measures},
};

/// A row, or a part of it.
#[derive(Debug, Default)]
pub struct RowTotals {
    pub row: RowId,
    pub part: Option<RowId>,
    pub connections: u64,
    pub established: u64,
    pub listening: u64,
    pub rtt: Distribution,
    pub lifetime: Distribution,
    pub opened: u64,
    pub closed: u64,
    pub failed: u64,
    pub moved: Moved,
}

/// What only grows while a socket lives: the bytes in 64 bits, and all else in the kernel's 32, which begin anew after the last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moved {
    sent: u64,
    received: u64,
    segments: u64,
    retransmits: u64,
    window_limited: u64,
    buffer_limited: u64,
    drops: u64,
}

/// So many of [`Moved::pairs`] are 64 bits wide, and come first.
const WIDE: usize = 2;

/// How much more it is; more than half of all that there is room for is less.
fn since_in_32_bits(now: u64, last: u64) -> u64 {
    let more = (now as u32).wrapping_sub(last as u32);
    if more <= u32::MAX / 2 { more.into() } else { 0 }
}

impl Moved {
    pub fn of(socket: &Socket) -> Self {
        Self {
            sent: socket.bytes_sent,
            received: socket.bytes_received,
            segments: socket.segments.into(),
            retransmits: socket.retransmits.into(),
            window_limited: socket.window_limited.into(),
            buffer_limited: socket.buffer_limited.into(),
            // Of a connection: what came when it was closed.
            drops: match socket.state {
                state::LISTEN => socket.drops.into(),
                _ => 0,
            },
        }
    }

    fn pairs<'a>(&'a mut self, other: &'a Self) -> [(&'a mut u64, u64); 7] {
        [
            (&mut self.sent, other.sent),
            (&mut self.received, other.received),
            (&mut self.segments, other.segments),
            (&mut self.retransmits, other.retransmits),
            (&mut self.window_limited, other.window_limited),
            (&mut self.buffer_limited, other.buffer_limited),
            (&mut self.drops, other.drops),
        ]
    }

    /// Takes in what is there now, and says how much more that is. A figure that was read while it changed may be less.
    pub fn advance(&mut self, now: &Self) -> Self {
        let mut more = Self::default();
        let none = Self::default();
        let pairs = self.pairs(now).into_iter().zip(more.pairs(&none));
        for (place, ((last, now), (more, _))) in pairs.enumerate() {
            *more = if place < WIDE {
                now.saturating_sub(*last)
            } else {
                since_in_32_bits(now, *last)
            };
            if *more > 0 {
                *last = now;
            }
        }
        more
    }

    pub fn add(&mut self, more: &Self) {
        for (sum, more) in self.pairs(more) {
            *sum = sum.saturating_add(more);
        }
    }
}

impl RowTotals {
    pub fn figures(&self, measures: &Measures, tick_ns: u64) -> Figures {
        let Self {
            row: _,
            part: _,
            connections,
            established,
            listening,
            rtt,
            lifetime,
            opened,
            closed,
            failed,
            moved:
                Moved {
                    sent,
                    received,
                    segments,
                    retransmits,
                    window_limited,
                    buffer_limited,
                    drops,
                },
        } = self;
        let ticks = |count: &u64| count.saturating_mul(tick_ns);
        let named = |pairs: &[(&Name, u64)]| {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| ((*name).clone(), *value))
                .collect()
        };
        Figures {
            sums: named(&[
                (&measures.sent, *sent),
                (&measures.received, *received),
                (&measures.segments, *segments),
                (&measures.retransmits, *retransmits),
                (&measures.opened, *opened),
                (&measures.closed, *closed),
                (&measures.failed, *failed),
                (&measures.dropped, *drops),
                (&measures.window_limited, ticks(window_limited)),
                (&measures.buffer_limited, ticks(buffer_limited)),
            ]),
            maxima: BTreeMap::new(),
            variances: BTreeMap::new(),
            levels: named(&[
                (&measures.connections, *connections),
                (&measures.established, *established),
                (&measures.listening, *listening),
            ]),
            distributions: [
                (measures.rtt.clone(), rtt.clone()),
                (measures.lifetime.clone(), lifetime.clone()),
            ]
            .into(),
        }
    }
}

/// A row of which nothing is known.
pub fn blank(measures: &Measures) -> Figures {
    RowTotals::default().figures(measures, 0)
}
