//! Crafted parts of profiles: what an agent that is another's by now may write, and the profile that the operator makes of it.

use std::collections::BTreeSet;

use ckb_probe_crds::{CkbProfileSpec, PPROF_LIMIT, PodReference, ProfilePart};
use ckb_probe_operator::profiles::{merge::Merger, rows::PartEntry};
use kube::core::PartialObjectMeta;
use serde_json::Value;

/// No number in an object may be greater.
const MOST: u64 = i64::MAX as u64;

/// Reads the bytes as a part of a profile.
pub fn check(bytes: &[u8]) {
    let Ok(object) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    if let Ok(metadata) = serde_json::from_value::<PartialObjectMeta<ProfilePart>>(object.clone()) {
        let entry = PartEntry::from(metadata);
        assert!(entry.node.is_none_or(|node| entry.name.starts_with(&node)));
    }
    let Ok(part) = serde_json::from_value::<ProfilePart>(object) else {
        return;
    };
    let part = part.spec;
    let mut merger = Merger::new(part.mode);
    for (uid, name) in [("1", "ckb-0"), ("2", "ckb-0"), ("3", "ckb-1")] {
        let pod = PodReference {
            namespace: "a".to_string(),
            name: name.to_string(),
            uid: format!("uid-{name}"),
        };
        // It says of itself what is wrong with it.
        let _ = merger.add(uid, "n", &pod, part.clone());
    }
    let has_stacks = merger.has_stacks();
    let merged = merger.merged().clone();
    let Some(profile) = merger.finish("p", "flames") else {
        assert!(!has_stacks);
        return;
    };
    sound(&profile);
    assert!(profile.targets.iter().all(|target| target.node == "n"));
    let mut again = Merger::resume(profile, BTreeSet::new()).unwrap();
    assert!(again.merged().len() <= merged.len());
    let _ = again.add("4", "m", &PodReference::default(), part);
    if let Some(profile) = again.finish("p", "flames") {
        sound(&profile);
    }
}

/// The API server takes it, and it says nothing that cannot be.
fn sound(profile: &CkbProfileSpec) {
    assert!(profile.pprof.0.len() <= PPROF_LIMIT && profile.bytes == profile.pprof.0.len() as u64);
    assert!(profile.targets.len() <= 256 && profile.functions.len() <= 20);
    let counts = &profile.counts;
    for count in [
        counts.samples,
        counts.complete,
        counts.lost,
        counts.guessed,
        counts.millihertz,
    ] {
        assert!(count <= MOST);
    }
    assert!(profile.window.number <= MOST && profile.window.milliseconds <= MOST);
    serde_json::to_string(profile).unwrap();
}
