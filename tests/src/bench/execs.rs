//! What an agent does while a process that is nobody's target executes, over and over, a file of the name that targets have.

use super::{prelude::*, ticker::EXECUTABLE};

/// Execs a second, of so many threads: a shell for each would be the limit before the agent is.
const RATE: u64 = 200;
const THREADS: u64 = 4;

/// As by default.
const REPORT: Duration = Duration::from_secs(10);

/// Until the agent has attached.
const ATTACH: Duration = Duration::from_secs(60);

/// So long the agent is let alone after it was given orders.
const SETTLE: Duration = Duration::from_secs(3);

/// The part of the rate that must be reached for the figures to mean anything.
const REACHED: f64 = 0.95;

/// What the agent may use, in percent of a core.
const LIMIT: f64 = 5.0;

const ROWS: [Row; 3] = table! {
    "others' of the name that is asked for" = "rate" in "a second", AtLeast(RATE as f64 * REACHED);
    "the agent's CPU without them" = "quiet" in "% of a core";
    "the agent's CPU" = "cpu" in "% of a core", AtMost(LIMIT);
};

pub async fn run(bench: &mut Bench) -> Result<()> {
    let attached = Container::new(31);
    let waiting = Container::new(32);
    let stranger = Container::of(33, Some("pod"));
    let program = namesake(&in_folder(&bench.settings, "namesake")?)?;
    let _target = Ticker::start(&attached, 100)?;
    let order = |container| agent::usual_order(container, EXECUTABLE, budget(), REPORT);
    let agent = Agent::watching(&bench.settings, vec![order(&attached)], ATTACH).await?;
    measure(bench, &agent, "its target attached", &stranger, &program).await?;
    agent.order(vec![order(&attached), order(&waiting)]).await?;
    measure(bench, &agent, "another target waiting", &stranger, &program).await?;
    agent.stop().await?;
    fs::remove_file(&program).map_err(Failure::at(&program))
}

/// A program that does nothing, of the name that targets have.
fn namesake(folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder).map_err(Failure::at(folder))?;
    let program = folder.join(EXECUTABLE);
    fs::copy(fixtures().join("nothing"), &program).map_err(Failure::at(&program))?;
    Ok(program)
}

async fn measure(
    bench: &mut Bench,
    agent: &Agent,
    what: &str,
    stranger: &Container,
    program: &Path,
) -> Result<()> {
    sleep(SETTLE).await;
    let mut series = Series::default();
    let window = Duration::from_secs(bench.settings.seconds);
    for _ in 0..bench.settings.rounds {
        series.push("quiet", agent.percent(sleep(window / 3)).await.0);
        let mut execs = Ok(0);
        let storm = async { execs = storm(stranger, program, window).await };
        let (percent, took) = agent.percent(storm).await;
        series.push("cpu", percent);
        series.push("rate", execs? as f64 / took.as_secs_f64());
    }
    bench.tell_as(|row| format!("execs: {row}, {what}"), &series, &ROWS);
    Ok(())
}

/// A process in the container executes the program over and over. How often it did.
async fn storm(container: &Container, program: &Path, lasts: Duration) -> Result<u64> {
    let failure = Failure::system("storm");
    let mut command = command(container, &fixtures().join("storm"), [program]);
    let storm = command
        .args([RATE, THREADS].map(|number| number.to_string()))
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failure)?;
    sleep(lasts).await;
    of(&storm)?.signal(Signal::TERM)?;
    let output = storm.wait_with_output().await;
    let output = output.map_err(Failure::system("storm"))?.stdout;
    let output = String::from_utf8_lossy(&output);
    let execs = output.lines().last().unwrap_or_default();
    execs.parse().map_err(Failure::format("what storm says"))
}
