//! Published profiles that there is no room for.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
};

use ckb_probe_crds::CkbProbeSpec;

use super::{ProfileAction, Series, Step};
use crate::{
    profiles::rows::ProfileEntry,
    world::{CkbProbeEntry, Row as _, World},
};

/// Profiles of each mode that are kept where the probe does not say how many: those of slow calls.
const KEEP: usize = 5;
/// So many of a series go in one step, which others wait for. It is more than a step adds.
const MOST: usize = 8;

/// The oldest profiles of those that have more than they keep, of each series.
pub fn crowded_out(world: &World) -> BTreeMap<Series, Step> {
    let mut jobs = BTreeMap::new();
    for (series, mut rows) in kept(world) {
        let spec = world.probe(&series.probe);
        let Some(spec) = spec.and_then(|row| row.spec.as_ref().ok()) else {
            continue;
        };
        let keep = keep(&spec.spec, &series.name);
        // By the API server's clock: where `every` has become another, numbers begin anew.
        rows.sort_by_key(|row| Reverse((row.created, row.window)));
        let oldest = rows.into_iter().skip(keep).rev();
        let step: VecDeque<_> = oldest.take(MOST).map(remove).collect();
        if !step.is_empty() {
            jobs.insert(series, step);
        }
    }
    jobs
}

/// What there is of each series. What no CkbProbe owns is none of ours, or goes with the one that did.
fn kept(world: &World) -> BTreeMap<Series, Vec<&ProfileEntry>> {
    let owners: BTreeMap<&str, &CkbProbeEntry> = world
        .probes()
        .map(|probe| (&*probe.reference.uid, probe))
        .collect();
    let mut kept: BTreeMap<Series, Vec<&ProfileEntry>> = BTreeMap::new();
    for row in world.shelf().profiles().filter(|row| !row.deleting) {
        let owner = row.owner.as_deref().and_then(|uid| owners.get(uid));
        if let Some((owner, mode)) = owner.zip(row.mode)
            && owner.reference.namespace == row.key.namespace
        {
            let series = Series {
                probe: owner.key(),
                name: row.probe.clone(),
                mode,
            };
            kept.entry(series).or_default().push(row);
        }
    }
    kept
}

fn remove(row: &ProfileEntry) -> ProfileAction {
    ProfileAction::Remove {
        key: row.key.clone(),
        uid: row.uid.clone(),
    }
}

/// How many profiles of each mode a probe keeps.
fn keep(spec: &CkbProbeSpec, probe: &str) -> usize {
    let mut named = spec.probes.iter().filter(|one| one.name == probe);
    let asked = named
        .next()
        .and_then(|one| Some(one.profile.as_ref()?.keep));
    asked
        .and_then(|keep| usize::try_from(keep).ok())
        .unwrap_or(KEEP)
}
