//! `blocks`: what blocks cost, by their height, from the status of a CkbProbe.

use std::{
    io::{self, IsTerminal, Write},
    time::Duration,
};

use ckb_probe_crds::CkbProbe;
use ckb_probe_views::{
    blocks::{Blocks, headline},
    document::{Document, Event, View},
};
use clap::Args;
use kube::Api;
use tokio::time::{Instant, sleep_until};

use crate::{ClusterArguments, Outcome, VerbError, error::sentence, interrupts::Interrupts};

const LOOK: Duration = Duration::from_secs(1);

/// On a cluster.
#[derive(Args, Clone, Debug)]
pub struct BlocksArguments {
    /// The CkbProbe, with a probe of the kind chain.
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) how: WatchArguments,
}

/// What is shown, and for how long.
#[derive(Args, Clone, Debug)]
pub struct WatchArguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Go on, until Ctrl-C, with the blocks that come.
    #[arg(short, long)]
    watch: bool,
    /// How many of the newest and of the slowest are shown.
    #[arg(long, default_value_t = 8)]
    most: usize,
    /// Print each block as a line of JSON, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
}

impl WatchArguments {
    /// Whether lines of JSON are asked for.
    pub fn is_document(&self) -> bool {
        self.output.is_some()
    }

    /// How many of the newest and of the slowest are shown.
    pub fn most(&self) -> usize {
        self.most
    }

    /// Whether something is said that is of a cluster alone.
    pub fn is_of_a_cluster(&self) -> bool {
        let ClusterArguments {
            namespace,
            context,
            kubeconfig,
        } = &self.cluster;
        let names_one = namespace.is_some() || context.is_some() || kubeconfig.is_some();
        names_one || self.watch || self.output.is_some()
    }
}

/// What is said at the end of `--help`.
pub const EXAMPLES: &str = "Examples:\n  \
    kubectl ckbprobe blocks ckb -n ckb            the newest and the slowest that its status lists\n  \
    kubectl ckbprobe blocks ckb -n ckb --watch    and those that come, until Ctrl-C\n  \
    kubectl ckbprobe blocks ckb -n ckb --watch -o json | jq -r .event.details.height\n\n\
    A status lists the ten slowest of each report interval, of those that took as long as the probe's threshold. Exit codes: 0 there\n\
    are some; 1 there is none; 2 wrong arguments.";

/// Shows them.
pub async fn run(name: &str, how: &WatchArguments) -> Result<Outcome, VerbError> {
    let (client, namespace) = how.cluster.connect().await?;
    let api: Api<CkbProbe> = Api::namespaced(client, &namespace);
    let mut interrupts = Interrupts::new()?;
    let mut blocks = Blocks::default();
    let mut drawn = 0;
    let redraws = how.watch && io::stdout().is_terminal();
    let mut is_first = true;
    let mut said = String::new();
    loop {
        let next = Instant::now() + LOOK;
        match api.get(name).await {
            Ok(probe) => {
                said = headline(&probe)
                    .ok_or_else(|| VerbError::NoBlocks(format!("{namespace}/{name}")))?;
                let new = blocks.take(&probe);
                if how.output.is_some() {
                    print(&new)?;
                } else if redraws {
                    let text = blocks.text(&said, how.most);
                    let up = match drawn {
                        0 => "\r".to_owned(),
                        lines => format!("\x1b[{lines}A"),
                    };
                    let mut out = io::stdout().lock();
                    write!(out, "{up}\x1b[J{text}")?;
                    out.flush()?;
                    drawn = text.lines().count();
                }
            }
            Err(error) if is_first => {
                let what = format!("read CkbProbe {name}");
                return Err(VerbError::request(what, &namespace, error));
            }
            // It may come back.
            Err(error) => eprintln!("ckbprobe: {}", sentence(&error)),
        }
        is_first = false;
        if !how.watch {
            break;
        }
        tokio::select! {
            () = sleep_until(next) => {}
            () = interrupts.next() => break,
        }
    }
    if how.output.is_none() && !redraws {
        write!(io::stdout(), "{}", blocks.text(&said, how.most))?;
    }
    if blocks.is_empty() {
        eprintln!(
            "ckbprobe: no block is listed: in the last report interval none took as long as the probe's threshold (0s: each is listed)"
        );
        return Ok(Outcome::Broken);
    }
    Ok(Outcome::Well)
}

fn print(new: &[Event]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for one in new {
        let document = Document::of(View::Event(one.clone()));
        writeln!(out, "{}", document.line())?;
    }
    out.flush()
}
