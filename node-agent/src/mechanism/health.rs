//! The health of an embedded database: errors of its background work, and writes that it holds back.
//!
//! A kind says which functions tell of it ([`HealthConfig`]), and what all that means ([`Decode`]). They are rare, some calls for
//! each flush and compaction, so they are attached all of the time. Who has nothing of the sort is told nothing: a database without
//! trouble has no rows here.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use ckb_probe_crds::{Figures, Name, Reason};
use k8s_openapi::jiff::Timestamp;

use super::{
    Accepted, BeginContext, Begun, Breakdown, Config, Detail, Event, Lost, Mechanism, Reading,
    Refusal, RowId, RowReading, Subscription, calls,
    shared::{Gated, OneGroup, Switch},
};
pub use crate::kernel::health::{
    FamilyState, HealthEvent, HealthKey, HealthReading, HealthSums, Judgement, SLOTS, StatusHead,
    held, role,
};
use crate::{
    kernel::{
        AttachError, CalibratedTier, Links, ReadError, Site,
        health::{Health, HealthPlan},
    },
    observe::{self, SymbolName},
    text,
};

/// What a kind wants to know of the health of a process's database.
#[derive(Clone, Debug)]
pub struct HealthConfig {
    /// Which functions tell of it: no more than [`SLOTS`].
    pub functions: &'static [Watched],
    /// What it means.
    pub decode: Arc<dyn Decode>,
}

/// A function that tells of a database's health.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// What it is to the kind.
    pub name: &'static str,
    /// What its calls tell: one of [`role`].
    pub role: u8,
    /// Where it is.
    pub symbol: SymbolName,
}

/// What a kind makes of it. Pure.
pub trait Decode: fmt::Debug + Send + Sync {
    /// The rows, each with one of its parts.
    fn rows(&self, read: &HealthReading) -> Vec<HealthRow>;

    /// What is said of something that went wrong; None where nothing did.
    fn event(&self, seen: &HealthEvent) -> Option<HealthIncident>;
}

/// A part of a row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthRow {
    /// The row.
    pub row: String,
    /// The part: its number, if it has one, and its text.
    pub part: (u64, String),
    /// What was counted.
    pub figures: Figures,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthIncident {
    /// The row.
    pub row: String,
    /// The part, where that says more than the details do.
    pub part: Option<(u64, String)>,
    /// By what it comes before others.
    pub weight: u64,
    /// What is said of it, by name.
    pub details: Vec<(&'static str, Detail)>,
}

impl Config for HealthConfig {
    /// One for all who ask: what one wants of it, all do.
    fn begin(configs: &[Self], context: BeginContext<'_>) -> Begun {
        let Some(config) = configs.first() else {
            return Begun::refused([]);
        };
        match config.begin_one(&context) {
            Ok((mechanism, accepted)) => Begun {
                answers: vec![Ok(accepted); configs.len()],
                mechanisms: vec![mechanism],
            },
            Err(refusal) => Begun::refused(vec![refusal; configs.len()]),
        }
    }
}

impl HealthConfig {
    fn begin_one(
        &self,
        context: &BeginContext<'_>,
    ) -> Result<(Box<dyn Mechanism>, Accepted), Refusal> {
        let means = context.node.tier.clone()?;
        let (sites, costs) = self.find(means, context)?;
        let mut roles = [role::OUTCOME; SLOTS];
        for (role, function) in roles.iter_mut().zip(self.functions) {
            *role = function.role;
        }
        let plan = HealthPlan {
            pid: context.process.pid,
            sites,
            roles,
        };
        let health = DatabaseHealth {
            health: Gated::of(context.first, Health::load(means.tier, &plan)?),
            costs,
            decode: self.decode.clone(),
            booted: observe::boot_time(),
            one_by_one: means.tier.detaches_one_by_one(),
            places: HashMap::new(),
            held: HashMap::new(),
        };
        let accepted = Accepted {
            subscriptions: vec![Subscription {
                group: context.first,
                parts: Breakdown::All,
                ..Subscription::default()
            }],
            ..Accepted::default()
        };
        Ok((Box::new(health), accepted))
    }

    /// Where the functions are, and by slot what a call costs. A build may lack some; one that lacks all tells nothing.
    fn find(
        &self,
        means: CalibratedTier,
        context: &BeginContext<'_>,
    ) -> Result<(Vec<Site>, [Duration; SLOTS]), Refusal> {
        let asked = [self.asked()];
        let found = &context.node.found;
        let searched = calls::search(means, context.process, &asked, context.first, found);
        let searched = searched.map_err(|error| Refusal::from(&error))?;
        let mut costs = [Duration::ZERO; SLOTS];
        let mut placed = Vec::new();
        for (site, cost) in searched.sites {
            let row = searched.slots.get(usize::from(site.slot));
            let row = row.map(|(counted, _)| counted.row.as_str());
            let mut names = self.functions.iter();
            let Some(slot) = names.position(|function| Some(function.name) == row) else {
                continue;
            };
            let returns = returns(self.functions[slot].role);
            // Whose return must not be touched tells nothing.
            if returns && site.entry_only {
                continue;
            }
            costs[slot] = costs[slot].max(cost);
            placed.push(Site {
                slot: slot as u8,
                entry_only: !returns,
                ..site
            });
        }
        if placed.is_empty() {
            return Err(Refusal::new(
                Reason::SymbolNotFound,
                "the executable has none of the functions that tell of the health of its database",
            ));
        }
        Ok((placed, costs))
    }

    /// The functions, as the mechanism `calls` looks for them.
    fn asked(&self) -> calls::CallsConfig {
        calls::CallsConfig {
            measures: calls::Measures::Counted(Name::Borrowed("calls")),
            sought: calls::Sought::Listed(counted(self.functions)),
        }
    }
}

/// The functions, as the mechanism `calls` looks for them.
pub fn counted(functions: &[Watched]) -> Vec<calls::Counted> {
    let each = functions.iter().map(|function| calls::Counted {
        include_single_stepped: true,
        ..calls::Counted::plain(
            function.name.to_string(),
            vec![calls::Function::plain(function.symbol)],
        )
    });
    each.collect()
}

/// Whether what its calls tell is known at their return.
fn returns(role: u8) -> bool {
    matches!(
        role,
        role::OUTCOME | role::JUDGE | role::VERDICT | role::WAIT | role::ROOM
    )
}

/// The health of one process's database.
struct DatabaseHealth {
    health: Gated<Health>,
    costs: [Duration; SLOTS],
    decode: Arc<dyn Decode>,
    booted: Timestamp,
    one_by_one: bool,
    /// Of rows and of their parts, in the order in which they came by.
    places: HashMap<(String, Option<(u64, String)>), u64>,
    /// By key, how long writes were held back as it was last told: it does not become less.
    held: HashMap<HealthKey, u64>,
}

impl DatabaseHealth {
    fn place(&mut self, row: &str, part: Option<&(u64, String)>) -> u64 {
        let next = self.places.len() as u64;
        let key = (row.to_string(), part.cloned());
        *self.places.entry(key).or_insert(next)
    }

    fn named(&mut self, row: String, part: Option<(u64, String)>) -> (RowId, Option<RowId>) {
        let part = part.map(|part| RowId {
            place: self.place(&row, Some(&part)),
            number: part.0,
            text: part.1,
        });
        let row = RowId {
            place: self.place(&row, None),
            number: 0,
            text: row,
        };
        (row, part)
    }

    fn event(&mut self, seen: &HealthEvent) -> Option<Event> {
        let incident = self.decode.event(seen)?;
        let (row, part) = self.named(incident.row, incident.part);
        Some(Event {
            time: self
                .booted
                .checked_add(Duration::from_nanos(seen.time_ns))
                .unwrap_or(self.booted),
            group: self.health.group(),
            row: Some(row),
            part,
            thread: seen.thread,
            thread_name: text::of_padded(&seen.thread_name),
            weight: incident.weight,
            details: incident.details,
        })
    }
}

/// Adds how long families have been held back that still are; no time becomes less than it was told to be.
fn complete(read: &mut HealthReading, told: &mut HashMap<HealthKey, u64>) {
    let held = read.families.iter();
    for family in held.filter(|family| family.key.judgement.held != held::NOT) {
        let lasted = read.now_ns.saturating_sub(family.since_ns);
        let mut rows = read.rows.iter_mut();
        if let Some((_, sums)) = rows.find(|(key, _)| *key == family.key) {
            sums.time_ns = sums.time_ns.saturating_add(lasted);
        }
    }
    for (key, sums) in &mut read.rows {
        if key.judgement.held != held::NOT {
            let told = told.entry(*key).or_default();
            *told = sums.time_ns.max(*told);
            sums.time_ns = *told;
        }
    }
}

impl Switch for Health {
    fn open(&mut self) -> Result<(), AttachError> {
        Health::open(self)
    }

    fn close(&mut self) -> Result<Option<Links>, ReadError> {
        Health::close(self)
    }
}

impl Mechanism for DatabaseHealth {
    /// What happens once would not be seen in a slice: it is attached all of the time, and what it costs is fixed.
    fn costs(&self) -> &[Option<Duration>] {
        &[Some(Duration::ZERO)]
    }

    fn one_group(&mut self) -> Option<&mut dyn OneGroup> {
        Some(&mut self.health)
    }

    fn fixed_cost(&self) -> Result<Duration, ReadError> {
        let hits = self.health.hits()?.into_iter();
        let costs = hits.zip(self.costs).map(|(hits, cost)| {
            let hits = u32::try_from(hits).unwrap_or(u32::MAX);
            cost.saturating_mul(hits)
        });
        Ok(costs.fold(Duration::ZERO, Duration::saturating_add))
    }

    fn read(&mut self) -> Result<Reading, ReadError> {
        let mut read = self.health.read()?;
        complete(&mut read, &mut self.held);
        let rows = self.decode.rows(&read).into_iter().map(|one| {
            let (row, part) = self.named(one.row, Some(one.part));
            RowReading {
                row: Some(row),
                part,
                figures: one.figures,
                folded: 0,
            }
        });
        let rows = rows.collect();
        let lost = [("calls", read.losses.calls), ("events", read.losses.events)];
        let lost = lost.map(|(what, count)| (Name::Borrowed(what), count));
        Ok(Reading {
            groups: BTreeMap::from([(self.health.group(), rows)]),
            lost: vec![Lost::of(self.health.group(), lost.into())],
            ..Reading::default()
        })
    }

    fn events(&mut self) -> Vec<Event> {
        // The wall clock may have been set since.
        self.booted = observe::boot_time();
        let told = self.health.told();
        told.iter().filter_map(|seen| self.event(seen)).collect()
    }

    fn stop(&mut self) -> Result<(), ReadError> {
        self.health.stop()
    }

    fn end(&mut self) -> Option<Links> {
        self.health.leave();
        None
    }

    fn detaches_one_by_one(&self) -> bool {
        self.one_by_one
    }
}

#[cfg(test)]
mod tests;
