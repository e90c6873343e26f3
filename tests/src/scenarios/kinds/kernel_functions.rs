//! Functions of the kernel: counted where it has kprobes, refused with a sentence where it has not, and no harm to the rest.

use super::{KERNEL, Stage, traced};
use crate::scenarios::prelude::*;

/// What the system call write is in the kernel.
pub const FUNCTION: &str = "__x64_sys_write";

/// How long calls are counted in two ways.
const WINDOW: Duration = Duration::from_secs(5);

pub async fn play(stage: Stage<'_>) -> Result<()> {
    let status = stage.scene.now(PROBE).await?;
    if rows::probe_of(&status, KERNEL)?.targets.attached == 1 {
        return compare(stage).await;
    }
    let sentence = stage.refusal(KERNEL, Reason::UnsupportedByKernel).await?;
    let supported = status
        .conditions
        .iter()
        .find(|one| one.type_ == condition::SUPPORTED);
    let count = status.support.summary.as_deref().unwrap_or("no count");
    let count = format!("support {count} probes");
    let fewer = status.support.supported < Some(status.support.asked);
    let counted = supported.is_some_and(|one| {
        fewer
            && one.status == "False"
            && one.message.contains(&count)
            && one.message.contains(&sentence)
    });
    if !counted {
        println!("          {supported:?}");
    }
    stage.scene.equal(
        "kernelFunctions: conditions Supported that count it, and say the same of it",
        counted,
        1,
    );
    let says = sentence.starts_with("functions of this node's kernel cannot be probed: ")
        && sentence.contains("CONFIG_FPROBE");
    if !says {
        crate::note!("{sentence}");
    }
    stage.scene.equal(
        "kernelFunctions: sentences that say what the kernel would need",
        says,
        1,
    );
    Ok(())
}

/// The function's calls are the system call's.
async fn compare(stage: Stage<'_>) -> Result<()> {
    let before = stage.still().await?;
    tokio::time::sleep(WINDOW).await;
    let after = stage.still().await?;
    let grown = |probe: &str, metric: &str, label: (&str, &str)| {
        stage.sum(&after, probe, metric, &[label]) - stage.sum(&before, probe, metric, &[label])
    };
    let function = ("function", FUNCTION);
    let calls = grown(KERNEL, "ckb_probe_kernel_function_calls_total", function);
    let metric = "ckb_probe_syscall_duration_seconds_count";
    let writes = grown(traced::CALLS, metric, ("syscall", "write"));
    stage.scene.equal_of(
        "kernelFunctions: calls of __x64_sys_write, less those of the system call",
        calls as f64 - writes as f64,
        &format!("of {writes}"),
        0,
    );
    Ok(())
}
