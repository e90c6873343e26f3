//! The same in the form of `-o json`.

use std::path::Path;

use ckb_probe_agent::{
    kernel::Calibration,
    mechanism::calls::Counted,
    observe::{FirstInstruction, Function, Glob, Location, Matches, Symbols as Found, UsdtFile},
    text,
};
use ckb_probe_views::symbols::{
    Symbol, SymbolPlace, Symbols, UsdtFileProbes, UsdtPlace, UsdtProbes,
};

/// Those that are measured by name, whether they are there or not.
pub fn listed(subject: &str, wanted: &[Counted], symbols: &Found) -> Symbols {
    let functions = wanted.iter().flat_map(|one| {
        one.functions.iter().map(|function| {
            let found = symbols.found.get(&function.symbol);
            Symbol {
                row: Some(one.row.to_string()),
                name: function.symbol.to_string(),
                places: found.into_iter().flatten().map(place).collect(),
            }
        })
    });
    Symbols {
        subject: subject.to_owned(),
        stripped: symbols.stripped,
        total: symbols.found.len() as u64,
        functions: functions.collect(),
        ..Symbols::default()
    }
}

/// Those that match a pattern, and what a call of theirs costs, where that is known.
pub fn matching(subject: &str, matches: &Matches, calibration: Option<Calibration>) -> Symbols {
    let of = |Function { name, location, .. }: &Function| Symbol {
        row: None,
        name: name.clone(),
        places: vec![place(location)],
    };
    Symbols {
        subject: subject.to_owned(),
        stripped: matches.stripped,
        go: matches.go,
        total: matches.total as u64,
        call_nanoseconds: calibration.as_ref().map(|one| one.cost_per_call_ns),
        single_stepped_nanoseconds: calibration.as_ref().map(|one| one.single_step_cost_ns),
        functions: matches.found.iter().map(of).collect(),
        sample: match matches.found.is_empty() {
            true => matches.sample.clone(),
            false => Vec::new(),
        },
    }
}

fn place(location: &Location) -> SymbolPlace {
    SymbolPlace {
        file: text::of_path(location.binary.path()),
        offset: location.offset,
        single_stepped: location.first_instruction == FirstInstruction::SingleStepped,
    }
}

/// USDT probes whose names match, or all.
pub fn usdt(
    subject: String,
    files: &[UsdtFile],
    glob: Option<&Glob>,
    hit_nanoseconds: Option<u64>,
) -> UsdtProbes {
    let files = files.iter().map(|file| of_file(file, glob));
    UsdtProbes {
        subject,
        hit_nanoseconds,
        files: files
            .filter(|file| !file.probes.is_empty() || file.malformed > 0)
            .collect(),
    }
}

fn of_file(file: &UsdtFile, glob: Option<&Glob>) -> UsdtFileProbes {
    let matches = |name: &str| glob.is_none_or(|glob| glob.matches(name));
    let sites = file.probes.sites.iter().filter(|site| matches(&site.name));
    let sites = sites.map(|site| UsdtPlace {
        provider: site.provider.clone(),
        name: site.name.clone(),
        offset: Some(site.offset),
        instruction: Some(site.nops.as_str().to_owned()),
        semaphore_offset: site.semaphore,
        arguments: (site.arguments.iter())
            .map(|one| match one {
                Ok(argument) => argument.to_string(),
                Err(error) => error.to_string(),
            })
            .collect(),
        left_out: None,
    });
    let refused = file.probes.refused.iter();
    let refused = refused.filter(|site| matches(&site.name));
    let refused = refused.map(|site| UsdtPlace {
        provider: site.provider.clone(),
        name: site.name.clone(),
        left_out: Some(site.why.to_string()),
        ..UsdtPlace::default()
    });
    UsdtFileProbes {
        file: text::of_path(file.binary.path()),
        probes: sites.chain(refused).collect(),
        malformed: file.probes.malformed,
    }
}

/// What a file is called where nobody runs it.
pub fn file(path: &Path) -> String {
    format!("file {}", text::of_path(path))
}
