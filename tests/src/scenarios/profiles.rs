//! `profile`, from kubectl apply to what `kubectl get ckbprofiles` shows, and to nothing when it is deleted.

use ckb_probe_crds::{CkbProfile, ProfileMode, ProfilePart};
use ckb_probe_profiles::{Profile, pprof::Limits};
use ckb_probe_views::document::{StackProfile, View};

use super::{
    plugin::{asked, documents},
    prelude::*,
};

const MODES: [ProfileMode; 3] = [ProfileMode::Cpu, ProfileMode::OffCpu, ProfileMode::Threads];
const KEEP: usize = 2;
const EVERY: Duration = Duration::from_secs(15);

/// So many stacks may always be cut short.
const FEW: u64 = 2;

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let target = scene.deploy(Load::Busy).await?;
    let profile = json!({
        "modes": MODES.map(ProfileMode::as_str), "window": "5s", "every": "15s", "keep": KEEP,
    });
    let probe = asking(scene, &profile);
    scene.apply_probe(probe).await?;
    let profiles = scene.api::<CkbProfile>();
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
    let uid = uid(scene).await?;
    for profile in &first {
        examined(scene, profile, &target.pod, uid.as_deref())?;
        shown(scene, profile, &target.pod).await?;
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

    gone_with_probe(scene).await?;
    parts_gone(scene, ATTACH).await
}

/// Deletes the CkbProbe, and waits until its profiles have gone with it.
pub(super) async fn gone_with_probe(scene: &Scene<'_>) -> Result<()> {
    scene.delete_probe(PROBE).await?;
    let profiles = scene.api::<CkbProfile>();
    wait::until("the profiles to go with the CkbProbe", ATTACH, async || {
        let left = profiles.list_metadata(&ListParams::default()).await?;
        let left = left.items.len();
        expect(left == 0, "no profile", || left)
    })
    .await
}

/// Waits until no part is left of the pods of this scene.
pub(super) async fn parts_gone(scene: &Scene<'_>, limit: Duration) -> Result<()> {
    wait::until("the parts to go", limit, async || {
        let parts = scene.cluster.api::<ProfilePart>(SYSTEM);
        let parts = parts.list(&ListParams::default()).await?;
        let mut pods = parts.iter().map(|part| &part.spec.pod);
        let left = pods.any(|pod| pod.namespace == scene.namespace);
        expect(!left, "no part", || "some")
    })
    .await
}

/// The uid of this scene's CkbProbe.
pub(super) async fn uid(scene: &Scene<'_>) -> Result<Option<String>> {
    Ok(scene.api::<CkbProbe>().get(PROBE).await?.uid())
}

/// A CkbProbe with one probe, of this kind.
pub(super) fn asking(scene: &Scene<'_>, profile: &Value) -> Value {
    let spec = json!({
        "target": workload_target(),
        "probes": [{ "name": "flames", "profile": profile }],
    });
    ckb_probe(&scene.namespace, PROBE, &spec)
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
        spec.counts.samples,
        "",
        Bound::AtLeast(1.0),
    );
    // How many are cut short in the long run is for `make bench` to say: in a few seconds a node runs a few times, and one stack that
    // is deeper than what is copied is a tenth of all.
    let counts = &spec.counts;
    scene.figure(
        &format!("{mode}: stacks cut short"),
        counts.samples - counts.complete,
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
    scene.equal(&format!("{mode}: stacks of nobody's"), strangers.len(), 0);
    expect(!decoded.stacks.is_empty(), "stacks in the pprof", || {
        "none".to_owned()
    })?;
    expect(
        !spec.functions.is_empty() && spec.headline.starts_with(mode),
        "functions and a headline",
        || spec.headline.clone(),
    )
}

/// `kubectl ckbprobe` shows the same window, or one that came after it.
async fn shown(scene: &Scene<'_>, profile: &CkbProfile, pod: &str) -> Result<()> {
    let mode = profile.spec.mode;
    let (verb, which) = match mode {
        ProfileMode::Threads => ("threads", pod.to_owned()),
        _ => ("flamegraph", format!("{pod}/{}", mode.as_str())),
    };
    let ended = asked(scene, verb, &[PROBE, &which], &["--latest", "-o", "json"]).await?;
    let view = documents(&ended.printed).find_map(|document| match document.view {
        View::Profile(profile) => Some(profile),
        _ => None,
    });
    let is_of_it = |view: &StackProfile| {
        view.mode == mode.as_str() && view.total > 0 && !view.functions.is_empty()
    };
    expect(
        ended.code == 0 && view.as_ref().is_some_and(is_of_it),
        format!("stacks that {verb} {which} shows"),
        || format!("{view:?}, {}", ended.said),
    )
}
