//! `ckb-probe report`: a record as a page, or as Markdown.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use ckb_probe_agent::text;
use ckb_probe_kubectl::{
    ClusterArguments,
    report::{
        FileArguments, WhichArguments,
        told::{self, between},
    },
};
use ckb_probe_profiles::{Profile, pprof::Limits};
use ckb_probe_report::{
    History,
    content::{content, difference},
};
use ckb_probe_views::document::{Document, View};
use clap::Args;

use super::{
    CliError, Outcome, changes,
    record::{RecordError, folder},
};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe report ckb.record -o report.html\n  \
    ckb-probe report ckb.record --markdown report.md\n  \
    ckb-probe report after.record --baseline before.record -o report.html\n  \
    ckb-probe report ckb.record -o json | jq '.probes[].rows[]'\n  \
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
    if files.is_document() {
        return print(record, baseline.as_deref());
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

/// Prints it as a document, in the form of `-o json`.
fn print(record: &Path, baseline: Option<&Path>) -> Result<Outcome, CliError> {
    let name = text::of_path(record);
    let of = history(record, baseline.is_some())?;
    let changes = baseline.map(|folder| {
        let (before, history) = (text::of_path(folder), history(folder, true)?);
        Ok::<_, RecordError>(between((&before, &history), (&name, &of)))
    });
    let report = told::of(&name, &of, changes.transpose()?);
    let line = Document::of(View::Record(Box::new(report))).line() + "\n";
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.flush()?;
    Ok(Outcome::Measured)
}

/// Prints what has changed from a record to another, and nothing else of them; as a document, if that is asked for.
pub fn diff([before, after]: [&Path; 2], is_document: bool) -> Result<Outcome, CliError> {
    let [old, new] = [history(before, true)?, history(after, true)?];
    if is_document {
        let [before, after] = [before, after].map(text::of_path);
        let line = changes::of_records((&before, &old), (&after, &new));
        let mut out = io::stdout().lock();
        out.write_all(line.as_bytes())?;
        out.flush()?;
        return Ok(Outcome::Measured);
    }
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
