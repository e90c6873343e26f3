//! `ckb-probe symbols`: what can be attached to in a process, and at what price.

mod told;
mod usdt;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::PathBuf,
};

use ckb_probe_agent::{
    host::find_process,
    kernel::Calibration,
    kinds,
    observe::{
        FirstInstruction, Function, FunctionCache, LISTED_LIMIT, Location, Matches, Pattern,
        Process, SymbolCache, SymbolName, Symbols, SymbolsError, find_functions, find_symbols,
        functions_of_file, symbols_of_file,
    },
    preflight::preflight,
    text,
};
use ckb_probe_crds::display_nanos;
use ckb_probe_views::document::{Document, View};
use clap::Args;

use super::{CliError, Outcome, ProcessArguments};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    ckb-probe symbols                                                     what rocksdb can measure\n  \
    ckb-probe symbols --match 'ckb_chain::*'                              functions of the executable\n  \
    ckb-probe symbols --match 'rocksdb::DBImpl::*' --library librocksdb   functions of a library\n  \
    ckb-probe symbols --usdt --executable postgres                        USDT probes, of its libraries too\n  \
    ckb-probe symbols ./ckb                                               of a file that need not run, in each of these ways\n  \
    ckb-probe symbols --usdt /usr/bin/python3.11\n  \
    ckb-probe symbols ./ckb -o json | jq '.functions[] | select(.places == []).name'\n\n\
    Exit codes: 0 there are some; 1 it cannot be looked at; 2 wrong arguments; 3 it has none of those that are measured by name.")]
pub struct Arguments {
    /// This file alone, whoever runs it: an executable, or a library, before it is rolled out. Unset: a process, and the libraries that it
    /// has mapped.
    #[arg(value_name = "FILE", conflicts_with_all = ["pid", "executable", "library"])]
    path: Option<PathBuf>,
    #[command(flatten)]
    process: ProcessArguments,
    /// List the functions that match this pattern, with *, ? and [abc], such as ckb_chain::*. Unset: those that are measured by
    /// name.
    #[arg(long = "match", value_name = "GLOB")]
    pattern: Option<String>,
    /// The library that has the functions, by its file name, such as libc.so.6. Unset: the executable.
    #[arg(long, requires = "pattern", conflicts_with = "usdt")]
    library: Option<String>,
    /// List the USDT probes of the executable and of the libraries that the process has mapped; with --match, those whose names
    /// match.
    #[arg(long)]
    usdt: bool,
    /// Print all of it as a line of JSON, in the form that docs/reference/view.schema.json has.
    #[arg(short, long, value_parser = ["json"])]
    output: Option<String>,
    /// The same as FILE.
    #[arg(long, conflicts_with_all = ["path", "pid", "executable", "library"], value_name = "PATH")]
    file: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<Outcome, CliError> {
    let pattern = arguments.pattern.as_deref();
    let is_document = arguments.output.is_some();
    if let Some(file) = arguments.path.as_ref().or(arguments.file.as_ref()) {
        return match pattern {
            _ if arguments.usdt => usdt::of_file(file, pattern, is_document),
            Some(glob) => {
                let matches = functions_of_file(file, &pattern_of(glob, None))?;
                matching(&told::file(file), &matches, is_document)
            }
            None => {
                let none = "the file has none of these functions: libraries that it loads are files of their own, and of a process they are looked at too";
                listed((&told::file(file), none), is_document, |names| {
                    symbols_of_file(file, names)
                })
            }
        };
    }
    let ProcessArguments { pid, executable } = &arguments.process;
    let process = find_process(*pid, executable)?;
    if arguments.usdt {
        return usdt::of_process(&process, pattern, is_document);
    }
    match pattern {
        Some(glob) => {
            let pattern = pattern_of(glob, arguments.library.clone());
            let matches = find_functions(process.id, &pattern, &FunctionCache::default())?;
            matching(&of_process(&process), &matches, is_document)
        }
        None => {
            let none = "neither the executable nor any library that it has mapped has one of these functions";
            listed((&of_process(&process), none), is_document, |names| {
                find_symbols(process.id, names, &SymbolCache::default())
            })
        }
    }
}

fn of_process(process: &Process) -> String {
    format!("process {} ({})", process.id.pid, process.executable)
}

fn pattern_of(glob: &str, library: Option<String>) -> Pattern {
    Pattern {
        glob: glob.to_owned(),
        library,
        limit: LISTED_LIMIT,
    }
}

/// What the kinds look for by name.
fn listed(
    (subject, none): (&str, &str),
    is_document: bool,
    find: impl FnOnce(&BTreeSet<SymbolName>) -> Result<Symbols, SymbolsError>,
) -> Result<Outcome, CliError> {
    let wanted = kinds::listed();
    let names = wanted.iter().flat_map(|one| &one.functions);
    let names = names.map(|function| function.symbol).collect();
    let symbols = find(&names)?;
    let outcome = match symbols.found.is_empty() {
        true => Outcome::Nothing(none.to_owned()),
        false => Outcome::Measured,
    };
    let mut out = io::stdout().lock();
    if is_document {
        let told = told::listed(subject, &wanted, &symbols);
        writeln!(out, "{}", Document::of(View::Symbols(told)).line())?;
        out.flush()?;
        return Ok(outcome);
    }
    writeln!(out, "{subject}")?;
    if symbols.stripped {
        writeln!(out, "the executable is stripped: it has no symbol table")?;
    }
    let row = wanted.iter().map(|one| one.row.len()).max();
    let row = row.unwrap_or_default();
    for one in &wanted {
        for function in &one.functions {
            let mut line =
                |place: &str| writeln!(out, "{:<row$} {:<40} {place}", one.row, function.symbol);
            match symbols.found.get(&function.symbol) {
                Some(locations) => locations.iter().try_for_each(|one| line(&place(one)))?,
                None => line("not found")?,
            }
        }
    }
    out.flush()?;
    Ok(outcome)
}

/// What a pattern finds, also where that is more than may be attached to.
fn matching(subject: &str, matches: &Matches, is_document: bool) -> Result<Outcome, CliError> {
    let calibration = preflight(None).means.map(|means| means.calibration);
    let mut out = io::stdout().lock();
    if is_document {
        if let Err(why) = &calibration {
            eprintln!("ckb-probe: what a probed call costs cannot be told here: {why}");
        }
        let told = told::matching(subject, matches, calibration.ok());
        writeln!(out, "{}", Document::of(View::Symbols(told)).line())?;
        out.flush()?;
        return Ok(Outcome::Measured);
    }
    writeln!(out, "{subject}")?;
    let names = matches.found.iter().map(|one| one.name.chars().count());
    let width = names.max().unwrap_or_default().min(100);
    for Function { name, location, .. } in &matches.found {
        writeln!(out, "{name:<width$}  {}", place(location))?;
    }
    let calibration = calibration.map_err(|error| error.to_string());
    summary(&mut out, matches, &calibration)?;
    out.flush()?;
    Ok(Outcome::Measured)
}

/// How many there are, and what a call of theirs would cost.
fn summary(
    out: &mut impl Write,
    matches: &Matches,
    calibration: &Result<Calibration, String>,
) -> io::Result<()> {
    let Matches { found, total, .. } = matches;
    match total {
        1 => writeln!(out, "1 function")?,
        _ => writeln!(
            out,
            "{total} functions: as many as a probe's limit must allow"
        )?,
    }
    if found.is_empty() {
        let sample = matches.sample.join(", ");
        writeln!(out, "too many to list, such as {sample}")?;
    }
    if matches.stripped {
        writeln!(out, "the file is stripped: these are only what it exports")?;
    }
    if matches.go {
        writeln!(
            out,
            "the program is Go's: calls are counted and not timed, since a probe at a return would break it"
        )?;
    }
    let stepped = found
        .iter()
        .filter(|one| one.location.first_instruction == FirstInstruction::SingleStepped)
        .count();
    match calibration {
        Ok(calibration) => {
            writeln!(
                out,
                "a probed call costs the process {}",
                display_nanos(calibration.cost_per_call_ns)
            )?;
            if stepped > 0 {
                writeln!(
                    out,
                    "one of the {stepped} that are single-stepped {}: left out without --include-single-stepped",
                    display_nanos(calibration.single_step_cost_ns)
                )?;
            }
        }
        Err(why) => writeln!(out, "what a probed call costs cannot be told here: {why}")?,
    }
    Ok(())
}

/// A function's file and offset, and whether a probe there costs a second trap.
fn place(location: &Location) -> String {
    let cost = match location.first_instruction {
        FirstInstruction::Emulated => "",
        FirstInstruction::SingleStepped => " single-stepped",
    };
    let path = text::of_path(location.binary.path());
    format!("{path}+{:#x}{cost}", location.offset)
}
