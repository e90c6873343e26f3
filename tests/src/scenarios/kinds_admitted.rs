//! In a namespace of an installation with `multiTenant`, the API server admits no kind that looks at the whole node.

use super::prelude::*;
use crate::fixture::repository;

/// Until a policy that was made is followed.
const FOLLOWED: Duration = Duration::from_secs(60);

/// The kinds that look at the whole node, each as a probe.
const REFUSED: [(&str, &str); 2] = [
    ("blockIo", "blockIo: {}"),
    ("kernelFunctions", "kernelFunctions: {match: 'vfs_fsync*'}"),
];

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let chart = repository().join("charts/ckb-probe");
    let chart = chart.to_string_lossy();
    // Of this scenario's namespace alone: the others are played at the same time.
    let values = format!(
        "multiTenant=true,operator.watchNamespace={}",
        scene.namespace
    );
    let template = "templates/kinds-admission-policy.yaml";
    let arguments = [
        "template",
        &*scene.namespace,
        &*chart,
        "--set",
        &*values,
        "--show-only",
        template,
    ];
    let policy = command("helm", &arguments, None).await?;
    command("kubectl", &["apply", "-f", "-"], Some(&policy)).await?;
    let judged = judged(scene).await;
    command("kubectl", &["delete", "-f", "-"], Some(&policy)).await?;
    judged
}

async fn judged(scene: &Scene<'_>) -> Result<()> {
    wait::until("the policy is followed", FOLLOWED, async || {
        let refused = create(scene, "disks", REFUSED[0].1).await.is_err();
        expect(refused, "blockIo is refused", || "it is accepted")
    })
    .await?;
    let mut as_told = 0;
    for (kind, probe) in REFUSED {
        let sentence = format!("this installation does not admit probes of the kind {kind}");
        match create(scene, "refused", probe).await {
            Err(error) if error.to_string().contains(&sentence) => as_told += 1,
            outcome => crate::note!("{kind}: {outcome:?}"),
        }
    }
    scene.equal(
        "kinds refused with the right sentence",
        as_told,
        REFUSED.len(),
    );
    let others = [
        "rocksdb: {}",
        "usdt: {provider: postgresql}",
        "chain: {}",
        "syscalls: {}",
        "tcp: {}",
        "processes: {}",
        "profile: {}",
    ];
    let mut accepted = 0;
    for probe in others {
        accepted += usize::from(create(scene, "accepted", probe).await.is_ok());
    }
    scene.equal("other kinds accepted", accepted, others.len());
    Ok(())
}

/// Has the API server judge a CkbProbe with this probe, as if it were to be created.
async fn create(scene: &Scene<'_>, name: &str, probe: &str) -> Result<String> {
    let object = format!(
        "apiVersion: ckbprobe.dev/v1alpha1\nkind: CkbProbe\nmetadata: {{name: {name}}}\nspec:\n  \
         target: {{selector: {{matchLabels: {{app: ckb}}}}}}\n  probes:\n  - name: one\n    {probe}\n"
    );
    scene.judged(&object).await
}
