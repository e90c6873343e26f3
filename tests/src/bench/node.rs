//! A CKB node that mines on a chain of its own.

use std::fs::File;

use tokio::process::Command;

use super::prelude::*;
use crate::cluster::run;

/// Of the key that every dev chain's specification publishes.
const MINERS_LOCK: &str = "0xc8328aabcd9b9e8e64fbc566c4385c3bdeb219d7";

/// Away from CKB's own ports, which a node on this machine may listen on.
const RPC_PORT: &str = "18115";

/// How long the miner pretends to work on a block.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// As `ckb init --chain dev` configures it: 5 s.
    AsConfigured,
    /// A tenth of a second, as in the demo.
    Fast,
}

/// A node in a container, and a miner outside of it. Both end when this is dropped.
pub struct Node {
    log: PathBuf,
    /// Declared first of the two: the miner ends before it has nobody to talk to.
    _miner: Child,
    node: Child,
}

impl Node {
    /// Starts both, and returns when a block has been mined.
    pub async fn start(settings: &Settings, container: &Container, pace: Pace) -> Result<Self> {
        let folder = in_folder(settings, "mining")?;
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(Failure::at(&folder))?;
        }
        let directory = folder.display().to_string();
        let ckb = settings.ckb.display().to_string();
        let chain = ["init", "--chain", "dev", "--ba-arg", MINERS_LOCK];
        let place = ["--rpc-port", RPC_PORT, "--p2p-port", "0", "-C", &directory];
        run(&ckb, &[&chain[..], &place].concat(), None).await?;
        let miner = folder.join("ckb-miner.toml");
        if let Pace::Fast = pace {
            replace(&miner, "\nvalue = 5000\n", "\nvalue = 100\n")?;
            replace(&miner, "\npoll_interval = 1000\n", "\npoll_interval = 10\n")?;
        }
        let node = spawn(
            command(container, &settings.ckb, ["run", "-C", &directory]),
            &folder.join("node.out"),
        )?;
        let mut miner = Command::new(&settings.ckb);
        miner.args(["miner", "-C", &directory]).kill_on_drop(true);
        let miner = spawn(miner, &folder.join("miner.out"))?;
        let node = Self {
            log: folder.join("data/logs/run.log"),
            _miner: miner,
            node,
        };
        node.blocks(1).await?;
        Ok(node)
    }

    /// Of the node.
    pub fn process(&self) -> Result<Process> {
        let pid = self.node.id();
        Process::of(pid.ok_or_else(|| Failure::missing("the node: it has ended"))? as i32)
    }

    /// Waits until there are at least so many blocks, and returns how many there are. Reads the node's log: a question to
    /// the node would be part of the load.
    pub async fn blocks(&self, at_least: u64) -> Result<u64> {
        let limit = Duration::from_secs(30 + 10 * at_least);
        wait::until("blocks", limit, async || {
            // It is there as soon as the node has something to say.
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            let blocks = log.lines().rev().find_map(height).unwrap_or_default();
            expect(blocks >= at_least, format!("{at_least} blocks"), || blocks)?;
            Ok(blocks)
        })
        .await
    }
}

/// The height in a line such as `… INFO ckb_chain::verify  block: 12, hash: 0x…`.
fn height(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once(" block: ")?;
    rest.split(',').next()?.trim().parse().ok()
}

fn spawn(mut command: Command, output: &Path) -> Result<Child> {
    let what = || output.display().to_string();
    let file = File::create(output).map_err(Failure::system(what()))?;
    let errors = file.try_clone().map_err(Failure::system(what()))?;
    command
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .kill_on_drop(true)
        .spawn()
        .map_err(Failure::system("ckb"))
}

/// Replaces what must be there exactly once, or the node's defaults have changed under us.
fn replace(path: &Path, from: &str, to: &str) -> Result<()> {
    let what = path.display().to_string();
    let text = fs::read_to_string(path).map_err(Failure::system(what.clone()))?;
    expect(
        text.matches(from).count() == 1,
        format!("{from:?} once in {what}"),
        || text.matches(from).count(),
    )?;
    fs::write(path, text.replace(from, to)).map_err(Failure::system(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_height_is_read_from_the_nodes_own_words() {
        let line = "2026-11-20 16:00:00.123 +00:00 ChainVerification INFO ckb_chain::verify  block: 12, hash: 0xab, epoch: 1(2/10)";
        assert_eq!(height(line), Some(12));
        assert_eq!(height("INFO ckb_bin  ckb version: 0.210.0"), None);
    }
}
