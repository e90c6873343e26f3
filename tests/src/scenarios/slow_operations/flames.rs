//! Slow calls as a CkbProfile: the same calls as in the agent's log, by who called them and by their time.

use ckb_probe_crds::{CkbProfile, ProfileMode};
use ckb_probe_profiles::{Profile, pprof::Limits};

use super::{CALLERS, PROGRAM};
use crate::{scenarios::prelude::*, slow_lines::SlowLine};

/// Of these calls, which are all that were slow. A pause ends the window that is under way, which is ten minutes of the clock else:
/// there are two profiles where one ended by itself meanwhile.
pub(super) async fn published(scene: &Scene<'_>, pod: &str, lines: &[SlowLine]) -> Result<()> {
    let probes = scene.api::<CkbProbe>();
    let probe = scene.pause(PROGRAM).await?;
    let api = scene.api::<CkbProfile>();
    let found = wait::until("slow calls in a CkbProfile", ATTACH, async || {
        let mut found = api.list(&ListParams::default()).await?.items;
        found.retain(|profile| profile.spec.ckb_probe == PROGRAM);
        let counts = found.iter().map(|profile| &profile.spec.counts);
        let samples: u64 = counts.map(|counts| counts.samples + counts.lost).sum();
        expect(
            samples >= lines.len() as u64,
            format!("{} of them", lines.len()),
            || samples,
        )?;
        Ok(found)
    })
    .await?;
    scene.figure(
        "CkbProfiles of slow calls",
        found.len(),
        "",
        Bound::AtMost(2.0),
    );
    let (mut time, mut strangers) = (0, 0);
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    for profile in &found {
        let (name, spec) = (profile.name_any(), &profile.spec);
        crate::note!("{name}: {}", spec.headline);
        let owners = profile.owner_references().iter();
        let owners: Vec<_> = owners.map(|owner| Some(owner.uid.clone())).collect();
        let of = (spec.mode, spec.probe.as_str(), spec.window.number);
        expect(
            name == format!("{PROGRAM}.storage.slowcalls.{}", of.2)
                && (of.0, of.1) == (ProfileMode::SlowCalls, "storage")
                && owners == [probe.uid()],
            format!("{name} of slow calls, owned by the CkbProbe alone"),
            || format!("{of:?}, {owners:?}"),
        )?;
        let decoded =
            Profile::from_pprof(&spec.pprof.0, &Limits::PART).map_err(Failure::format(name))?;
        time += decoded.stacks.total(1);
        let whose = format!("{}/{pod}/fixture", scene.namespace);
        for stack in decoded.stacks.iter() {
            let names: Vec<&str> = stack.frames.iter().map(|frame| frame.name).collect();
            let known = CALLERS.iter().all(|caller| names.contains(caller));
            strangers += u64::from(!known || stack.target != whose);
            let operation = names.last().copied().unwrap_or_default();
            *calls.entry(operation.to_string()).or_default() += stack.weights[0];
        }
    }
    scene.equal(
        "stacks of nobody's, or from elsewhere, in them",
        strangers,
        0,
    );
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for line in lines {
        *expected.entry(line.operation.clone()).or_default() += 1;
    }
    scene.equal_of(
        "calls in them, each by its operation",
        calls.values().sum::<u64>(),
        &format!("{calls:?}"),
        lines.len(),
    );
    expect(calls == expected, format!("{expected:?}"), || {
        format!("{calls:?}")
    })?;
    let newest = found
        .iter()
        .max_by_key(|profile| profile.spec.window.number);
    let newest: Vec<String> = newest.iter().map(|profile| profile.name_any()).collect();
    wait::until("the status to name it", ATTACH, async || {
        let status = probes.get(PROGRAM).await?.status.unwrap_or_default();
        let named: Vec<_> = status.probes.into_iter().map(|one| one.profiles).collect();
        expect(
            named == [newest.clone()],
            format!("the newest, {newest:?}"),
            || format!("{named:?}"),
        )
    })
    .await?;
    let took: u64 = lines.iter().map(|line| line.duration_nanoseconds).sum();
    scene.equal("nanoseconds in them", time, took);
    Ok(())
}
