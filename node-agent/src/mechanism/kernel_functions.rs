//! Calls of the kernel's functions on behalf of a process, by kprobes: programs of the same object and the same maps as for calls
//! of the process's own functions. They are run for every process that calls the function; what that costs, who asks pays for.

mod account;
mod admitted;
mod debt;
mod registry;
mod tier;
mod untouchable;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use account::Account;
pub use admitted::ADMITTED;
use admitted::is_admitted;
use ckb_probe_crds::{Lack, Name, Reason};
use k8s_openapi::jiff::Timestamp;
pub use registry::KernelRegistry;
use registry::{NodeShare, Turn};
use tier::Costs;
use untouchable::Untouchable;

use super::{
    Accepted, BeginContext, Begun, Config, Coverage, Detail, Event, Foreseen, GroupId, GroupIds,
    Lost, Mechanism, Reading, Refusal, RowReading, Subscription,
    calls::{Measures, Told, lost_of_each, slots_of, slow_call},
    identity,
};
use crate::{
    kernel::{
        AttachError, DEFAULT_RING_BYTES, KernelPlan, KernelSite, Links, Probes, ReadError, Slots,
        Trial, Tried,
    },
    observe::{self, Glob, KernelFunctions, ProcessId, find_kernel_functions},
};

/// How many names a message gives for example.
const SAMPLE: usize = 10;

/// What a status lists of what is lacking for one reason.
const MAX_ITEMS: usize = 64;

/// What a kind wants of the kernel's functions.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelFunctionsConfig {
    /// What is measured of a call, in the kind's words.
    pub measures: Measures,
    /// What their names match.
    pub glob: String,
    /// How many may match.
    pub limit: usize,
    /// Calls that take at least this long are slow.
    pub slow_threshold_ns: u64,
}

/// Calls of the kernel's functions by one process.
struct KernelCalls {
    process: ProcessId,
    probes: Probes,
    /// The group of the first slot.
    first: GroupId,
    measures: Measures,
    /// By slot.
    costs: Vec<Option<Duration>>,
    foreseen: Foreseen,
    cost: Costs,
    one_by_one: bool,
    /// CPU-seconds per second that all may cost together who have functions of the kernel probed, and its part of it.
    bystanders: Option<f64>,
    share: NodeShare,
    registry: KernelRegistry,
    account: RefCell<Account>,
    /// It was attached once: until then it is not known what it costs.
    begun: bool,
}

impl Config for KernelFunctionsConfig {
    fn begin(configs: &[Self], context: BeginContext<'_>) -> Begun {
        let (registry, process) = (context.node.kernel.clone(), context.process);
        let bystanders = context.node.policy.bystanders;
        // One at a time finds out what there is to attach to; one at a time attaches.
        let turn = registry.turn_to_begin();
        let not_now = match &turn {
            None => Some(OTHERS_BEGIN.to_string()),
            Some(_) => registry.wait(process).map(too_soon).or_else(|| {
                let wait = bystanders.and_then(|all| registry.owing(all));
                wait.map(owing)
            }),
        };
        if let Some(message) = not_now {
            return Begun::refused(configs.iter().map(|_| not_yet(message.clone())));
        }
        let begun = Begun::each(configs, context, Self::begin_one);
        // What is refused is attached to nothing, and may be asked for in better words at once.
        if !begun.mechanisms.is_empty() {
            registry.begins(process);
        }
        begun
    }
}

/// All that is asked of a process is begun anew when anything of it changes; and what is begun costs others before it is known how much.
fn too_soon(wait: Duration) -> String {
    format!(
        "functions of the kernel were attached for this process a moment ago, and what is asked of it has changed since: they are not \
         attached more often than every {} s; it is tried again, no sooner than in {} s",
        registry::BETWEEN.as_secs(),
        wait.as_millis().div_ceil(1000),
    )
}

/// They are many, or the kernel is slow.
const OTHERS_BEGIN: &str = "functions of the kernel are being attached for other processes of this node, one at a time, and that takes longer than is \
     waited for: it is tried again";

/// Whoever asked before, and whether that is asked still.
fn owing(wait: Duration) -> String {
    format!(
        "functions of the kernel that were probed on this node have cost those who call them and are not asked more than they may pay \
         (`agent.maxNodePercent`): nothing more begins until that is made good; it is tried again, no sooner than in {} s",
        wait.as_millis().div_ceil(1000),
    )
}

fn not_yet(message: String) -> Refusal {
    Refusal::new(Reason::AttachFailed, message)
}

impl KernelFunctionsConfig {
    fn begin_one(
        &self,
        context: BeginContext<'_>,
    ) -> Result<(Box<dyn Mechanism>, Accepted), Refusal> {
        let policy = &context.node.policy;
        let (bystanders, admitted) = (policy.bystanders, policy.kernel_functions.clone());
        let chosen = self.choose(admitted.as_deref())?;
        if chosen.functions.is_empty() && !chosen.unadmitted.is_empty() {
            let coverage = coverage(chosen, BTreeSet::new());
            return Err(self.nothing(Reason::KindNotAdmitted, coverage));
        }
        let registry = context.node.kernel.clone();
        let (tier, cost) = tier::means(&registry)?;
        let names = chosen.functions.iter().map(String::as_str).collect();
        let Trial(tried) = registry.tried(tier, &names, |names| {
            let trial = Trial::of(tier, names)?;
            if let Some(all) = bystanders {
                let (_, miss) = cost.beside(registry.sharing());
                registry.charge(trial.calls() as f64 * miss.as_secs_f64(), all);
            }
            Ok::<_, AttachError>(trial)
        })?;
        let refused = tried.iter().filter(|(_, tried)| !tried.admitted);
        let refused = refused.map(|(name, _)| name.clone()).collect();
        // What the trial cost others is made good first.
        if let Some(wait) = bystanders.and_then(|all| registry.owing(all)) {
            return Err(not_yet(owing(wait)));
        }
        let functions = &chosen.functions - &refused;
        let coverage = coverage(chosen, refused);
        if functions.is_empty() {
            return Err(self.nothing(Reason::UnsupportedByKernel, coverage));
        }
        let plan = KernelPlan {
            process: identity(context.process),
            sites: functions
                .iter()
                .map(|function| KernelSite {
                    function: function.clone(),
                    slow_threshold_ns: self.slow_threshold_ns,
                })
                .collect(),
            ring_bytes: DEFAULT_RING_BYTES,
            trap_ns: cost.trap_ns,
        };
        let calls = KernelCalls {
            process: context.process,
            probes: Probes::load_kernel(tier, &plan)?,
            first: context.first,
            measures: self.measures.clone(),
            costs: vec![Some(cost.hit); functions.len()],
            foreseen: foreseen(&functions, &tried, tier.detaches_one_by_one()),
            cost,
            one_by_one: tier.detaches_one_by_one(),
            bystanders,
            share: registry.share(),
            registry,
            account: RefCell::default(),
            begun: false,
        };
        let subscription = |(slot, function)| Subscription {
            group: context.first.offset(slot),
            row: Some(function),
            blank: self.measures.figures(Default::default(), Told::default()),
            ..Subscription::default()
        };
        let subscriptions = functions
            .into_iter()
            .enumerate()
            .map(subscription)
            .collect();
        Ok((
            Box::new(calls),
            Accepted {
                subscriptions,
                coverage,
            },
        ))
    }
}

/// As they were called while they were tried, by whomever: nothing of one of which that is not known. Each call is taken for one that is recorded,
/// which costs more than others do; and for as long as they came and went they will: `one_by_one`, where the kernel waits after each.
fn foreseen(
    functions: &BTreeSet<String>,
    tried: &BTreeMap<String, Tried>,
    one_by_one: bool,
) -> Foreseen {
    let rate = |tried: &Tried| tried.calls as f64 / tried.lasted.as_secs_f64().max(1e-6);
    let tried = || functions.iter().map(|name| tried.get(name));
    let edges = tried().flatten().map(|tried| tried.edge);
    Foreseen {
        edge: match one_by_one {
            true => edges.sum(),
            false => edges.max().unwrap_or_default(),
        },
        rates: tried().map(|tried| tried.map(rate)).collect(),
    }
}

/// What of the functions that match may be probed, as far as their names say.
#[derive(Debug, Default, PartialEq, Eq)]
struct Chosen {
    functions: BTreeSet<String>,
    untouchable: Vec<Untouchable>,
    /// Names that several functions have: the kernel would take one of them.
    ambiguous: BTreeSet<String>,
    /// Those that whoever looks after the node does not let be probed.
    unadmitted: BTreeSet<String>,
}

impl KernelFunctionsConfig {
    /// Nothing of it can be measured.
    fn nothing(&self, reason: Reason, coverage: Coverage) -> Refusal {
        let message = format!(
            "nothing that matches {} is measured{}",
            self.glob, coverage.sentence
        );
        Refusal {
            lacks: coverage.lacks,
            ..Refusal::new(reason, message)
        }
    }

    fn choose(&self, admitted: Option<&[String]>) -> Result<Chosen, Refusal> {
        let glob = Glob::new(&self.glob).map_err(|error| {
            Refusal::new(
                Reason::AttachFailed,
                format!("{:?} is no pattern: {error}", self.glob),
            )
        })?;
        let found = find_kernel_functions(&glob).map_err(|error| {
            Refusal::new(
                Reason::UnsupportedByKernel,
                format!(
                    "the names of the kernel's functions (/proc/kallsyms) cannot be read: {error}"
                ),
            )
        })?;
        self.choose_of(found, admitted)
    }

    fn choose_of(
        &self,
        found: KernelFunctions,
        admitted: Option<&[String]>,
    ) -> Result<Chosen, Refusal> {
        if found.found.is_empty() {
            return Err(Refusal::new(
                Reason::SymbolNotFound,
                format!(
                    "no function of this node's kernel matches {}: /proc/kallsyms has their names, which differ between \
                     kernels; one that the compiler made part of its callers is not among them",
                    self.glob
                ),
            ));
        }
        let mut chosen = Chosen::default();
        for (name, count) in &found.found {
            if let Some(untouchable) = Untouchable::find(name) {
                chosen.untouchable.push(untouchable);
            } else if !is_admitted(name, admitted) {
                chosen.unadmitted.insert(name.clone());
            } else if *count > 1 {
                chosen.ambiguous.insert(name.clone());
            } else {
                chosen.functions.insert(name.clone());
            }
        }
        // Where not all names are known, there are more than any limit.
        let left_out = found.found.len() - chosen.functions.len();
        let listed: usize = found.found.values().map(|count| *count as usize).sum();
        let total = chosen.functions.len() + found.total - listed;
        if total > self.limit {
            let sample = chosen.functions.iter().take(SAMPLE).cloned();
            let besides = match left_out {
                0 => String::new(),
                more => format!(", besides {more} that are left out"),
            };
            return Err(Refusal::new(
                Reason::TooManyMatches,
                format!(
                    "{} matches {total} functions of the kernel{besides}, more than the limit of {}: for example {}; name \
                     fewer, or raise limit",
                    self.glob,
                    self.limit,
                    sample.collect::<Vec<_>>().join(", ")
                ),
            ));
        }
        Ok(chosen)
    }
}

/// What of it is not measured, and why.
fn coverage(chosen: Chosen, refused: BTreeSet<String>) -> Coverage {
    let Chosen {
        functions: _,
        untouchable,
        ambiguous,
        unadmitted,
    } = chosen;
    let mut sentence = String::new();
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for one in &untouchable {
        by_reason.entry(one.reason).or_default().push(&one.name);
    }
    for (reason, names) in by_reason {
        sentence += &format!("; left out: {}, since {reason}", some(&names));
    }
    let mut tell = |names: &BTreeSet<String>, reason: &str| {
        if !names.is_empty() {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            sentence += &format!("; left out: {}, since {reason}", some(&names));
        }
    };
    tell(
        &ambiguous,
        "several functions of the kernel have that name, and no more than one of them would be measured",
    );
    tell(&refused, "this kernel does not let it be probed");
    tell(
        &unadmitted,
        "this installation does not let it be probed: by how its name begins it is not one of those that \
         `agent.kernelFunctions.admitted` has",
    );
    let untouchable = untouchable.into_iter().map(|one| one.name);
    let items: BTreeSet<String> = untouchable.chain(ambiguous).chain(refused).collect();
    let lacks = [
        (Reason::UnsupportedByKernel, items),
        (Reason::KindNotAdmitted, unadmitted),
    ];
    let lacks = lacks.into_iter().filter(|(_, items)| !items.is_empty());
    let lacks = lacks.map(|(reason, items)| Lack {
        reason,
        items: items.into_iter().take(MAX_ITEMS).collect(),
    });
    Coverage {
        lacks: lacks.collect(),
        sentence,
        may_grow: false,
    }
}

/// The names, or the first of them and how many more there are.
fn some(names: &[&str]) -> String {
    let shown = names[..names.len().min(SAMPLE)].join(", ");
    match names.len().saturating_sub(SAMPLE) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

impl KernelCalls {
    fn slots_of(&self, groups: &GroupIds) -> Slots {
        slots_of(self.first, self.costs.len(), groups)
    }

    /// The turn to attach for the first time, where others are not owed anything by then.
    fn begin(&self) -> Result<Turn, AttachError> {
        let turn = self.registry.turn_to_attach();
        let turn = turn.ok_or_else(|| AttachError::NotYet(OTHERS_BEGIN.to_string()))?;
        let wait = self.bystanders.and_then(|all| self.registry.owing(all));
        wait.map_or(Ok(turn), |wait| Err(AttachError::NotYet(owing(wait))))
    }

    /// Takes in what the programs were run for by now. What calls of others cost is charged to the node.
    fn settle(&self) -> Result<(), ReadError> {
        let met = self.probes.met()?;
        let others = self.share.others();
        let paid = self.account.borrow_mut().take(met, others, self.cost);
        if let Some(all) = self.bystanders {
            self.registry.charge(paid, all);
        }
        Ok(())
    }
}

impl Drop for KernelCalls {
    /// Others pay until the last of them is gone, which may take longer than all that was measured.
    fn drop(&mut self) {
        self.probes.detach();
        // Where it cannot be read, nobody knows.
        let _ = self.settle();
    }
}

impl Mechanism for KernelCalls {
    fn costs(&self) -> &[Option<Duration>] {
        &self.costs
    }

    fn foreseen(&self) -> Foreseen {
        self.foreseen.clone()
    }

    fn attach(&mut self, groups: &GroupIds) -> Result<Option<Links>, AttachError> {
        // Not since it was loaded: what else is asked of this process is begun meanwhile, and that may wait for whatever it likes.
        let _turn = (!self.begun).then(|| self.begin()).transpose()?;
        self.begun = true;
        self.probes.attach(&self.slots_of(groups))
    }

    fn open_slice(&mut self, groups: &GroupIds) -> Result<(), AttachError> {
        self.probes.open_slice(&self.slots_of(groups))
    }

    fn close_slice(&mut self) -> Result<Option<Links>, ReadError> {
        self.probes.close_slice()
    }

    fn node_share(&self) -> Option<f64> {
        self.bystanders.map(|all| self.share.of(all))
    }

    /// With the calls of other processes, for what those cost.
    fn hits(&self) -> Result<Vec<u64>, ReadError> {
        self.settle()?;
        Ok(self.account.borrow().hits())
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let process = self.process;
        self.probes
            .forget_ended(|threads| observe::ended_threads(process, threads))?;
        let seen = self.probes.read()?;
        let cut = seen.slots.iter().map(|seen| seen.cut).collect();
        let rows = seen.slots.into_iter().enumerate().map(|(slot, seen)| {
            let row = RowReading {
                figures: self.measures.figures(seen, Told::default()),
                ..RowReading::default()
            };
            (self.first.offset(slot), vec![row])
        });
        let slots = 0..self.costs.len();
        let calls = Lost {
            groups: slots.map(|slot| self.first.offset(slot)).collect(),
            counts: BTreeMap::from([(Name::Borrowed("calls"), seen.calls_lost)]),
        };
        let each = lost_of_each(self.first, seen.events_lost, cut);
        Ok(Reading {
            groups: rows.collect(),
            lost: std::iter::once(calls).chain(each).collect(),
            ..Reading::default()
        })
    }

    fn events(&mut self) -> Vec<Event> {
        let booted: Timestamp = observe::boot_time();
        let calls = self.probes.slow_calls();
        calls
            .iter()
            .map(|seen| {
                let group = self.first.offset(seen.call.slot as usize);
                let duration = Detail::Nanoseconds(seen.call.duration_ns);
                slow_call(&seen.call, group, booted, vec![("duration", duration)])
            })
            .collect()
    }

    fn end(&mut self) -> Option<Links> {
        self.probes.leave();
        None
    }

    fn detaches_one_by_one(&self) -> bool {
        self.one_by_one
    }
}

#[cfg(test)]
mod tests;
