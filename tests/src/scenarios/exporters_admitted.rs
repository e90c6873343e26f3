//! An installation without named exporters: whoever names one is told so by the API server, and the default is everybody's.

use super::prelude::*;

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let namespace = &scene.namespace;
    let sentence =
        format!("this installation has no exporter theirs that namespace {namespace} may name");
    let refused = create(scene, "{exporter: theirs}").await.err();
    let refused = refused.map(|error| error.to_string());
    let is_told = refused.is_some_and(|error| error.contains(&sentence));
    scene.equal(
        "a stranger's exporter is refused with a sentence",
        is_told,
        true,
    );
    let mut accepted = 0;
    let own = ["{}", "{exporter: default}", "null"];
    for traces in own {
        accepted += usize::from(create(scene, traces).await.is_ok());
    }
    scene.equal(
        "who names the default, or none, is accepted",
        accepted,
        own.len(),
    );
    Ok(())
}

/// Has the API server judge a CkbProbe with these traces, as if it were to be created.
async fn create(scene: &Scene<'_>, traces: &str) -> Result<String> {
    let object = format!(
        "apiVersion: ckbprobe.dev/v1alpha1\nkind: CkbProbe\nmetadata: {{name: exports}}\nspec:\n  \
         target: {{selector: {{matchLabels: {{app: ckb}}}}}}\n  traces: {traces}\n  probes:\n  - name: one\n    rocksdb: {{}}\n"
    );
    scene.judged(&object).await
}
