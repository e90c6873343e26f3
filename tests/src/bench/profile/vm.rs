//! Stacks through CKB-VM's interpreter in assembly, which says nothing of how to unwind it.

use std::{fs, path::Path, process::Stdio, time::Duration};

use tokio::{process::Command, time::sleep};

use super::{
    super::{Bench, Settings, agent::of, in_folder, statistics::summary},
    Profile, Profiling, Stacks,
    peer::FREQUENCY,
    printed, scripts,
};
use crate::{
    failure::{Failure, Result},
    fixture::repository,
    report::Bound,
};

/// The interpreter.
const INTERPRETER: &str = "ckb_vm_x64_execute";

/// The part of CKB that runs scripts.
pub const HEADING: &str = "scripts";

pub async fn run(bench: &mut Bench) -> Result<()> {
    program(bench).await?;
    scripts::run(bench).await
}

/// What was seen of each round.
#[derive(Default)]
pub struct Seen {
    complete: Vec<f64>,
    scripts: Vec<f64>,
    within: Vec<f64>,
}

impl Seen {
    /// Adds a round.
    pub fn add(&mut self, stacks: &Stacks) {
        let within = |stack: &super::Stack| stack.calls.iter().any(|call| call == INTERPRETER);
        self.complete.push(stacks.complete());
        self.scripts
            .push(stacks.share(|stack| stack.thread == HEADING));
        self.within.push(stacks.share(within));
    }

    /// Writes down all rounds.
    pub fn tell(self, bench: &mut Bench, of: &str, scripts: Option<Bound>) {
        let complete = Some(Bound::AtLeast(99.0));
        for (what, shares, bound) in [
            ("complete stacks", self.complete, complete),
            ("under scripts", self.scripts, scripts),
            ("through the interpreter in assembly", self.within, None),
        ] {
            let name = format!("profile-vm: {of}{what}");
            bench.figure(&name, summary(shares), "%", bound);
        }
    }
}

/// Of a program that does nothing else.
async fn program(bench: &mut Bench) -> Result<()> {
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
    let mut seen = Seen::default();
    let options = ["--frequency", FREQUENCY];
    for _ in 0..bench.settings.rounds {
        let settings = &bench.settings;
        let profiling = Profiling::start(settings, 1, process, "vm.pb.gz", &options).await?;
        sleep(Duration::from_secs(settings.seconds)).await;
        seen.add(&by_heading(settings, &profiling.stop().await?).await?);
    }
    seen.tell(bench, "", Some(Bound::AtLeast(99.0)));
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
