//! What the API has of parts and of profiles: their metadata.

use std::collections::{BTreeMap, BTreeSet};

use ckb_probe_crds::{
    CkbProbe, CkbProfile, PPROF_LIMIT, PartLabels, ProbeReference, ProfileMode, ProfilePart, label,
    part_place,
};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::ObjectMeta, jiff::Timestamp};
use kube::{Resource, core::PartialObjectMeta, runtime::watcher::Event};

use crate::world::{ObjectKey, Table, rows};

/// The stacks of the largest profile, as they are stored.
const MOST_BYTES: u64 = (PPROF_LIMIT as u64).div_ceil(3) * 4;

/// A part on its way.
#[derive(Clone, Debug, PartialEq)]
pub struct PartEntry {
    /// The name of the ProfilePart.
    pub name: String,
    /// Tells it apart from a later one of the same name,
    pub uid: String,
    /// and from what is written over it.
    pub version: String,
    /// The node in its name, which the API server has checked; None where no agent writes such names.
    pub node: Option<String>,
    /// What it is about, as it says itself; None where it does not.
    pub about: Option<PartLabels>,
    /// When it was written, by the API server's clock: agents' clocks may be off.
    pub written: Timestamp,
    /// When this process first saw this version.
    pub seen: Timestamp,
}

/// A published profile.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileEntry {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Tells it apart from a later one of the same name.
    pub uid: String,
    /// The uid of the CkbProbe that owns it.
    pub owner: Option<String>,
    /// The probe in it.
    pub probe: String,
    /// What stacks are weighted by.
    pub mode: Option<ProfileMode>,
    /// The window's number.
    pub window: u64,
    /// How many bytes it takes of the API server's store; as many as it can where it does not say.
    pub bytes: u64,
    /// When it was first published.
    pub created: Timestamp,
    /// Whether it is on its way out.
    pub deleting: bool,
}

/// News of either.
#[derive(Clone, Debug)]
pub enum News {
    /// Of a part.
    Part(Event<PartEntry>),
    /// Of a profile.
    Profile(Event<ProfileEntry>),
}

/// An index of the parts and the profiles that exist.
#[derive(Clone, Debug, Default)]
pub struct ProfileIndex {
    parts: Table<PartEntry>,
    profiles: Table<ProfileEntry>,
}

impl ProfileIndex {
    /// Takes the news in, which came now. Returns the uids of the CkbProbes of which there is another profile than before, each
    /// with its namespace.
    pub fn apply(&mut self, news: News, now: Timestamp) -> BTreeSet<(String, String)> {
        match news {
            News::Part(event) => {
                let date = |mut row: PartEntry| {
                    let before = self.parts.get(&row.name);
                    let known = before.filter(|before| before.version == row.version);
                    row.seen = known.map_or(now, |known| known.seen);
                    row
                };
                let event = match event {
                    Event::Apply(row) => Event::Apply(date(row)),
                    Event::InitApply(row) => Event::InitApply(date(row)),
                    event @ (Event::Delete(_) | Event::Init | Event::InitDone) => event,
                };
                self.parts.apply(event);
                BTreeSet::new()
            }
            News::Profile(event) => {
                let changes = self.profiles.apply(event).into_iter();
                let owners = changes.flat_map(|(key, before, after)| {
                    let owners = [before, after].into_iter().flatten();
                    let owners = owners.filter_map(|row| row.owner);
                    owners.map(move |owner| (key.namespace.clone(), owner))
                });
                owners.collect()
            }
        }
    }

    /// The newest profile of each mode that this probe of a CkbProbe has, by their names; None where they were not listed yet.
    pub fn latest(&self, of: &ProbeReference, probe: &str) -> Option<Vec<String>> {
        if !self.profiles.synced() {
            return None;
        }
        let mut latest: BTreeMap<ProfileMode, &ProfileEntry> = BTreeMap::new();
        for row in self.own(of, probe) {
            let Some(mode) = row.mode else { continue };
            let known = latest.entry(mode).or_insert(row);
            if (row.created, row.window) > (known.created, known.window) {
                *known = row;
            }
        }
        let names = latest.into_values();
        Some(names.map(|row| row.key.name.clone()).collect())
    }

    /// The profiles that it has of that time on, the oldest first; None where they were not listed yet.
    pub fn since(&self, of: &ProbeReference, probe: &str, since: Timestamp) -> Option<Vec<String>> {
        if !self.profiles.synced() {
            return None;
        }
        let own = self.own(of, probe).filter(|row| row.created >= since);
        let mut own: Vec<&ProfileEntry> = own.collect();
        own.sort_by_key(|row| (row.created, row.window, row.mode));
        Some(own.into_iter().map(|row| row.key.name.clone()).collect())
    }

    /// All that this probe of a CkbProbe has.
    fn own(&self, of: &ProbeReference, probe: &str) -> impl Iterator<Item = &ProfileEntry> {
        // Names of CkbProbes have no dots.
        let prefix = format!("{}.", of.name);
        let first = ObjectKey::new(&of.namespace, &prefix);
        let own = self.profiles.range(first..).take_while(move |row| {
            row.key.namespace == of.namespace && row.key.name.starts_with(&prefix)
        });
        own.filter(move |row| {
            row.owner.as_ref() == Some(&of.uid) && row.probe == probe && !row.deleting
        })
    }

    /// Whether both have been listed.
    pub fn synced(&self) -> bool {
        self.parts.synced() && self.profiles.synced()
    }

    /// Every part, in the order of their names.
    pub fn parts(&self) -> impl Iterator<Item = &PartEntry> {
        self.parts.values()
    }

    /// The part of this name.
    pub fn part(&self, name: &str) -> Option<&PartEntry> {
        self.parts.get(name)
    }

    /// Every profile, in the order of namespace and name.
    pub fn profiles(&self) -> impl Iterator<Item = &ProfileEntry> {
        self.profiles.values()
    }
}

rows! {
    PartEntry by String: |row| row.name.clone(), uid;
    ProfileEntry by ObjectKey: |row| row.key.clone(), uid;
}

impl From<PartialObjectMeta<ProfilePart>> for PartEntry {
    fn from(object: PartialObjectMeta<ProfilePart>) -> Self {
        let ObjectMeta {
            name,
            uid,
            resource_version,
            labels,
            creation_timestamp,
            ..
        } = object.metadata;
        let name = name.unwrap_or_default();
        Self {
            node: part_place(&name).map(|(node, _)| node.to_owned()),
            about: labels.and_then(|labels| PartLabels::read(&labels)),
            name,
            uid: uid.unwrap_or_default(),
            version: resource_version.unwrap_or_default(),
            written: creation_timestamp.map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            seen: Timestamp::UNIX_EPOCH,
        }
    }
}

impl From<PartialObjectMeta<CkbProfile>> for ProfileEntry {
    fn from(object: PartialObjectMeta<CkbProfile>) -> Self {
        let meta = object.metadata;
        let labels = meta.labels.unwrap_or_default();
        let text = |key: &str| labels.get(key).map(String::as_str).unwrap_or_default();
        Self {
            owner: owner(meta.owner_references.as_deref().unwrap_or_default()),
            probe: text(label::PROBE).to_owned(),
            mode: ProfileMode::named(text(label::MODE)),
            window: text(label::WINDOW).parse().unwrap_or_default(),
            bytes: text(label::BYTES).parse().unwrap_or(MOST_BYTES),
            key: ObjectKey::new(
                meta.namespace.unwrap_or_default(),
                meta.name.unwrap_or_default(),
            ),
            uid: meta.uid.unwrap_or_default(),
            created: meta
                .creation_timestamp
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

/// The uid of the CkbProbe among the owners.
pub fn owner(
    owners: &[k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference],
) -> Option<String> {
    let (kind, version) = (CkbProbe::kind(&()), CkbProbe::api_version(&()));
    let mut probes = owners
        .iter()
        .filter(|owner| owner.kind == kind && owner.api_version == version);
    probes.next().map(|owner| owner.uid.clone())
}
