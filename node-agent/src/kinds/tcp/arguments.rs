//! What the command line takes for `tcp`.

use ckb_probe_crds::{
    KindSpec,
    kinds::tcp::{GroupBy, TcpProbe},
};
use clap::Args;

use crate::kinds::Asking;

/// TCP connections of the process.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe tcp                                        each peer: round trips, bytes, retransmits\n  \
    ckb-probe tcp --group-by local-port                  P2P (8115) and RPC (8114) told apart\n  \
    ckb-probe tcp --group-by remote-network --local-ports 8115\n  \
    ckb-probe tcp --pid 1234 --duration 1m --json")]
pub struct Arguments {
    /// By what connections are grouped into rows: remote-address, remote-network (/24, or /56 for IPv6) or local-port.
    #[arg(long, default_value = "remote-address")]
    group_by: GroupBy,
    /// Only connections to these ports of the process, such as 8115,8114. Unset: all connections.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    local_ports: Vec<u16>,
}

impl Asking for Arguments {
    const COMMAND: &str = "tcp";

    fn kind_spec(self) -> KindSpec {
        let Self {
            group_by,
            local_ports,
        } = self;
        TcpProbe {
            group_by,
            local_ports,
        }
        .into()
    }
}
