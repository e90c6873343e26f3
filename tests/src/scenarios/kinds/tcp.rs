//! Connections to the target: how many the test makes, what goes over them, and how many stay.

use std::net::{Ipv4Addr, TcpStream};

use super::{Stage, peer};
use crate::scenarios::prelude::*;

/// By the peer's address.
pub const PEERS: &str = "peers";

/// By the target's port.
pub const PORTS: &str = "ports";

// Addresses that nobody else connects from: for what comes and goes, and what stays, at the port of requests; and at that
// of other nodes.
const SHORT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);
const LASTING: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 78);
const NODES: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 79);

const RPC: u16 = 8114;
const P2P: u16 = 8115;

const COME_AND_GO: usize = 25;
const STAY: usize = 3;
const NODES_COME: usize = 7;

pub async fn play(stage: Stage<'_>) -> Result<()> {
    let target = stage.target.process;
    listens(stage).await?;
    let exchanged = peer::beside(target, || {
        let mut sum = peer::Exchanged::default();
        for _ in 0..COME_AND_GO {
            sum += peer::ask(peer::connected(SHORT, RPC)?)?;
        }
        for _ in 0..NODES_COME {
            peer::connected(NODES, P2P)?;
        }
        Ok(sum)
    })
    .await?;
    let kept = peer::beside(target, || {
        let kept = (0..STAY).map(|_| peer::connected(LASTING, RPC));
        kept.collect::<Result<Vec<TcpStream>>>()
    })
    .await?;

    for (what, from, port, times) in [
        ("connections that came and went", SHORT, RPC, COME_AND_GO),
        ("connections of other nodes", NODES, P2P, NODES_COME),
    ] {
        let [opened, closed, at_port] = gone(stage, from, port, times).await?;
        let times = times as u64;
        stage
            .scene
            .equal(&format!("tcp: {what}, as opened"), opened, times);
        stage.scene.equal("tcp: the same, as closed", closed, times);
        let name = format!("tcp: the same, at port {port}");
        stage.scene.equal(&name, at_port, times);
    }
    let metrics = stage.agent.scrape().await?;
    let peer = SHORT.to_string();
    for (what, metric, bytes) in [
        (
            "received",
            "ckb_probe_tcp_sent_bytes_total",
            exchanged.answered,
        ),
        (
            "sent",
            "ckb_probe_tcp_received_bytes_total",
            exchanged.asked,
        ),
    ] {
        let sum = stage.sum(&metrics, PEERS, metric, &[("peer", &peer)]);
        let what = format!("tcp: bytes that they {what}");
        stage.scene.equal(&what, sum, bytes);
    }
    let key = LASTING.to_string();
    let established = |status: &ckb_probe_crds::CkbProbeStatus| {
        let row = rows::row_of(rows::probe_of(status, PEERS)?, &key)?;
        rows::number(&row.figures, "established")
    };
    let status = stage
        .scene
        .status("connections that stay", ATTACH, |status| {
            let open = established(status)? as usize;
            expect(open == STAY, format!("{STAY} open"), || open)
        });
    let open = established(&status.await?)? as u64;
    let what = "tcp: connections that stay";
    stage.scene.equal(what, open, STAY);
    // Until here.
    drop(kept);
    Ok(())
}

/// Waits until the target does, which takes a node a moment after its start.
async fn listens(stage: Stage<'_>) -> Result<()> {
    stage
        .scene
        .status("the target's ports", ATTACH, |status| {
            let probe = rows::probe_of(status, PORTS)?;
            for port in [RPC, P2P] {
                let row = rows::row_of(probe, &port.to_string())?;
                let listening = rows::number(&row.figures, "listening")?;
                expect(listening >= 1.0, format!("port {port}"), || {
                    format!("{row:?}")
                })?;
            }
            Ok(())
        })
        .await
        .map(drop)
}

/// How many of these connections the status has as opened, as closed, and at the port, once all of them are closed.
async fn gone(stage: Stage<'_>, from: Ipv4Addr, port: u16, times: usize) -> Result<[u64; 3]> {
    let key = from.to_string();
    let read = |status: &ckb_probe_crds::CkbProbeStatus| -> Result<[u64; 3]> {
        let row = rows::row_of(rows::probe_of(status, PEERS)?, &key)?;
        let part = rows::part_of(row, &port.to_string())?;
        let whole = |shown, name| rows::number(shown, name).map(|number| number as u64);
        Ok([
            whole(&row.figures, "opened")?,
            whole(&row.figures, "closed")?,
            whole(&part.figures, "opened")?,
        ])
    };
    let status = stage
        .scene
        .status("closed connections", ATTACH, |status| {
            let [_, closed, _] = read(status)?;
            expect(closed >= times as u64, format!("{times} closed"), || closed)
        })
        .await?;
    read(&status)
}
