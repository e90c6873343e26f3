//! `tcp`: the TCP connections of the process: who its peers are, and how well it hears them.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

mod descriptor;

pub use descriptor::{
    BUFFER_LIMITED, CLOSED, CONNECTIONS, DESCRIPTOR, DROPPED, ESTABLISHED, FAILED, LIFETIME, LISTENING,
    OPENED, RECEIVED, RETRANSMITS, RTT, SEGMENTS, SENT, WINDOW_LIMITED,
};

/// TCP connections of the process, over IPv4 and IPv6: number, round-trip times, bytes, retransmits, failures and lifetimes.
#[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpProbe {
    /// By what connections are grouped into rows. There are at most 128 rows for each target; what comes later counts in
    /// `other`.
    #[serde(default)]
    pub group_by: GroupBy,

    /// Only connections to these ports of the process, and these listening ports, such as 8115 (P2P) or 8114 (RPC) of CKB.
    /// Connections that the process itself opened have other ports. Empty: all connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    #[x_kube(merge_strategy = ListMerge::Set)]
    #[x_kube(validation = Rule::new("self.all(port, port >= 1 && port <= 65535)")
        .message("tcp.localPorts must be ports from 1 to 65535, such as 8115"))]
    pub local_ports: Vec<u16>,
}

/// What connections have in common that count in one row.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, JsonSchema, PartialEq, Serialize)]
#[derive(IntoStaticStr, VariantArray, strum::Display)]
pub enum GroupBy {
    /// The peer's address: with its port where the process connected to it (`10.1.2.3:8115`), without where the peer
    /// connected, from whatever port (`10.1.2.3`).
    #[default]
    RemoteAddress,
    /// The network that the peer is in: the first 24 bits of an IPv4 address, the first 56 of an IPv6 address.
    RemoteNetwork,
    /// The port of the process: one row for each that it listens on, and `outgoing` for the connections that it opened.
    LocalPort,
}

impl GroupBy {
    /// Every way to group.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// The word in the spec.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

impl std::str::FromStr for GroupBy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let plain = text.replace(['-', '_'], "");
        let mut all = Self::ALL.iter().copied();
        all.find(|one| one.as_str().eq_ignore_ascii_case(&plain))
            .ok_or_else(|| {
                let known = Self::ALL.iter().map(|one| one.as_str()).collect::<Vec<_>>();
                let known = known.join(", ");
                format!("cannot group by {text:?}: there are {known}")
            })
    }
}
