//! Stacks through CKB-VM's interpreter in assembly, which says nothing of how to unwind it.

use tokio::process::Command;

use super::{Profile, Profiling, Stacks, peer::FREQUENCY, printed, scripts};
use crate::{bench::prelude::*, fixture::repository};

/// The interpreter.
const INTERPRETER: &str = "ckb_vm_x64_execute";

/// The part of CKB that runs scripts.
pub const HEADING: &str = "scripts";

pub async fn run(bench: &mut Bench) -> Result<()> {
    program(bench).await?;
    scripts::run(bench).await
}

pub const ROWS: [Row; 3] = table! {
    "complete stacks" = "complete" in "%", AtLeast(99.0);
    "under scripts" = "scripts" in "%";
    "through the interpreter in assembly" = "within" in "%";
};

/// What is seen of a round.
pub fn seen(stacks: &Stacks) -> Found {
    let within = |stack: &super::Stack| stack.calls.iter().any(|call| call == INTERPRETER);
    vec![
        ("complete", stacks.complete()),
        ("scripts", stacks.share(|stack| stack.thread == HEADING)),
        ("within", stacks.share(within)),
    ]
}

/// Of a program that does nothing else.
async fn program(bench: &mut Bench) -> Result<()> {
    let folder = repository().join("target/script");
    let manifest = repository()
        .join("tests/script/Cargo.toml")
        .display()
        .to_string();
    let target = folder.display().to_string();
    let build = "build --quiet --locked --release".split(' ');
    let paths = ["--manifest-path", &manifest, "--target-dir", &target];
    let build: Vec<&str> = build.chain(paths).collect();
    printed(Path::new("cargo"), &build).await?;
    let target = Command::new(folder.join("release/runs-scripts"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(Failure::system("runs-scripts"))?;
    let process = of(&target)?;
    let mut series = Series::default();
    let options = ["--frequency", FREQUENCY];
    for _ in 0..bench.settings.rounds {
        let settings = &bench.settings;
        let profiling = Profiling::start(settings, 1, process, "vm.pb.gz", &options).await?;
        sleep(Duration::from_secs(settings.seconds)).await;
        let profile = profiling.stop().await?;
        series.extend("", seen(&by_heading(settings, &profile).await?));
    }
    let [complete, scripts, within] = ROWS;
    let scripts = Row {
        bound: Some(AtLeast(99.0)),
        ..scripts
    };
    bench.tell("profile-vm: ", &series, &[complete, scripts, within]);
    Ok(())
}

/// Stacks in which the part of CKB that they belong to stands in place of the thread.
pub async fn by_heading(settings: &Settings, profile: &Profile) -> Result<Stacks> {
    let drawn = in_folder(settings, "vm.folded")?.display().to_string();
    let file = profile.file.display().to_string();
    let render = ["render", &file, "--by", "heading", "-o", &drawn];
    printed(&settings.programs.join("ckb-probe"), &render).await?;
    Stacks::folded(&fs::read_to_string(&drawn).map_err(Failure::system(drawn))?)
}
