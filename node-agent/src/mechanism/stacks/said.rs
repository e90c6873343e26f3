//! A process that says by itself what it allocates and frees, by USDT probes: the contract of OpenTelemetry's eBPF profiler (its design document 3). It
//! has a sampler of its own, which wants no more than that somebody looks.

use std::collections::BTreeSet;

use ckb_probe_symbols::elf::UsdtSite;

use super::{NoAllocator, StacksError};
use crate::{
    kernel::{
        CalibratedTier, LookedAt, Operand, Site,
        stacks::{Allocator, allocations},
    },
    mechanism::{
        Refusal,
        calls::{Kept, Numbered, usdt_operand},
    },
    observe::{ProcessId, UsdtCache, UsdtFile, find_usdt},
};

/// Whose probes they are.
const PROVIDER: &str = "otel_memory";
const SAYS_ALLOCATED: Says = Says {
    name: "alloc",
    role: allocations::SAYS_ALLOCATED,
    address: 1,
    weight: 3,
};
const SAYS_FREED: Says = Says {
    name: "free",
    role: allocations::SAYS_FREED,
    address: 1,
    // It is told nothing of that: the address is all there is.
    weight: 1,
};

/// At so many places at the most: one for each probe in an allocator, and more only where it was inlined. A target's notes may name as many as
/// they like.
pub(super) const PLACES: usize = 64;

/// A probe by which a process says what it does: its name, what it is among [`allocations`], and which of its arguments are the address, and for
/// how many bytes that stands.
#[derive(Clone, Copy)]
struct Says {
    name: &'static str,
    role: u32,
    address: u8,
    weight: u8,
}

impl Says {
    /// Its places in a file, and what is read there.
    fn places(self, file: &UsdtFile) -> Result<Vec<(Site, [Operand; 2])>, Refusal> {
        let is_its = |site: &&_| {
            let UsdtSite { provider, name, .. } = *site;
            provider == PROVIDER && name == self.name
        };
        let sites = file.probes.sites.iter().filter(is_its);
        sites
            .map(|site| {
                let number = |number| {
                    let kind = Kept::Integer;
                    usdt_operand(site, Numbered { number, kind })
                };
                let operands = [number(self.address)?, number(self.weight)?];
                let symbol = format!("{PROVIDER}:{}", self.name);
                let place = Site {
                    entry_only: true,
                    semaphore: site.semaphore,
                    hit: Some(LookedAt::default()),
                    ..Site::plain(&symbol, file.binary.clone(), site.offset, self.role as u8)
                };
                Ok((place, operands))
            })
            .collect()
    }
}

/// Where a process says by itself what it allocates; None where it does not, or its files have no notes that can be read.
pub(super) fn find(
    process: ProcessId,
    means: &CalibratedTier,
) -> Result<Option<(Allocator, u64)>, StacksError> {
    let files = match find_usdt(process, &UsdtCache::default()) {
        Ok(files) => files,
        Err(error) => {
            tracing::debug!(%error, "what it allocates is not looked for among its USDT probes");
            return Ok(None);
        }
    };
    let places = places(&files)?;
    if places.is_empty() {
        return Ok(None);
    }
    let (sites, said) = places.into_iter().unzip();
    let allocator = Allocator {
        tier: means.tier,
        sites,
        said,
    };
    Ok(Some((allocator, means.calibration.counted_cost_ns)))
}

/// Where files say what is allocated and freed, and what is read there; nothing where they do not say what is allocated.
fn places(files: &[UsdtFile]) -> Result<Vec<(Site, [Operand; 2])>, NoAllocator> {
    let mut places = Vec::new();
    for file in files {
        let mut refused = file.probes.refused.iter();
        if let Some(refused) = refused.find(|site| site.provider == PROVIDER) {
            return Err(NoAllocator::Refused(refused.name.clone(), refused.why));
        }
        let mut known = BTreeSet::new();
        for says in [SAYS_ALLOCATED, SAYS_FREED] {
            for (site, operands) in says.places(file).map_err(NoAllocator::Unreadable)? {
                // One place that several notes tell of is met once.
                if known.insert((site.offset, site.slot)) {
                    places.push((site, operands));
                }
            }
        }
        if places.len() > PLACES {
            return Err(NoAllocator::Places);
        }
    }
    let allocates = |(site, _): &(Site, _)| u32::from(site.slot) == SAYS_ALLOCATED.role;
    if !places.iter().any(allocates) {
        places.clear();
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ckb_probe_symbols::{
        Machine,
        elf::{Nops, RefusedSite, SiteError, UsdtProbes},
        usdt_argument::{Argument, ArgumentError, parse_arguments},
    };

    use super::*;
    use crate::kernel::Binary;

    /// This program, as if it had these probes.
    fn file(sites: Vec<UsdtSite>, refused: Vec<RefusedSite>) -> UsdtFile {
        let own = std::env::current_exe().unwrap();
        let probes = UsdtProbes {
            sites,
            refused,
            malformed: 0,
        };
        UsdtFile {
            binary: Arc::new(Binary::open(&own).unwrap()),
            probes: Arc::new(probes),
        }
    }

    /// Numbers.
    fn arguments() -> Vec<Result<Argument, ArgumentError>> {
        let text = match Machine::NATIVE {
            Machine::X86_64 => "8@$1 8@$2 8@$3",
            Machine::Aarch64 => "8@1 8@2 8@3",
        };
        parse_arguments(Machine::NATIVE, text).unwrap()
    }

    fn site(name: &str, offset: u64) -> UsdtSite {
        UsdtSite {
            provider: PROVIDER.to_owned(),
            name: name.to_owned(),
            offset,
            nops: Nops::One,
            semaphore: None,
            arguments: arguments(),
        }
    }

    #[test]
    fn one_place_that_several_notes_tell_of_is_attached_to_once() {
        let sites = vec![
            site("alloc", 7),
            site("alloc", 7),
            site("free", 7),
            site("alloc", 9),
            site("mmap", 11),
        ];
        let found = places(&[file(sites, Vec::new())]).unwrap();
        let at = |(site, _): &(Site, _)| (site.symbol.clone(), site.offset);
        let found: Vec<_> = found.iter().map(at).collect();
        let expected = [("alloc", 7), ("alloc", 9), ("free", 7)];
        let expected = expected.map(|(name, offset)| (format!("otel_memory:{name}"), offset));
        assert_eq!(found, expected);
        // Who says only what is freed says nothing of what it had.
        assert_eq!(
            places(&[file(vec![site("free", 7)], Vec::new())])
                .unwrap()
                .len(),
            0
        );
    }

    #[test]
    fn what_cannot_be_attached_to_as_a_whole_is_not_attached_to() {
        let many = |count| (0..count).map(|at| site("alloc", at)).collect();
        assert_eq!(places(&[file(many(64), Vec::new())]).unwrap().len(), 64);
        let more = [file(many(64), Vec::new()), file(many(1), Vec::new())];
        assert_eq!(places(&more).unwrap_err(), NoAllocator::Places);
        let why = SiteError::Machine;
        let refused = |provider: &str| RefusedSite {
            provider: provider.to_owned(),
            name: "free".to_owned(),
            why,
        };
        let lacking = file(many(1), vec![refused(PROVIDER)]);
        let expected = NoAllocator::Refused("free".to_owned(), why);
        assert_eq!(places(&[lacking]).unwrap_err(), expected);
        // Another's is no matter here.
        assert_eq!(
            places(&[file(many(1), vec![refused("other")])])
                .unwrap()
                .len(),
            1
        );
    }
}
