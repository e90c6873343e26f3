//! Blocks that were told by `ckb-probe chain --events`: their trend, and how two runs differ.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use ckb_probe_agent::blocks::{Blocks, Difference, Heights, trend_table};
use ckb_probe_kubectl::blocks::WatchArguments;
use ckb_probe_symbols::text;
use clap::Args;

use super::{CliError, Outcome, changes, live::blocks::LocalArguments, measure::lines};

/// Longer lines are no blocks.
const MOST: u64 = 1 << 20;

/// So much of it may be missing before it is said that what is there may not be like the rest.
const MISSING_PERCENT: u64 = 10;

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe chain --threshold 0s --events > run.jsonl   each block of a run, or of an import\n  \
    ckb-probe blocks run.jsonl                            what they cost as the chain grew\n  \
    ckb-probe blocks run.jsonl --every 1000 --json\n  \
    ckb-probe blocks --executable ckb                     those that come, and at Ctrl-C the newest and the slowest\n  \
    ckb-probe blocks --pid 1234 --threshold 100ms --for 10m -o json\n  \
    ckb-probe blocks ckb -n ckb --watch                   of a cluster, as kubectl ckbprobe blocks")]
pub struct BlocksArguments {
    /// What `ckb-probe chain --threshold 0s --events` printed; or, where there is no such file, a CkbProbe of a cluster.
    #[arg(required_unless_present_any = ["pid", "executable"], conflicts_with_all = ["pid", "executable"])]
    file: Option<PathBuf>,
    /// How many heights are in a line. Unset: so many that there are about ten lines.
    #[arg(long)]
    every: Option<u64>,
    /// Only blocks of these heights, such as 1000-1999.
    #[arg(long)]
    heights: Option<Heights>,
    /// Print a JSON line for each instead of the table.
    #[arg(long)]
    json: bool,
    #[command(flatten, next_help_heading = "Of a cluster")]
    pub how: WatchArguments,
    #[command(flatten)]
    pub local: LocalArguments,
}

impl BlocksArguments {
    /// The CkbProbe, where it is one: something says so, or there is no file of that name, which looks like none.
    pub fn cluster(&self) -> Option<&str> {
        let file = self.file.as_deref()?;
        let name = file.to_str()?;
        let is_name = !file.exists() && !name.contains(['.', '/']);
        (self.how.is_of_a_cluster() || is_name).then_some(name)
    }
}

/// Which blocks of two runs are compared.
#[derive(Args, Debug)]
pub struct RangeArguments {
    /// Of blocks: those of these heights alone, before; such as 1000-1999.
    #[arg(long)]
    heights_before: Option<Heights>,
    /// The same after. With the same file twice, two ranges of one run are compared.
    #[arg(long)]
    heights_after: Option<Heights>,
    /// Of blocks: print a JSON line for each figure instead of the table.
    #[arg(long)]
    json: bool,
}

/// Why blocks cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum BlocksError {
    /// It cannot be read.
    #[error("cannot read {0}: {1}")]
    Read(PathBuf, #[source] io::Error),
    /// There is nothing in it.
    #[error(
        "{0} tells of no block of the main chain{1}: it is to hold what `ckb-probe chain --threshold 0s --events` printed"
    )]
    None(PathBuf, &'static str),
    /// There is too little.
    #[error(
        "{before} blocks before and {after} after are too few to tell a change from noise: it takes 40 of each at the least, and some \
         hundreds to find a small one"
    )]
    Few {
        /// How many there are before.
        before: usize,
        /// After.
        after: usize,
    },
}

/// Prints the trend.
pub fn trend(arguments: &BlocksArguments) -> Result<Outcome, CliError> {
    // Where none is named, clap asked for a process.
    let file = arguments.file.as_deref().unwrap_or(Path::new("-"));
    let blocks = read(file, arguments.heights)?;
    let stretches = blocks.trend(arguments.every);
    if arguments.json {
        let told: Vec<_> = stretches.iter().map(|one| one.line()).collect();
        io::stdout().write_all(lines(&told).as_bytes())?;
    } else {
        writeln!(io::stdout(), "{}", trend_table(&stretches))?;
    }
    Ok(Outcome::Measured)
}

/// Prints the difference; as one document of the form of `-o json`, if that is asked for.
pub fn diff(
    [before_file, after_file]: [&Path; 2],
    arguments: &RangeArguments,
    is_document: bool,
) -> Result<Outcome, CliError> {
    let before = read(before_file, arguments.heights_before)?;
    let after = read(after_file, arguments.heights_after)?;
    let difference = Difference::of(&before, &after).ok_or(BlocksError::Few {
        before: before.count(),
        after: after.count(),
    })?;
    if is_document {
        let changes = changes::of_blocks([before_file, after_file], &difference);
        io::stdout().write_all(changes.as_bytes())?;
    } else if arguments.json {
        io::stdout().write_all(lines(&difference.lines()).as_bytes())?;
    } else {
        writeln!(io::stdout(), "{}", difference.table())?;
    }
    Ok(Outcome::Measured)
}

/// Whether a file holds lines of JSON: a profile begins otherwise.
pub fn is_of_blocks(file: &Path) -> bool {
    let mut first = [0];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut first));
    file != Path::new("-") && read.is_ok() && first == *b"{"
}

fn read(path: &Path, heights: Option<Heights>) -> Result<Blocks, BlocksError> {
    let failed = |error| BlocksError::Read(path.to_owned(), error);
    let mut file = BufReader::new(File::open(path).map_err(failed)?);
    let mut blocks = Blocks::default();
    let mut line = Vec::new();
    while (&mut file)
        .take(MOST)
        .read_until(b'\n', &mut line)
        .map_err(failed)?
        > 0
    {
        blocks.take(&text::of_own(std::mem::take(&mut line)));
    }
    let blocks = blocks.within(heights);
    let Some(Heights { first, last }) = blocks.heights() else {
        let range = heights.map_or("", |_| " of these heights");
        return Err(BlocksError::None(path.to_owned(), range));
    };
    let missing = blocks.missing();
    if missing * 100 > (last - first + 1) * MISSING_PERCENT {
        eprintln!(
            "ckb-probe: {} tells of {} blocks, and not of {missing} others between {first} and {last}: where they were sampled, those \
             that take long are missing first; measure with --threshold 0s --on-breach report",
            text::of_path(path),
            blocks.count(),
        );
    }
    Ok(blocks)
}
