//! What was found on a host, of one process, and what it comes to: the same places, without those of a cluster.

use ckb_probe_crds::{Check, Reason};

use super::{Diagnosis, Finding, Mark, Part, Place, reasons};
use crate::VERSION;

/// All that is looked at, in the order in which it is: what comes after the first that failed was not tried.
#[derive(Clone, Debug, Default)]
pub struct HostSnapshot {
    /// What the node was checked for.
    pub checks: Vec<Check>,
    /// How probes attach here, and what a call costs; or why none does.
    pub means: Option<Result<String, String>>,
    /// The process, `process 1234 (ckb)`; or why there is none.
    pub process: Option<Result<String, String>>,
    /// How many functions that are looked for by name it has; or why its files cannot be searched.
    pub symbols: Option<Result<Functions, String>>,
    /// What is measured without, if anything; or why it cannot be attached to, and the word for it.
    pub attached: Option<Result<String, (Reason, String)>>,
    /// What is not measured beside that since the process lacks what it needs: its name, the word for it, and why.
    pub refused: Vec<(String, Reason, String)>,
    /// What was counted.
    pub figures: Option<Counted>,
}

/// Functions that a process has.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Functions {
    /// How many of those that are looked for are there.
    pub found: usize,
    /// The names of those that are not.
    pub missing: Vec<String>,
    /// Whether the executable has no symbol table.
    pub stripped: bool,
    /// Whether what is asked looks for functions at all.
    pub wanted: bool,
    /// Whether something of what is asked looks for none.
    pub not_by_all: bool,
}

/// What was counted within some seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// For so long.
    pub seconds: f64,
    /// Whether there was anything.
    pub any: bool,
    /// All of it in a few words.
    pub headline: String,
    /// Whether nothing is no fault.
    pub quiet: bool,
}

/// What lists the functions that there are.
const SYMBOLS: &str = "ckb-probe symbols --match '*' --pid PID";

/// So many functions are named that are missing.
const NAMED: usize = 5;

impl HostSnapshot {
    /// What is wrong first, and what else is known.
    pub fn diagnose(&self) -> Diagnosis {
        let parts = vec![Part {
            name: "command line".to_owned(),
            version: VERSION.to_owned(),
        }];
        let mut findings = Vec::new();
        for look in [node, process, symbols, kernel, figures] {
            let told: Vec<Finding> = look(self);
            let failed = told.iter().any(|one| one.mark == Mark::Failed);
            findings.extend(told);
            // Who lacks one thing may have had the others measured.
            if failed && self.refused.is_empty() {
                break;
            }
        }
        Diagnosis::of(parts, findings)
    }
}

fn node(found: &HostSnapshot) -> Vec<Finding> {
    let place = Place::Node;
    let Some(means) = &found.means else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    match means {
        Ok(means) => findings.push(Finding::passed(place, means.clone())),
        Err(why) => findings.push(Finding {
            reason: Some(Reason::PreflightFailed),
            ..Finding::failed(place, why.clone())
                .next("sudo ckb-probe check")
                .see("preflightfailed")
        }),
    }
    // Where nothing works, that says all of them.
    let checks = found
        .checks
        .iter()
        .filter(|check| !check.passed && means.is_ok());
    findings.extend(checks.map(|check| {
        Finding::warning(place, format!("{}: {}", check.name, check.detail)).see("preflightfailed")
    }));
    findings
}

fn process(found: &HostSnapshot) -> Vec<Finding> {
    let place = Place::Process;
    let finding = found.process.as_ref().map(|process| match process {
        Ok(process) => Finding::passed(place, process.clone()),
        Err(why) => Finding {
            reason: Some(Reason::ExecutableNotFound),
            ..Finding::failed(place, why.clone())
                .next("ps -e -o pid,comm")
                .see("executablenotfound")
        },
    });
    finding.into_iter().collect()
}

fn symbols(found: &HostSnapshot) -> Vec<Finding> {
    let place = Place::Symbols;
    let Some(symbols) = &found.symbols else {
        return Vec::new();
    };
    vec![match symbols {
        Err(why) => Finding::failed(place, why.clone()).see("attachfailed"),
        Ok(one) if !one.wanted => {
            Finding::passed(place, "what is asked needs no function of the process")
        }
        // What that means for which question is said of each.
        Ok(one) if one.found == 0 && !found.refused.is_empty() => return Vec::new(),
        Ok(one) if one.found == 0 => {
            let why = match one.stripped {
                true => "its executable is stripped: it has no symbol table",
                false => "it has none of the functions that are measured by name",
            };
            Finding {
                reason: Some(Reason::SymbolNotFound),
                ..Finding::failed(place, why)
                    .next(SYMBOLS)
                    .see("symbolnotfound")
            }
        }
        Ok(Functions { found, missing, .. }) if missing.is_empty() => Finding::passed(
            place,
            format!("all {found} functions that are measured by name are there"),
        ),
        Ok(Functions { found, missing, .. }) => {
            let named: Vec<&str> = missing.iter().take(NAMED).map(String::as_str).collect();
            let more = match missing.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            Finding::passed(
                place,
                format!(
                    "{found} functions that are measured by name are there; not {}{more}",
                    named.join(", ")
                ),
            )
        }
    }]
}

fn kernel(found: &HostSnapshot) -> Vec<Finding> {
    let place = Place::Kernel;
    let Some(attached) = &found.attached else {
        return Vec::new();
    };
    let refused = found.refused.iter().map(|(name, reason, why)| Finding {
        reason: Some(*reason),
        ..Finding::failed(place, format!("{name} is not measured: {why}"))
            .next(next_of(*reason))
            .see(&reasons::anchor(*reason))
    });
    let attached = match attached {
        Ok(lacks) if lacks.is_empty() && !found.refused.is_empty() => {
            Finding::passed(place, "all else that is asked is attached")
        }
        Ok(lacks) if lacks.is_empty() => Finding::passed(place, "all that is asked is attached"),
        Ok(lacks) => Finding::warning(place, format!("attached{lacks}")),
        Err((reason, why)) => {
            let place = reasons::place(*reason).unwrap_or(place);
            Finding {
                reason: Some(*reason),
                ..Finding::failed(place, why.clone())
                    .next(next_of(*reason))
                    .see(&reasons::anchor(*reason))
            }
        }
    };
    refused.chain([attached]).collect()
}

fn next_of(reason: Reason) -> &'static str {
    match reasons::place(reason) {
        Some(Place::Symbols) => SYMBOLS,
        _ => "sudo ckb-probe check",
    }
}

fn figures(found: &HostSnapshot) -> Vec<Finding> {
    let place = Place::Figures;
    let Some(Counted {
        seconds,
        any,
        headline,
        quiet,
    }) = &found.figures
    else {
        return Vec::new();
    };
    vec![match *any || *quiet {
        true if headline.is_empty() && *any => Finding::warning(
            place,
            format!(
                "within {seconds:.0} s something was seen, and too little was watched to tell how often"
            ),
        )
        .next("ckb-probe check --seconds 30 --pid PID"),
        true if headline.is_empty() => {
            Finding::passed(place, format!("within {seconds:.0} s: nothing to tell"))
        }
        true => Finding::passed(place, format!("within {seconds:.0} s: {headline}")),
        false => Finding {
            reason: Some(Reason::Silent),
            ..Finding::failed(
                place,
                format!("attached, and nothing that is measured happened within {seconds:.0} s"),
            )
            .next("ckb-probe check --seconds 30 --pid PID")
            .see("silent")
        },
    }]
}
