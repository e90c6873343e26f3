//! `ckb-probe symbols --usdt`: the USDT probes of a process or of a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    path::Path,
};

use ckb_probe_agent::{
    observe::{Glob, GlobError, Process, UsdtCache, UsdtFile, find_usdt, usdt_of_file},
    preflight::preflight,
    text,
};
use ckb_probe_crds::display_nanos;
use ckb_probe_views::document::{Document, View};

use super::{CliError, Outcome, told};

/// Those of a process, and what a hit would cost it.
pub(super) fn of_process(
    process: &Process,
    glob: Option<&str>,
    is_document: bool,
) -> Result<Outcome, CliError> {
    let glob = pattern(glob)?;
    let files = find_usdt(process.id, &UsdtCache::default())?;
    let mut out = io::stdout().lock();
    let subject = format!("process {} ({})", process.id.pid, process.executable);
    if is_document {
        let means = preflight(None).means.inspect_err(|why| {
            eprintln!("ckb-probe: what a hit costs cannot be told here: {why}");
        });
        let cost = means.ok().map(|means| means.calibration.counted_cost_ns);
        let told = told::usdt(subject, &files, glob.as_ref(), cost);
        writeln!(out, "{}", Document::of(View::Usdt(told)).line())?;
        out.flush()?;
        return Ok(Outcome::Measured);
    }
    writeln!(out, "{subject}")?;
    let outcome = list(&mut out, &files, glob.as_ref())?;
    match preflight(None).means {
        Ok(means) => writeln!(
            out,
            "a hit costs the process {} while it is attached to, and next to nothing otherwise",
            display_nanos(means.calibration.counted_cost_ns)
        )?,
        Err(why) => writeln!(out, "what a hit costs cannot be told here: {why}")?,
    }
    Ok(outcome)
}

/// Those of a file.
pub(super) fn of_file(
    path: &Path,
    glob: Option<&str>,
    is_document: bool,
) -> Result<Outcome, CliError> {
    let glob = pattern(glob)?;
    let file = usdt_of_file(path)?;
    if is_document {
        let told = told::usdt(told::file(path), &[file], glob.as_ref(), None);
        let mut out = io::stdout().lock();
        writeln!(out, "{}", Document::of(View::Usdt(told)).line())?;
        out.flush()?;
        return Ok(Outcome::Measured);
    }
    list(&mut io::stdout().lock(), &[file], glob.as_ref())
}

fn pattern(glob: Option<&str>) -> Result<Option<Glob>, CliError> {
    let read = |text: &str| {
        Glob::new(text).map_err(|source: GlobError| CliError::Glob(text.to_string(), source))
    };
    glob.map(read).transpose()
}

fn list(
    out: &mut impl Write,
    files: &[UsdtFile],
    glob: Option<&Glob>,
) -> Result<Outcome, CliError> {
    let matches = |name: &str| glob.is_none_or(|glob| glob.matches(name));
    let mut all: BTreeMap<&str, (BTreeSet<&str>, usize)> = BTreeMap::new();
    for file in files {
        let sites = file.probes.sites.iter();
        let sites: Vec<_> = sites.filter(|site| matches(&site.name)).collect();
        let refused = file.probes.refused.iter();
        let refused: Vec<_> = refused.filter(|site| matches(&site.name)).collect();
        if sites.is_empty() && refused.is_empty() && file.probes.malformed == 0 {
            continue;
        }
        writeln!(out, "{}", text::of_path(file.binary.path()))?;
        let names = sites.iter();
        let width = names.map(|site| site.provider.len() + 1 + site.name.len());
        let width = width.max().unwrap_or_default();
        for site in sites {
            let name = format!("{}:{}", site.provider, site.name);
            let semaphore = match site.semaphore {
                Some(offset) => format!("semaphore +{offset:#x}"),
                None => "no semaphore".to_string(),
            };
            let arguments = match site.arguments.len() {
                1 => "1 argument",
                count => &format!("{count} arguments"),
            };
            let told = site.arguments.iter().map(|argument| match argument {
                Ok(argument) => argument.to_string(),
                Err(error) => error.to_string(),
            });
            let mut line = format!(
                "  {name:<width$}  +{:#x}  {:<9}  {semaphore:<20}  {arguments}",
                site.offset,
                site.nops.as_str(),
            );
            let told: Vec<String> = told.collect();
            if !told.is_empty() {
                line += ": ";
                line += &text::shown(&told.join(" "));
            }
            writeln!(out, "{line}")?;
            let (names, count) = all.entry(&site.provider).or_default();
            names.insert(&site.name);
            *count += 1;
        }
        for site in refused {
            let (provider, name, why) = (&site.provider, &site.name, site.why);
            writeln!(out, "  {provider}:{name}  left out: {why}")?;
        }
        if file.probes.malformed > 0 {
            writeln!(
                out,
                "  {} notes are not as they should be, and left out",
                file.probes.malformed
            )?;
        }
    }
    if all.is_empty() {
        let of = glob.map_or(String::new(), |glob| {
            format!(" that match {}", glob.as_str())
        });
        writeln!(out, "there are no USDT probes{of}")?;
    }
    for (provider, (names, sites)) in all {
        let (probes, places) = (counted(names.len(), "probe"), counted(sites, "place"));
        writeln!(out, "{probes} of {provider}, at {places}")?;
    }
    out.flush()?;
    Ok(Outcome::Measured)
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
