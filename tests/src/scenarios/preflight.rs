//! What an agent found on its node before it touched any target is told, and how it attaches there.

use ckb_probe_testkit::PREFLIGHT_CHECKS;

use super::prelude::*;
use crate::hardening;

/// The ways to attach, the fastest first, and the kernel from which on each is there.
const TIERS: [(&str, (u32, u32)); 3] = [
    ("session", (6, 13)),
    ("uprobe-multi", (6, 6)),
    ("perf-event", (5, 15)),
];

const TARGET: FixturePod = FixturePod::ground_truth(
    "target",
    &["--rate", "20", "rocksdb_get_pinned_cf 20000 constant:1000"],
);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    scene.begin(TARGET).await?;
    scene
        .apply_probe(scene.probe_of(PROBE, &TARGET, &["Get"]))
        .await?;
    let status = scene.firing().await?;
    hardened(scene).await?;
    let agent = wait::until("the agent's report", ATTACH, async || {
        let nodes = scene.node_probes().await?;
        let agent = nodes
            .into_iter()
            .find_map(|node| node.status)
            .map(|status| status.agent);
        let agent = agent.filter(|agent| !agent.pod.is_empty());
        agent.ok_or_else(|| Failure::missing("an agent that reports"))
    })
    .await?;

    for check in &agent.preflight {
        let verdict = if check.passed { "passed" } else { "not passed" };
        crate::note!("{} {verdict}: {}", check.name, check.detail);
    }
    let told: BTreeSet<&str> = agent
        .preflight
        .iter()
        .map(|check| check.name.as_str())
        .collect();
    scene.equal_of(
        "checks of the preflight that are missing, or not documented",
        told.symmetric_difference(&PREFLIGHT_CHECKS.into()).count(),
        &format!("of {}", PREFLIGHT_CHECKS.len()),
        0,
    );
    let silent = agent
        .preflight
        .iter()
        .filter(|check| check.detail.is_empty());
    scene.equal(
        "of them without a word of what was found",
        silent.count(),
        0,
    );
    expect(
        agent.failure.is_none(),
        "a node on which something can be measured",
        || format!("{:?}", agent.failure),
    )?;

    let fastest = fastest(&agent.kernel)?;
    let passed = |name: &str| {
        agent
            .preflight
            .iter()
            .any(|check| check.name == name && check.passed)
    };
    crate::note!(
        "the kernel {} has {fastest}; the agent attaches by {}",
        agent.kernel,
        agent.tier
    );
    scene.equal(
        "agents that attach in the fastest way that the kernel has, and say that it passed",
        agent.tier == fastest && passed(fastest),
        1,
    );
    let tiers = status
        .instances
        .iter()
        .map(|instance| instance.tier.as_deref());
    let right = tiers.filter(|tier| *tier == Some(fastest));
    scene.equal("targets of which the status says so", right.count(), 1);
    scene.figure(
        "cost of a probed call, as calibrated",
        agent.cost_per_call_ns,
        "ns",
        Bound::Above(0.0),
    );
    scene.figure(
        "the same where the kernel must single-step",
        agent.single_step_cost_ns,
        "ns",
        Bound::AtLeast(agent.cost_per_call_ns as f64),
    );
    Ok(())
}

/// The fastest way to attach that a kernel of this release has.
fn fastest(release: &str) -> Result<&'static str> {
    let unreadable = || Failure::Format {
        what: "the kernel's release".to_string(),
        why: release.to_string(),
    };
    let mut numbers = release
        .split(['.', '-', '+'])
        .map_while(|word| word.parse().ok());
    let kernel: (u32, u32) = numbers.next().zip(numbers.next()).ok_or_else(unreadable)?;
    let mut tiers = TIERS.into_iter();
    let (tier, _) = tiers
        .find(|(_, since)| kernel >= *since)
        .ok_or_else(unreadable)?;
    Ok(tier)
}

/// What runs in the cluster is what is shipped.
async fn hardened(scene: &mut Scene<'_>) -> Result<()> {
    let programs = [
        ("agent", scene.cluster.agent().await?),
        ("operator", scene.cluster.operator().await?),
    ];
    for (name, program) in programs {
        let path = format!("/proc/{}/exe", program.process.pid);
        let file = fs::read(&path).map_err(Failure::system(&path))?;
        let lacking = hardening::lacks(&file)?;
        let what = lacking.join(", ");
        scene.equal_of(
            &format!("ways in which the {name}'s executable is not hardened"),
            lacking.len(),
            &what,
            0,
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::fastest;

    #[test]
    fn the_way_to_attach_goes_by_the_kernel() {
        for (release, tier) in [
            ("6.18.0", "session"),
            ("6.13-rc1", "session"),
            ("6.12.9-cloud-amd64", "uprobe-multi"),
            ("6.6.1", "uprobe-multi"),
            ("6.1.0-40-amd64", "perf-event"),
        ] {
            assert_eq!(fastest(release).unwrap(), tier, "{release}");
        }
        assert!(fastest("5.10.0").is_err() && fastest("").is_err());
    }
}
