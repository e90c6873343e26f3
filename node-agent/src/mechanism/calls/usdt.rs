//! USDT probes by patterns of their names.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ckb_probe_crds::Reason;
use ckb_probe_symbols::elf::{SiteError, UsdtSite};

use super::{
    Counted, Kept, Numbered, Span, UsdtPattern,
    operand::operand,
    search::{Found, FoundSite, lack},
};
use crate::{
    kernel::{FamilyArgument, LookedAt, Payload, Role},
    mechanism::{Coverage, Refusal},
    observe::{
        FirstInstruction, Glob, Location, Machine, ProcessId, UsdtCache, UsdtFile, find_usdt,
    },
};

/// Names that a sentence has, of each sort.
const NAMED: usize = 10;

/// Looks for them, and refuses where there are none or too many.
pub(super) fn matching_probes(
    process: ProcessId,
    pattern: &UsdtPattern,
    cache: &UsdtCache,
) -> Result<Found, Refusal> {
    let files = find_usdt(process, cache)?;
    match &pattern.span {
        Some(span) => spanning(&files, pattern, span),
        None => matching(&files, pattern),
    }
}

/// The same in these files.
fn matching(files: &[UsdtFile], pattern: &UsdtPattern) -> Result<Found, Refusal> {
    let UsdtPattern {
        provider, names, ..
    } = pattern;
    let globs = names.iter().map(|glob| {
        Glob::new(glob).map_err(|error| {
            Refusal::new(
                Reason::AttachFailed,
                format!("{glob} is no pattern: {error}"),
            )
        })
    });
    let globs = globs.collect::<Result<Vec<Glob>, Refusal>>()?;
    let matches = |name: &str| globs.iter().any(|glob| glob.matches(name));
    let mut rows: BTreeMap<&str, Vec<FoundSite>> = BTreeMap::new();
    let mut refused: BTreeMap<SiteError, BTreeSet<String>> = BTreeMap::new();
    let (mut providers, mut others) = (BTreeSet::new(), BTreeSet::new());
    for file in files {
        for site in &file.probes.sites {
            providers.insert(site.provider.as_str());
            if site.provider != *provider {
                continue;
            }
            if !matches(&site.name) {
                others.insert(site.name.as_str());
                continue;
            }
            let sites = rows.entry(&site.name).or_default();
            // One place that several notes tell of is met once.
            let is_there = |known: &FoundSite| {
                known.location.offset == site.offset
                    && Arc::ptr_eq(&known.location.binary, &file.binary)
            };
            if !sites.iter().any(is_there) {
                let by = pattern.by.map(|by| operand(site, by)).transpose()?;
                let payload = pattern.payload.map(|number| Numbered {
                    number,
                    kind: Kept::String,
                });
                let payload = payload.map(|payload| operand(site, payload)).transpose()?;
                let looked_at = LookedAt {
                    by,
                    payload,
                    ..LookedAt::default()
                };
                let is_looked_at = by.is_some() || payload.is_some();
                sites.push(found(file, site, is_looked_at.then_some(looked_at)));
            }
        }
        let left_out = file.probes.refused.iter();
        for site in left_out.filter(|site| site.provider == *provider && matches(&site.name)) {
            refused
                .entry(site.why)
                .or_default()
                .insert(site.name.clone());
        }
    }
    let sentence: String = refused.iter().map(left_out).collect();
    if rows.is_empty() {
        let why = nothing(pattern, &providers, &others);
        return Err(Refusal::new(
            Reason::SymbolNotFound,
            format!("{why}{sentence}"),
        ));
    }
    if rows.len() > pattern.limit {
        return Err(Refusal::new(
            Reason::TooManyMatches,
            format!(
                "{} matches {} USDT probes of {provider}, more than the limit of {}: for example {}; name fewer, or raise \
                 limit",
                names.join(", "),
                rows.len(),
                pattern.limit,
                first_of(rows.keys()),
            ),
        ));
    }
    let lacks = refused.into_values();
    Ok(Found {
        groups: rows
            .into_iter()
            .map(|(row, sites)| (counted(row.to_string(), pattern), sites))
            .collect(),
        coverage: Coverage {
            lacks: lacks
                .map(|names| lack(Reason::SymbolNotFound, names.into_iter().collect()))
                .collect(),
            sentence,
            may_grow: false,
        },
        go: false,
    })
}

/// The places of two probes: where something begins, and where it ends.
fn spanning(files: &[UsdtFile], pattern: &UsdtPattern, span: &Span) -> Result<Found, Refusal> {
    let of = |name: &str, role: Role| {
        let one = UsdtPattern {
            names: vec![name.to_string()],
            by: pattern.by.filter(|_| role == Role::Begins),
            ..pattern.clone()
        };
        let key = span.key.map(|number| Numbered {
            number,
            kind: Kept::Integer,
        });
        let parent = span.parent.filter(|_| role == Role::Begins);
        let parent = parent.map(|number| Numbered {
            number,
            kind: Kept::String,
        });
        let named = |site: &&UsdtSite| site.provider == one.provider && site.name == name;
        let mut sites: Vec<FoundSite> = Vec::new();
        for file in files {
            for site in file.probes.sites.iter().filter(named) {
                let hit = LookedAt {
                    by: one.by.map(|by| operand(site, by)).transpose()?,
                    key: key.map(|key| operand(site, key)).transpose()?,
                    parent: parent.map(|parent| operand(site, parent)).transpose()?,
                    payload: None,
                    role,
                };
                let place = found(file, site, Some(hit));
                if !sites.iter().any(|known| known.is_at(&place)) {
                    sites.push(place);
                }
            }
        }
        match sites.is_empty() {
            false => Ok(sites),
            // It says what there is instead.
            true => Err(matching(files, &one).err().unwrap_or_else(|| {
                let provider = &one.provider;
                let sentence = format!("no USDT probe of {provider} is called {name}");
                Refusal::new(Reason::SymbolNotFound, sentence)
            })),
        }
    };
    let mut sites = of(&span.from, Role::Begins)?;
    for name in &span.to {
        sites.extend(of(name, Role::Ends)?);
    }
    let row = format!("{} to {}", span.from, span.to.join(" or "));
    let group = Counted {
        slow_threshold_ns: span.slow_threshold_ns,
        span: Some(span.clone()),
        ..counted(row, pattern)
    };
    Ok(Found {
        groups: vec![(group, sites)],
        coverage: Coverage::default(),
        go: false,
    })
}

fn counted(row: String, pattern: &UsdtPattern) -> Counted {
    Counted {
        by: pattern.by,
        payload: pattern.payload,
        found_by: Some((pattern.provider.clone(), None)),
        ..Counted::plain(row, Vec::new())
    }
}

fn found(file: &UsdtFile, site: &UsdtSite, hit: Option<LookedAt>) -> FoundSite {
    FoundSite {
        symbol: format!("{}:{}", site.provider, site.name),
        payload: Payload::Unknown,
        family: FamilyArgument::None,
        location: Location {
            binary: Arc::clone(&file.binary),
            offset: site.offset,
            first_instruction: FirstInstruction::of_nop(Machine::NATIVE),
        },
        semaphore: site.semaphore,
        entry_only: true,
        hit,
    }
}

fn left_out((why, names): (&SiteError, &BTreeSet<String>)) -> String {
    let were = match names.len() {
        1 => "a place was",
        _ => "places were",
    };
    format!("; of {} {were} left out: {why}", first_of(names))
}

fn nothing(
    UsdtPattern {
        provider, names, ..
    }: &UsdtPattern,
    providers: &BTreeSet<&str>,
    others: &BTreeSet<&str>,
) -> String {
    if !others.is_empty() {
        return format!(
            "no USDT probe of {provider} matches {}; there is {}",
            names.join(", "),
            first_of(others)
        );
    }
    match providers.is_empty() {
        true => format!(
            "the process has no USDT probes, of {provider} or of anybody: they are there where a program was built with \
             them, as PostgreSQL is with --enable-dtrace"
        ),
        false => format!(
            "no file of the process has USDT probes of {provider}; there are those of {}",
            first_of(providers)
        ),
    }
}

/// The first of them, and how many more there are.
fn first_of<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let names = names.into_iter().collect::<Vec<T>>();
    let named: Vec<&str> = names.iter().take(NAMED).map(AsRef::as_ref).collect();
    let more = match names.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests;
