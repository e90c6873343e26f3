//! `profile`, from kubectl apply to what `kubectl get ckbprofiles` shows, and to nothing when it is deleted.

use std::{collections::BTreeSet, time::Duration};

use ckb_probe_crds::{CkbProbe, CkbProfile, ProfileMode, ProfilePart};
use ckb_probe_profiles::{Profile, pprof::Limits};
use kube::{
    ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};

use crate::{
    cluster::SYSTEM,
    failure::{Failure, Result, expect},
    report::Bound,
    scene::{ATTACH, PROBE, Scene, workload_target},
    wait,
    workload::Load,
};

const MODES: [ProfileMode; 3] = [ProfileMode::Cpu, ProfileMode::OffCpu, ProfileMode::Threads];
const KEEP: usize = 2;
const EVERY: Duration = Duration::from_secs(15);

/// So many stacks may always be cut short.
const FEW: u64 = 2;

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let cluster = scene.cluster;
    let target = scene
        .workload
        .deploy(cluster, &scene.namespace, Load::Busy)
        .await?;
    let profile = json!({
        "modes": MODES.map(ProfileMode::as_str), "window": "5s", "every": "15s", "keep": KEEP,
    });
    let probe = asking(scene, &profile);
    scene.apply_probe(probe).await?;
    let profiles = cluster.api::<CkbProfile>(&scene.namespace);
    let all = ListParams::default();
    let first = wait::until("a profile of each mode", ATTACH, async || {
        let profiles = profiles.list(&all).await?.items;
        let modes: BTreeSet<ProfileMode> =
            profiles.iter().map(|profile| profile.spec.mode).collect();
        expect(modes == BTreeSet::from(MODES), format!("{MODES:?}"), || {
            format!("{modes:?}")
        })?;
        Ok(profiles)
    })
    .await?;
    let uid = cluster
        .api::<CkbProbe>(&scene.namespace)
        .get(PROBE)
        .await?
        .uid();
    for profile in &first {
        examined(scene, profile, &target.pod, uid.as_deref())?;
    }

    // Until there must have been one more than are kept: never more of a mode, but for the moment in which it is deleted.
    let oldest = first.iter().map(|profile| profile.spec.window.number).min();
    wait::until("the oldest to go", EVERY * (KEEP as u32 + 2), async || {
        let profiles = profiles.list_metadata(&all).await?.items;
        let windows = windows(&profiles);
        let gone = oldest.is_some_and(|oldest| windows.iter().all(|(_, window)| *window > oldest));
        let kept = MODES.map(|mode| windows.iter().filter(|(of, _)| of == mode.as_str()).count());
        expect(
            gone && kept == [KEEP; 3],
            format!("{KEEP} newer ones of each mode"),
            || format!("{windows:?}"),
        )
    })
    .await?;

    let api = cluster.api::<CkbProbe>(&scene.namespace);
    api.delete(PROBE, &DeleteParams::default()).await?;
    wait::until("the profiles to go with the CkbProbe", ATTACH, async || {
        let left = profiles.list_metadata(&all).await?.items.len();
        expect(left == 0, "no profile", || left.to_string())
    })
    .await?;
    wait::until("the parts to go", ATTACH, async || {
        let parts = cluster.api::<ProfilePart>(SYSTEM);
        let parts = parts.list(&ListParams::default()).await?.items;
        let own = parts
            .iter()
            .filter(|part| part.spec.pod.namespace == scene.namespace);
        let left = own.count();
        expect(left == 0, "no part", || left.to_string())
    })
    .await
}

/// A CkbProbe with one probe, of this kind.
pub(super) fn asking(scene: &Scene<'_>, profile: &Value) -> Value {
    json!({
        "apiVersion": "ckbprobe.dev/v1alpha1",
        "kind": "CkbProbe",
        "metadata": { "name": PROBE, "namespace": scene.namespace },
        "spec": {
            "target": workload_target(),
            "probes": [{ "name": "flames", "profile": profile }],
        },
    })
}

/// Mode and window of each.
fn windows(profiles: &[kube::core::PartialObjectMeta<CkbProfile>]) -> BTreeSet<(String, u64)> {
    use ckb_probe_crds::label::{MODE, WINDOW};
    let windows = profiles.iter().filter_map(|profile| {
        let labels = profile.labels();
        Some((labels.get(MODE)?.clone(), labels.get(WINDOW)?.parse().ok()?))
    });
    windows.collect()
}

fn examined(scene: &Scene<'_>, profile: &CkbProfile, pod: &str, probe: Option<&str>) -> Result<()> {
    let (name, spec) = (profile.name_any(), &profile.spec);
    let owners = profile.owner_references();
    expect(
        owners.len() == 1 && Some(&*owners[0].uid) == probe,
        format!("{name} owned by the CkbProbe alone"),
        || format!("{owners:?}"),
    )?;
    let mode = spec.mode.as_str();
    scene.figure(
        &format!("{mode}: stacks"),
        spec.counts.samples as f64,
        "",
        Bound::AtLeast(1.0),
    );
    // How many are cut short in the long run is for `make bench` to say: in a few seconds a node runs a few times, and one stack that
    // is deeper than what is copied is a tenth of all.
    let counts = &spec.counts;
    scene.figure(
        &format!("{mode}: stacks cut short"),
        (counts.samples - counts.complete) as f64,
        &format!(
            "of {}, {} % complete",
            counts.samples, spec.complete_percent
        ),
        Bound::AtMost((counts.samples / 10).max(FEW) as f64),
    );
    scene.figure(
        &format!("{mode}: gzipped"),
        spec.bytes as f64 / 1024.0,
        "KiB",
        Bound::AtMost(512.0),
    );
    let decoded =
        Profile::from_pprof(&spec.pprof.0, &Limits::PART).map_err(Failure::format(name))?;
    let whose = format!("{}/{pod}/ckb", scene.namespace);
    let strangers = decoded.stacks.filter(|stack| stack.target != whose);
    scene.equal(
        &format!("{mode}: stacks of nobody's"),
        strangers.len() as u64,
        "",
        0,
    );
    expect(!decoded.stacks.is_empty(), "stacks in the pprof", || {
        "none".to_owned()
    })?;
    expect(
        !spec.functions.is_empty() && spec.headline.starts_with(mode),
        "functions and a headline",
        || spec.headline.clone(),
    )
}
