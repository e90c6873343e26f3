//! The time from one function to another: each is met as it begins, as a USDT probe is, by the same programs. No return is touched but of
//! functions that are to end it as they return.

use ckb_probe_crds::Reason;

use super::{
    super::{Matching, Span, search::FoundSite},
    Matched, counted,
};
use crate::{
    kernel::{LookedAt, Operand, Role, ValueKind, ZERO},
    mechanism::Refusal,
    observe::{Machine, Pattern},
};

/// Where the calling convention has the first arguments that are numbers or addresses.
const REGISTERS: [u8; 6] = Machine::NATIVE.argument_registers();

/// The places of both, of which `find` finds what matches one pattern.
pub(super) fn spanning(
    matching: &Matching,
    span: &Span,
    find: impl Fn(&Matching) -> Result<Matched, Refusal>,
) -> Result<Matched, Refusal> {
    let key = span.key.map(|key| argument(key, "keyArgument"));
    let parent = span
        .parent
        .map(|parent| argument(parent, "traceparentArgument"));
    let (key, parent) = (key.transpose()?, parent.transpose()?);
    let of = |glob: &String, role: Role| {
        let pattern = Pattern {
            glob: glob.clone(),
            ..matching.pattern.clone()
        };
        let mut matched = find(&Matching {
            pattern,
            span: None,
            ..matching.clone()
        })?;
        if role == Role::EndsAtReturn && matched.go {
            return Err(Refusal::new(
                Reason::EntryOnly,
                format!(
                    "{glob} is a function of Go, which moves its stacks: a probe at a return would break the process. Name in to what is \
                     called next, and leave it out of toReturn"
                ),
            ));
        }
        let parent = parent.filter(|_| role == Role::Begins);
        let asked = [
            (key.is_some(), "keyArgument"),
            (parent.is_some(), "traceparentArgument"),
        ];
        if let Some((_, field)) = asked.iter().find(|(asked, _)| *asked && matched.go) {
            return Err(Refusal::new(
                Reason::AttachFailed,
                format!(
                    "{glob} is a function of Go, which passes arguments in ways of its own: leave {field} out"
                ),
            ));
        }
        let sites = matched.groups.iter_mut().flat_map(|(_, sites)| sites);
        for site in sites {
            site.entry_only = role != Role::EndsAtReturn;
            site.hit = Some(LookedAt {
                by: None,
                payload: None,
                role,
                key,
                parent: parent.map(|parent| Operand {
                    kind: ValueKind::Text as u8,
                    ..parent
                }),
            });
        }
        Ok(matched)
    };
    let mut whole = of(&span.from, Role::Begins)?;
    let mut sites: Vec<FoundSite> = Vec::new();
    take(&mut sites, &mut whole)?;
    for (glob, role) in span.ends() {
        let mut ends = of(glob, role)?;
        take(&mut sites, &mut ends)?;
        whole.left_out.append(&mut ends.left_out);
        whole.shared.append(&mut ends.shared);
        whole.variants.append(&mut ends.variants);
        whole.indirect.append(&mut ends.indirect);
    }
    let ends = span.ends().map(|(glob, role)| match role {
        Role::EndsAtReturn => format!("the return of {glob}"),
        _ => glob.clone(),
    });
    let ends: Vec<String> = ends.collect();
    let row = format!("{} to {}", span.from, ends.join(" or "));
    whole.groups = vec![(counted(row, matching), sites)];
    // No return of Go's is touched.
    whole.go = false;
    Ok(whole)
}

impl Span {
    /// What ends it, and how.
    fn ends(&self) -> impl Iterator<Item = (&String, Role)> {
        let begin = self.to.iter().map(|glob| (glob, Role::Ends));
        let returns = self.to_return.iter();
        begin.chain(returns.map(|glob| (glob, Role::EndsAtReturn)))
    }
}

/// Takes the places of what was found, each once; refused where something would both begin and end, or end twice.
fn take(sites: &mut Vec<FoundSite>, matched: &mut Matched) -> Result<(), Refusal> {
    for site in matched.groups.drain(..).flat_map(|(_, sites)| sites) {
        match sites.iter().find(|known| known.is_at(&site)) {
            None => sites.push(site),
            Some(known) if known.hit == site.hit => {}
            Some(known) => {
                let symbol = &known.symbol;
                let begins = known.hit.is_some_and(|hit| hit.role == Role::Begins);
                let returns = site.hit.is_some_and(|hit| hit.role == Role::EndsAtReturn);
                return Err(Refusal::new(
                    Reason::AttachFailed,
                    match (begins, returns) {
                        (true, false) => format!(
                            "{symbol} would both begin and end what is measured: name others in match, or in to"
                        ),
                        (true, true) => format!(
                            "{symbol} would both begin and end what is measured: name others in match, or in toReturn; how long its calls \
                             take is measured without either"
                        ),
                        _ => format!(
                            "{symbol} would end what is measured as it begins, and again as it returns: name it in to, or in toReturn"
                        ),
                    },
                ));
            }
        }
    }
    Ok(())
}

/// A whole register, as it is when the function begins, which this field asks for.
fn argument(number: u8, field: &str) -> Result<Operand, Refusal> {
    let register = REGISTERS.get(usize::from(number).wrapping_sub(1));
    let base = register.ok_or_else(|| {
        Refusal::new(
            Reason::AttachFailed,
            format!(
                "argument {number} is not in a register: {field} is from 1 to {}",
                REGISTERS.len()
            ),
        )
    })?;
    Ok(Operand {
        displacement: 0,
        base: *base,
        index: ZERO,
        scale: 0,
        is_short: 0,
        is_in_memory: 0,
        below: 0,
        bytes: 8,
        kind: ValueKind::Unsigned as u8,
    })
}

#[cfg(test)]
mod tests;
