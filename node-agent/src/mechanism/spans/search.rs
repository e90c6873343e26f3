//! Where the functions of spans are, and what their calls cost.

use std::time::Duration;

use ckb_probe_crds::{Lack, Name, Reason};

use super::{
    super::{BeginContext, Coverage, Refusal, calls},
    Operation, SpansConfig, role,
};
use crate::kernel::{
    CalibratedTier, FamilyArgument, Site, Tier,
    spans::{OPERATIONS, SpanHits},
};

impl SpansConfig {
    /// Where the functions are. Those without which there are no spans must be there.
    pub(super) fn find(
        &self,
        means: CalibratedTier,
        context: &BeginContext<'_>,
    ) -> Result<Found, Refusal> {
        let asked = [self.asked()];
        let found = &context.node.found;
        let searched = calls::search(means, context.process, &asked, context.first, found);
        let calls::Searched {
            mut answers,
            slots,
            sites,
            ..
        } = searched.map_err(|error| Refusal::from(&error))?;
        let coverage = match answers.pop() {
            Some(Ok(accepted)) => accepted.coverage,
            Some(Err(refusal)) => return Err(refusal),
            None => Coverage::default(),
        };
        if sites.iter().any(|(site, _)| site.entry_only) {
            return Err(Refusal {
                reason: Reason::EntryOnly,
                message: "spans end at the return of a function, and on this kernel a probe there kills a process that is \
                          confined by seccomp, as this one is"
                    .to_string(),
                lacks: coverage.lacks,
            });
        }
        let mut costs = [CallCost::default(); OPERATIONS];
        let mut placed: Vec<Site> = Vec::new();
        for (site, cost) in sites {
            let row = slots
                .get(usize::from(site.slot))
                .map(|(counted, _)| &counted.row);
            let mut names = self.operations.iter();
            let Some(slot) =
                names.position(|operation| Some(operation.name) == row.map(String::as_str))
            else {
                continue;
            };
            let entry_only = matches!(self.operations[slot].role, role::BEGIN | role::DROP);
            costs[slot] = costs[slot].max(CallCost::of(means, cost, entry_only));
            placed.push(Site {
                slot: slot as u8,
                entry_only,
                family: self.family_argument(&self.operations[slot]),
                ..site
            });
        }
        self.has_what_it_takes(&placed, &coverage)?;
        Ok(Found {
            sites: placed,
            costs,
            coverage,
        })
    }

    /// Where the programs look for the column family of a call, if that matters to anyone.
    fn family_argument(&self, operation: &Operation) -> FamilyArgument {
        match operation.role {
            role::PUT | role::DELETE => operation.family,
            _ if self.by_family => operation.family,
            _ => FamilyArgument::None,
        }
    }

    fn has_what_it_takes(&self, sites: &[Site], coverage: &Coverage) -> Result<(), Refusal> {
        let is_there = |slot: usize| sites.iter().any(|site| usize::from(site.slot) == slot);
        let needed = |operation: &Operation| {
            matches!(operation.role, role::BEGIN | role::COMMIT | role::PUT)
        };
        let operations = self.operations.iter().enumerate();
        let missing = operations.filter(|(slot, one)| needed(one) && !is_there(*slot));
        let missing: Vec<String> = missing.map(|(_, one)| one.name.to_string()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(Refusal {
            reason: Reason::SymbolNotFound,
            message: format!(
                "the executable lacks functions by which it begins, names and ends what is measured ({}){}",
                missing.join(", "),
                coverage.sentence
            ),
            lacks: vec![Lack {
                reason: Reason::SymbolNotFound,
                items: missing,
            }],
        })
    }

    /// The functions, as the mechanism `calls` looks for them.
    fn asked(&self) -> calls::CallsConfig {
        let counted = self.operations.iter().map(|operation| {
            let functions = operation.functions.iter().copied();
            let functions = functions.map(calls::Function::plain).collect();
            calls::Counted {
                include_single_stepped: operation.include_single_stepped,
                ..calls::Counted::plain(operation.name.to_string(), functions)
            }
        });
        calls::CallsConfig {
            measures: calls::Measures::Counted(Name::Borrowed("calls")),
            sought: calls::Sought::Listed(counted.collect()),
        }
    }

    pub(super) fn roles(&self) -> [u8; OPERATIONS] {
        let mut roles = [role::TIMED; OPERATIONS];
        for (role, operation) in roles.iter_mut().zip(self.operations) {
            *role = operation.role;
        }
        roles
    }
}

/// What was found of the functions.
pub(super) struct Found {
    pub sites: Vec<Site>,
    pub costs: [CallCost; OPERATIONS],
    pub coverage: Coverage,
}

/// What a call of an operation costs, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallCost {
    own: u64,
    others: u64,
}

impl CallCost {
    fn of(means: CalibratedTier, cost: Duration, entry_only: bool) -> Self {
        let cost = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        let calibration = means.calibration;
        // What the kernel's single step takes is there in any case.
        let stepped = cost.saturating_sub(calibration.cost_per_call_ns);
        let entry = calibration.counted_cost_ns.saturating_add(stepped);
        // A session is not called at the return of who it said no to; of a pair, the other half is.
        let others = match means.tier {
            Tier::Session => entry,
            Tier::UprobeMulti | Tier::PerfEvent => cost,
        };
        match entry_only {
            true => Self {
                own: entry,
                others: entry,
            },
            false => Self { own: cost, others },
        }
    }

    pub fn spent(self, hits: SpanHits) -> u64 {
        let own = self.own.saturating_mul(hits.own);
        own.saturating_add(self.others.saturating_mul(hits.others))
    }
}
