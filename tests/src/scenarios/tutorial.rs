//! docs/tutorial.md: each command is run as it is written there, and prints what is printed there.

use std::{env, fmt::Write as _, process::Stdio};

use tokio::process::Command;

use super::prelude::*;
use crate::{
    failure::read,
    fixture::repository,
    pages::Page,
    tutorial::{How, PAGE, Step, steps},
};

/// What was printed, for whoever writes the page.
const TRANSCRIPT: &str = "target/e2e/tutorial.txt";

/// What all of it may take: a reader has ten minutes, most of them to read.
const LIMIT: Duration = Duration::from_secs(120);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    scene.deploy(Load::Steady).await?;
    let own = env::current_exe().map_err(Failure::system("the command line"))?;
    let program = own.with_file_name("ckb-probe");
    let steps = steps(&Page::read(&read(repository().join(PAGE))?));
    let begun = Instant::now();
    let mut transcript = String::new();
    let mut run: u64 = 0;
    for step in steps.iter().filter(|step| step.how() != How::Prepared) {
        let step = step.elsewhere(&scene.namespace, &program.to_string_lossy());
        let printed = printed(&step).await?;
        let _ = writeln!(transcript, "$ {}\n{printed}", step.command);
        let path = repository().join(TRANSCRIPT);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(Failure::at(folder))?;
        }
        fs::write(&path, &transcript).map_err(Failure::at(&path))?;
        // A server that is asked what it would do prints all of it.
        if step.command.contains("--dry-run") {
            continue;
        }
        let differs = step.differs(&printed);
        expect(
            differs.is_none(),
            format!(
                "what {PAGE} says that `{}` prints: {differs:?}",
                step.command
            ),
            || &printed,
        )?;
        run += 1;
    }
    scene.figure(
        "commands that print what is told",
        run,
        "",
        Bound::AtLeast(12.0),
    );
    scene.seconds("all commands of the page", begun.elapsed(), LIMIT);
    Ok(())
}

/// What a command prints, in the folder in which a reader types it.
async fn printed(step: &Step) -> Result<String> {
    let plugin = repository().join("target/plugin");
    let path = env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["-o", "pipefail", "-c", &step.command])
        .env("PATH", format!("{}:{path}", plugin.display()))
        .current_dir(repository())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, output).await;
    let output = output.map_err(|_| Failure::missing(format!("an end of {}", step.command)))?;
    let output = output.map_err(Failure::system("bash"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    expect(
        output.status.success(),
        format!("`{}` to end well", step.command),
        || format!("{printed}{}", String::from_utf8_lossy(&output.stderr)),
    )?;
    Ok(printed)
}
