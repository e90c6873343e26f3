//! Connections to the target: how many the test makes, what goes over them, and what `ss` says of those that stay.

use std::net::{Ipv4Addr, TcpStream};

use super::{Stage, peer};
use crate::{
    cluster::run,
    failure::{Failure, Result, expect},
    report::Bound,
    rows,
    scene::ATTACH,
};

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

/// How often each of those that stay asks.
const QUESTIONS: usize = 40;

/// Bytes that the target has sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bytes {
    sent: u64,
    received: u64,
}

pub async fn play(stage: Stage<'_>) -> Result<()> {
    let target = stage.target.process;
    listens(stage).await?;
    let exchanged = peer::beside(target, || {
        let mut sum = peer::Exchanged::default();
        for _ in 0..COME_AND_GO {
            sum += peer::ask(&mut peer::connected(SHORT, RPC)?, true)?;
        }
        for _ in 0..NODES_COME {
            peer::connected(NODES, P2P)?;
        }
        Ok(sum)
    })
    .await?;
    let kept = peer::beside(target, || {
        let kept: Result<Vec<TcpStream>> =
            (0..STAY).map(|_| peer::connected(LASTING, RPC)).collect();
        let mut kept = kept?;
        for stream in &mut kept {
            for _ in 0..QUESTIONS {
                peer::ask(stream, false)?;
            }
        }
        Ok(kept)
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
            .equal(&format!("tcp: {what}, as opened"), opened, "", times);
        stage
            .scene
            .equal("tcp: the same, as closed", closed, "", times);
        let name = format!("tcp: the same, at port {port}");
        stage.scene.equal(&name, at_port, "", times);
    }
    let bytes = stage.bytes(SHORT).await?;
    stage.scene.equal(
        "tcp: bytes that they received",
        bytes.sent,
        "",
        exchanged.answered,
    );
    stage.scene.equal(
        "tcp: bytes that they sent",
        bytes.received,
        "",
        exchanged.asked,
    );
    check_lasting(stage).await?;
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
            expect(closed >= times as u64, format!("{times} closed"), || {
                closed.to_string()
            })
        })
        .await?;
    read(&status)
}

/// What the connections that stay have sent and received, and their round-trip times, are what `ss` says.
async fn check_lasting(stage: Stage<'_>) -> Result<()> {
    let theirs = socket_statistics(stage).await?;
    let key = LASTING.to_string();
    let ours = stage
        .scene
        .status("connections that stay", ATTACH, |status| {
            let row = rows::row_of(rows::probe_of(status, PEERS)?, &key)?;
            // Quiet for an interval: the times are those of now.
            let quiet = rows::number(&row.figures, "sentPerSecond")? == 0.0;
            expect(quiet, "nothing sent for an interval", || format!("{row:?}"))
        })
        .await?;
    let row = rows::row_of(rows::probe_of(&ours, PEERS)?, &key)?;
    let scene = stage.scene;
    let open = rows::number(&row.figures, "established")?;
    scene.equal("tcp: connections that stay", open as u64, "", STAY as u64);
    scene.equal("tcp: the same by ss", theirs.len() as u64, "", STAY as u64);
    let bytes = stage.bytes(LASTING).await?;
    let sum = |of: fn(&Socket) -> u64| theirs.iter().map(of).sum::<u64>();
    let sent = sum(|socket| socket.bytes.sent);
    let received = sum(|socket| socket.bytes.received);
    scene.equal("tcp: bytes sent over them, by ss", bytes.sent, "", sent);
    scene.equal(
        "tcp: bytes received over them, by ss",
        bytes.received,
        "",
        received,
    );

    let mut times: Vec<f64> = theirs.iter().map(|socket| socket.milliseconds).collect();
    times.sort_by(f64::total_cmp);
    for (name, theirs) in [
        ("rttP50", times[times.len() / 2]),
        ("rttP99", times[times.len() - 1]),
    ] {
        let ours = rows::duration(&row.figures, name)?;
        let ours = ours.as_nanos() as f64 / 1e6;
        // As far as buckets of the histogram reach.
        scene.figure(
            &format!("tcp: {name} of them, off that of ss"),
            (ours - theirs) / theirs * 100.0,
            &format!("% of {theirs} ms"),
            Bound::Within(6.3),
        );
    }
    Ok(())
}

/// A socket of the target's.
struct Socket {
    bytes: Bytes,
    /// The smoothed round-trip time.
    milliseconds: f64,
}

/// What `ss` says in the pod of the connections that stay.
async fn socket_statistics(stage: Stage<'_>) -> Result<Vec<Socket>> {
    let network = format!("--net=/proc/{}/ns/net", stage.target.process.pid);
    let (at, from) = (format!("sport = :{RPC}"), LASTING.to_string());
    let arguments = [
        &network,
        "ss",
        "--no-header",
        "-tinO",
        "state",
        "established",
        &at,
        "and",
        "dst",
        &from,
    ];
    let text = run("nsenter", &arguments, None).await?;
    let mut sockets = Vec::new();
    for line in text.lines() {
        let value = |name: &str| {
            let mut words = line.split_whitespace();
            words
                .find_map(|word| word.strip_prefix(name))
                .unwrap_or_default()
        };
        let number = |name| {
            let value = value(name);
            value
                .parse::<u64>()
                .map_err(Failure::format(format!("{name} in {line}")))
        };
        let time = value("rtt:").split('/').next().unwrap_or_default();
        sockets.push(Socket {
            bytes: Bytes {
                sent: number("bytes_sent:")?,
                received: number("bytes_received:")?,
            },
            milliseconds: time
                .parse()
                .map_err(Failure::format(format!("rtt in {line}")))?,
        });
    }
    expect(!sockets.is_empty(), "connections by ss", || {
        "none".to_string()
    })?;
    Ok(sockets)
}

impl Stage<'_> {
    /// What the agent counts of a peer's connections.
    async fn bytes(&self, peer: Ipv4Addr) -> Result<Bytes> {
        let metrics = self.agent.scrape().await?;
        let peer = peer.to_string();
        let sum = |metric| self.sum(&metrics, PEERS, metric, &[("peer", &peer)]);
        Ok(Bytes {
            sent: sum("ckb_probe_tcp_sent_bytes_total"),
            received: sum("ckb_probe_tcp_received_bytes_total"),
        })
    }
}
