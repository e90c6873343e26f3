//! Blocks of a real CKB node, held against what the node answers: each height is told once, and none that there is not.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
};

use ckb_probe_views::document::View;

use super::{Stage, peer};
use crate::scenarios::{
    plugin::{asked, documents},
    prelude::*,
};

/// Tells each block in the agent's log.
pub const BLOCKS: &str = "blocks-of-the-chain";

/// Of the node's RPC, on its own loopback.
const PORT: u16 = 8114;

/// That nobody else asks from.
const FROM: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);

const QUESTION: &str = r#"{"id":1,"jsonrpc":"2.0","method":"get_tip_header","params":[]}"#;

/// So many blocks are waited for, which the node mines in some seconds.
const COUNT: u64 = 60;

/// Until they are mined, and told.
const MINED: Duration = Duration::from_secs(90);

pub async fn play(stage: Stage<'_>) -> Result<()> {
    // The stand-in has no blocks.
    if stage.scene.workload != Workload::Ckb {
        return Ok(());
    }
    let first = tip(stage).await? + 1;
    let last = wait::until("blocks to be mined", MINED, async || {
        let last = tip(stage).await?;
        expect(last >= first + COUNT, format!("{COUNT} blocks"), || last)?;
        Ok(last)
    })
    .await?;
    let told = wait::until("the blocks in the log", MINED, async || {
        let told = told(stage).await?;
        let highest = told.iter().max().copied().unwrap_or_default();
        expect(highest >= last, format!("block {last}"), || highest)?;
        Ok(told)
    })
    .await?;
    let there_are = tip(stage).await?;
    let within: Vec<u64> = told
        .iter()
        .copied()
        .filter(|height| (first..=last).contains(height))
        .collect();
    let different: BTreeSet<u64> = within.iter().copied().collect();
    let scene = stage.scene;
    let count = last - first + 1;
    scene.equal(
        "chain: heights that the node mined, those told",
        different.len() as u64,
        count,
    );
    scene.equal(
        "chain: how often they were told",
        within.len() as u64,
        count,
    );
    let invented = told.iter().filter(|height| **height > there_are).count();
    scene.equal(
        "chain: heights told that the node does not have",
        invented,
        0,
    );
    let metrics = stage.agent.scrape().await?;
    let outcome = [("outcome", "accepted")];
    let counted = stage.sum(&metrics, BLOCKS, "ckb_probe_blocks_total", &outcome);
    let height = stage.sum(&metrics, BLOCKS, "ckb_probe_block_height", &outcome);
    scene.figure(
        "chain: blocks counted",
        counted,
        "",
        Bound::AtLeast(count as f64),
    );
    scene.figure(
        "chain: the height in the metrics",
        height,
        "",
        Bound::AtLeast(last as f64),
    );
    shown(scene, first, tip(stage).await?).await
}

/// `kubectl ckbprobe` shows those that the status lists: blocks that were mined meanwhile, and no others.
async fn shown(scene: &Scene<'_>, first: u64, last: u64) -> Result<()> {
    let ended = asked(scene, "blocks", &[PROBE, "-o", "json"], &[]).await?;
    let heights = documents(&ended.printed).filter_map(|document| match document.view {
        View::Event(one) if one.probe == BLOCKS => one.event.details.get("height")?.parse().ok(),
        _ => None,
    });
    let heights: Vec<u64> = heights.collect();
    let within = |height: &u64| (first..=last).contains(height);
    expect(
        ended.code == 0 && !heights.is_empty() && heights.iter().all(within),
        format!("blocks of {first} to {last}"),
        || format!("{heights:?}, {}", ended.said),
    )
}

/// The heights in the agent's log, one for each line.
async fn told(stage: Stage<'_>) -> Result<Vec<u64>> {
    let log = stage.scene.cluster.log(stage.agent).await?;
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let own =
        lines.filter(|line| line["namespace"] == *stage.scene.namespace && line["probe"] == BLOCKS);
    Ok(own.filter_map(|line| line["height"].as_u64()).collect())
}

/// The height of the node's last block, as it says itself.
async fn tip(stage: Stage<'_>) -> Result<u64> {
    peer::beside(stage.target.process, || {
        let answer = answer(peer::connected(FROM, PORT)?).map_err(Failure::system("an answer"))?;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let header: Value =
            serde_json::from_str(body).map_err(Failure::format(body.to_string()))?;
        let number = header["result"]["number"].as_str();
        let number = number
            .and_then(|number| number.strip_prefix("0x"))
            .unwrap_or_default();
        u64::from_str_radix(number, 16).map_err(Failure::format(body.to_string()))
    })
    .await
}

fn answer(mut stream: TcpStream) -> std::io::Result<String> {
    let request = format!(
        "POST / HTTP/1.1\r\nHost: node\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{QUESTION}",
        QUESTION.len()
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
