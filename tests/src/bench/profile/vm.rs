//! Stacks through CKB-VM's interpreter in assembly, which says nothing of how to unwind it.

use std::{path::Path, process::Stdio, time::Duration};

use tokio::{process::Command, time::sleep};

use super::{
    super::{Bench, agent::of, in_folder, statistics::summary},
    Profiling, Stacks, printed,
};
use crate::{
    failure::{Failure, Result},
    fixture::repository,
    report::Bound,
};

/// The interpreter.
const INTERPRETER: &str = "ckb_vm_x64_execute";

pub async fn run(bench: &mut Bench) -> Result<()> {
    let folder = repository().join("target/script");
    let manifest = repository()
        .join("tests/script/Cargo.toml")
        .display()
        .to_string();
    let target = folder.display().to_string();
    let build = [
        "build",
        "--quiet",
        "--locked",
        "--release",
        "--manifest-path",
        &manifest,
        "--target-dir",
        &target,
    ];
    printed(Path::new("cargo"), &build).await?;
    let target = Command::new(folder.join("release/runs-scripts"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(Failure::system("runs-scripts"))?;
    let process = of(&target)?;
    let (mut complete, mut scripts, mut within) = (Vec::new(), Vec::new(), Vec::new());
    let drawn = in_folder(&bench.settings, "vm.folded")?
        .display()
        .to_string();
    let program = bench.settings.programs.join("ckb-probe");
    for _ in 0..bench.settings.rounds {
        let profiling = Profiling::start(
            &bench.settings,
            1,
            process,
            "vm.pb.gz",
            &["--frequency", "199"],
        )
        .await?;
        sleep(Duration::from_secs(bench.settings.seconds)).await;
        let profile = profiling.stop().await?;
        let file = profile.file.display().to_string();
        printed(
            &program,
            &["render", &file, "--by", "heading", "-o", &drawn],
        )
        .await?;
        let text = std::fs::read_to_string(&drawn).map_err(Failure::system(drawn.clone()))?;
        // In place of the thread stands the heading.
        let stacks = Stacks::folded(&text)?;
        complete.push(stacks.complete());
        scripts.push(stacks.share(|stack| stack.thread == "scripts"));
        within.push(stacks.share(|stack| stack.calls.iter().any(|call| call == INTERPRETER)));
    }
    let bound = Some(Bound::AtLeast(99.0));
    bench.figure("profile-vm: complete stacks", summary(complete), "%", bound);
    bench.figure("profile-vm: under scripts", summary(scripts), "%", bound);
    bench.figure(
        "profile-vm: through the interpreter in assembly",
        summary(within),
        "%",
        None,
    );
    Ok(())
}
