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

/// The oldest profiles of those that have more than they keep, of each series; and the oldest of each namespace whose profiles take
/// more than so many bytes together.
pub fn crowded_out(world: &World, bytes: u64) -> BTreeMap<Series, Step> {
    let mut jobs: BTreeMap<Series, Step> = BTreeMap::new();
    let mut namespaces: BTreeMap<String, Vec<(Series, &ProfileEntry)>> = BTreeMap::new();
    for (series, mut rows) in kept(world) {
        let spec = world.probe(&series.probe);
        let Some(spec) = spec.and_then(|row| row.spec.as_ref().ok()) else {
            continue;
        };
        let keep = keep(&spec.spec, &series.name);
        // By the API server's clock: where `every` has become another, numbers begin anew.
        rows.sort_by_key(|row| Reverse((row.created, row.window)));
        let rest = rows.split_off(rows.len().min(keep));
        let mut oldest = rest.into_iter().rev();
        let step: VecDeque<_> = oldest.by_ref().take(MOST).map(remove).collect();
        let stay = rows.into_iter().chain(oldest);
        let stay = stay.map(|row| (series.clone(), row));
        let namespace = namespaces.entry(series.probe.namespace.clone());
        namespace.or_default().extend(stay);
        if !step.is_empty() {
            jobs.insert(series, step);
        }
    }
    for rows in namespaces.into_values() {
        make_room(rows, bytes, &mut jobs);
    }
    jobs
}

/// Has the oldest of a namespace's profiles go until the others take no more than so many bytes.
fn make_room(
    mut rows: Vec<(Series, &ProfileEntry)>,
    bytes: u64,
    jobs: &mut BTreeMap<Series, Step>,
) {
    let sizes = rows.iter().map(|(_, row)| row.bytes);
    let mut taken = sizes.fold(0, u64::saturating_add);
    if taken <= bytes {
        return;
    }
    rows.sort_by_key(|(_, row)| (row.created, row.window));
    for (series, row) in rows {
        let step = jobs.entry(series).or_default();
        // The rest is for later: what is younger does not go before what is older.
        if taken <= bytes || step.len() >= MOST {
            break;
        }
        step.push_back(remove(row));
        taken = taken.saturating_sub(row.bytes);
    }
    jobs.retain(|_, step| !step.is_empty());
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
