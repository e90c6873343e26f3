//! What is begun with, where it is foreseen how busy some of it is: to attach all of it and see has those pay who call it.

use std::time::Duration;

use super::{DutyCycle, planned};
use crate::{
    driver::measurement::{
        Measurement,
        meter::Meter,
        running::{Running, node_share},
    },
    governor::{self, Attachment, Spent},
    mechanism::GroupIds,
    observe::CpuTime,
    state::Fact,
};

/// What is known before anything is attached.
#[derive(Debug, Default)]
pub struct Ahead {
    /// How often a second each group is hit on the wall; None where nobody knows.
    pub rates: Vec<Option<f64>>,
    /// What is not attached at first.
    pub later: GroupIds,
}

impl Ahead {
    /// Of these mechanisms; `sampler` is told what is foreseen, and plans by it.
    pub fn of(mechanisms: &[Running], sampler: Option<&mut DutyCycle>) -> Self {
        let (mut costs, mut rates) = (Vec::new(), Vec::new());
        let mut edge = Duration::ZERO;
        for one in mechanisms {
            let foreseen = one.mechanism.foreseen();
            edge = edge.max(foreseen.edge);
            rates.resize(one.first.index(), None);
            rates.extend(foreseen.rates);
            costs.resize(one.first.index(), None);
            costs.extend_from_slice(one.mechanism.costs());
        }
        let sampler = sampler.filter(|_| rates.iter().any(Option::is_some));
        let later = sampler.map(|sampler| {
            sampler.took(edge);
            sampler.plan_ahead(&costs, &rates, node_share(mechanisms))
        });
        Self {
            rates,
            later: later.unwrap_or_default(),
        }
    }
}

impl DutyCycle {
    /// Plans for groups with these costs, of which that is foreseen. Hands back what is not to be attached all of the time.
    fn plan_ahead(
        &mut self,
        costs: &[Option<Duration>],
        rates: &[Option<f64>],
        node_share: Option<f64>,
    ) -> GroupIds {
        let known: Vec<Duration> = costs.iter().map(|cost| cost.unwrap_or_default()).collect();
        // Nothing is known of the target but what is foreseen.
        let meter = Meter::new(&known, CpuTime::ZERO, Duration::ZERO).foreseeing(rates);
        let budget = self.budget(&meter, node_share);
        let spent = Spent::default();
        let plan = governor::plan(&meter.loads(), meter.usage(), budget, spent, None);
        let plan = self.plan.insert(plan);
        planned(plan, costs, |attachment, _| {
            attachment != Attachment::Always
        })
    }
}

impl Measurement {
    /// These were not attached, and wait for their slices.
    pub(in crate::driver::measurement) fn leave_to_slices(
        &mut self,
        groups: GroupIds,
        now: Duration,
    ) {
        if !groups.is_empty() {
            self.note(now, Fact::Paused(groups));
            self.begin_cells(now);
        }
    }
}
