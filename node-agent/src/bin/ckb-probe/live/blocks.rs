//! The verb `blocks` of a process on this host: each block as it comes, and in the end the newest and the slowest.

use std::io::{self, Write as _};

use ckb_probe_kubectl::blocks::WatchArguments;
use ckb_probe_views::{
    blocks::{Blocks, heads, line, tells_of_heights},
    document::{Document, Event, View},
};
use clap::Args;

use super::{
    super::{CliError, Outcome},
    Local, TargetArguments, lists_from, preset, shown,
};

/// A process of this host, and which of its blocks are told.
#[derive(Args, Debug)]
#[command(next_help_heading = "On this host")]
pub struct LocalArguments {
    #[command(flatten)]
    pub target: TargetArguments,
    /// Blocks that take so long, or longer, are told. Unset: all.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    threshold: ckb_probe_crds::Duration,
    /// Stop after this time. Unset: at Ctrl-C, or when the process ends.
    #[arg(long = "for", value_name = "DURATION")]
    time: Option<ckb_probe_crds::Duration>,
}

/// Prints them until the time is up, the process ends, or somebody interrupts.
pub async fn run(local: LocalArguments, how: &WatchArguments) -> Result<Outcome, CliError> {
    let mut probes = preset("blocks").map_err(CliError::Which)?.probes;
    probes.retain(tells_of_heights);
    for probe in &mut probes {
        lists_from(probe, local.threshold);
    }
    let time = local.time.map(ckb_probe_crds::Duration::get);
    let mut measured = Local::attach(&local.target, &probes)?;
    let subject = measured.subject.clone();
    let executable = measured.session.process.executable.clone();
    let mut blocks = Blocks::default();
    let mut is_first = true;
    let said = measured
        .events(time, |events| {
            let told = events.iter().map(|(event, line)| Event {
                subject: subject.clone(),
                probe: line["probe"].as_str().unwrap_or_default().to_owned(),
                event: shown(event, line, &probes, &executable),
            });
            let new = blocks.add(told);
            if how.is_document() {
                let lines = new
                    .into_iter()
                    .map(|one| Document::of(View::Event(one)).line());
                return lines.map(|line| line + "\n").collect();
            }
            let heads = (is_first && !new.is_empty()).then(|| heads(PLACE));
            is_first &= new.is_empty();
            let lines = new.iter().map(|one| line(&one.event));
            heads
                .into_iter()
                .chain(lines)
                .map(|line| line + "\n")
                .collect()
        })
        .await?;
    if let Some(unlisted) = measured.sampled.told() {
        eprintln!("ckb-probe: {unlisted}");
    }
    eprintln!("ckb-probe: {said}");
    // Those that did not take long enough to be told are no news, and no failure.
    if !how.is_document() && !blocks.is_empty() {
        let text = blocks.text_of(PLACE, &subject, how.most());
        write!(io::stdout(), "\n{text}")?;
    }
    Ok(Outcome::Measured)
}

/// Where a block was.
const PLACE: &str = "EXECUTABLE";
