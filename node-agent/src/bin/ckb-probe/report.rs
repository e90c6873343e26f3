//! `ckb-probe report`: a record as a page, or as Markdown.

use std::{
    fs,
    path::{Path, PathBuf},
};

use ckb_probe_agent::text;
use ckb_probe_kubectl::{
    ClusterArguments,
    report::{FileArguments, WhichArguments},
};
use ckb_probe_profiles::{Profile, pprof::Limits};
use ckb_probe_report::{
    History,
    content::{content, difference},
};
use clap::Args;

use super::{
    CliError, Outcome,
    record::{RecordError, folder},
};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe report ckb.record -o report.html\n  \
    ckb-probe report ckb.record --markdown report.md\n  \
    ckb-probe report after.record --baseline before.record -o report.html\n  \
    ckb-probe report ckb -n ckb --prometheus http://127.0.0.1:9090 -o report.html\n                                                          \
    of a CkbProbe on a cluster, as kubectl ckbprobe report\n\n\
    The page is one file, without a script, and fetches nothing.")]
pub struct ReportArguments {
    /// The folder that `ckb-probe record` wrote, or writes; with --prometheus the CkbProbe.
    #[arg(value_name = "DIR|NAME")]
    record: PathBuf,
    #[command(flatten)]
    files: FileArguments,
    /// Also say what has changed since this other record, within which bounds, and what is noise.
    #[arg(long, value_name = "DIR", conflicts_with = "prometheus")]
    baseline: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArguments,
    /// In place of a record, what this Prometheus has kept of a CkbProbe: where it is, such as http://127.0.0.1:9090; a path may follow.
    #[arg(long, value_name = "URL", help_heading = "From Prometheus")]
    prometheus: Option<String>,
    #[command(flatten)]
    which: WhichArguments,
}

/// Writes the report of a record, or of what a Prometheus kept.
pub async fn run(arguments: &ReportArguments) -> Result<Outcome, CliError> {
    let ReportArguments {
        record,
        files,
        baseline,
        cluster,
        prometheus,
        which,
    } = arguments;
    if let Some(prometheus) = prometheus {
        let name = text::of_path(record);
        let made = ckb_probe_kubectl::report::run(&name, cluster, prometheus, which, files).await?;
        return Ok(made.into());
    }
    let history = |folder: &Path| history(folder, baseline.is_some());
    let of = history(record)?;
    let before = baseline
        .as_deref()
        .map(|folder| Ok::<_, RecordError>((text::of_path(folder), history(folder)?)));
    let before = before.transpose()?;
    let before = before
        .as_ref()
        .map(|(name, history)| (name.as_str(), history));
    let told = content(&text::of_path(record), &of, stacks(record)?, before);
    files.put(&told, |file, error| {
        CliError::Output(text::of_path(file), error)
    })?;
    Ok(Outcome::Measured)
}

/// Prints what has changed from a record to another, and nothing else of them.
pub fn diff(before: &Path, after: &Path) -> Result<Outcome, CliError> {
    let [old, new] = [history(before, true)?, history(after, true)?];
    let told = difference(&text::of_path(after), &new, (&text::of_path(before), &old));
    let printed = FileArguments {
        output: None,
        markdown: None,
    };
    printed.put(&told, |file, error| {
        CliError::Output(text::of_path(file), error)
    })?;
    Ok(Outcome::Measured)
}

fn history(folder: &Path, compared: bool) -> Result<History, RecordError> {
    Ok(History::of(folder::read(folder, compared)?))
}

/// The stacks beside a record. One that cannot be read is left out: it is said.
fn stacks(folder: &Path) -> Result<Vec<(String, Profile)>, CliError> {
    let failed = |error| CliError::Output(text::of_path(folder), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // Whoever recorded named them; what is named otherwise is somebody else's.
        let of = name.to_str().and_then(|name| {
            let of = name.strip_prefix("stacks.")?;
            of.strip_suffix(".pb.gz")
        });
        let Some(of) = of.map(str::to_owned) else {
            continue;
        };
        let bytes = fs::read(folder.join(&name)).map_err(failed)?;
        match Profile::from_pprof(&bytes, &Limits::FILE) {
            Ok(profile) => found.push((of.replace('.', ", "), profile)),
            Err(error) => eprintln!("ckb-probe: stacks.{of}.pb.gz is left out: {error}"),
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    Ok(found)
}
