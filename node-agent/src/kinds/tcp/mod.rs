//! `tcp`: TCP connections of the process, by peer, network or port.

mod arguments;

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

pub use arguments::Arguments;
use ckb_probe_crds::kinds::tcp::{
    BUFFER_LIMITED, CLOSED, CONNECTIONS, DROPPED, ESTABLISHED, FAILED, GroupBy, LIFETIME, LISTENING, OPENED,
    RECEIVED, RETRANSMITS, RTT, SEGMENTS, SENT, TcpProbe, WINDOW_LIMITED,
};

use super::Instrument;
use crate::mechanism::CollectorConfig;
use crate::mechanism::tcp::{self, Endpoint, Measures, Naming, Role};

/// The row of sockets that listen, where rows are peers.
const LISTENS: &str = "listening";

/// The port of connections that the process opened, each from a port of its own that says nothing.
const OUTGOING: &str = "outgoing";

/// What is measured of a connection.
pub(crate) const MEASURES: Measures = Measures {
    connections: CONNECTIONS.key(),
    established: ESTABLISHED.key(),
    listening: LISTENING.key(),
    rtt: RTT.key(),
    lifetime: LIFETIME.key(),
    sent: SENT.key(),
    received: RECEIVED.key(),
    segments: SEGMENTS.key(),
    retransmits: RETRANSMITS.key(),
    opened: OPENED.key(),
    closed: CLOSED.key(),
    failed: FAILED.key(),
    dropped: DROPPED.key(),
    window_limited: WINDOW_LIMITED.key(),
    buffer_limited: BUFFER_LIMITED.key(),
};

impl Instrument for TcpProbe {
    fn config(&self) -> CollectorConfig {
        tcp::TcpConfig {
            measures: MEASURES,
            naming: Arc::new(self.clone()),
        }
        .into()
    }
}

impl Naming for TcpProbe {
    fn place(&self, end: &Endpoint) -> Option<(String, Option<String>)> {
        let ports = &self.local_ports;
        if !ports.is_empty() && !ports.contains(&end.local_port) {
            return None;
        }
        let port = match end.role {
            Role::Outgoing => OUTGOING.to_string(),
            Role::Incoming | Role::Listening => end.local_port.to_string(),
        };
        Some(match (self.group_by, end.role) {
            (GroupBy::LocalPort, _) => (port, None),
            (_, Role::Listening) => (LISTENS.to_string(), Some(port)),
            (GroupBy::RemoteAddress, Role::Outgoing) => {
                let address = SocketAddr::new(end.remote, end.remote_port);
                (address.to_string(), Some(port))
            }
            (GroupBy::RemoteAddress, Role::Incoming) => (end.remote.to_string(), Some(port)),
            (GroupBy::RemoteNetwork, _) => (network(end.remote), Some(port)),
        })
    }

    fn parted(&self) -> bool {
        self.group_by != GroupBy::LocalPort
    }
}

/// The network that an address is in: what one operator has, as a rule.
fn network(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(address) => {
            let first = Ipv6Addr::from(address.to_bits() >> 72 << 72);
            format!("{first}/56")
        }
    }
}

#[cfg(test)]
mod tests;
