//! What an exec and an end cost, somebody else's and a target's own, and whether any is missed.

use serde::Deserialize;

use super::{account::Runs, prelude::*, probes::Printed};

/// Children, each of which executes a program and ends.
const CHILDREN: u64 = 10_000;

/// The programs of ours that run then.
const PROGRAMS: [&str; 2] = ["exec", "end"];

/// What the children are called: by the last part of the path that they execute.
const COMMAND: &str = "exe";

/// Whose children they are.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    Nobody,
    Bystander,
    Target,
}

/// Twice nobody's, on both sides of the others: what these differ by from each other means nothing.
const ALL: [(&str, Of); 4] = [
    ("one", Of::Nobody),
    ("bystander", Of::Bystander),
    ("target", Of::Target),
    ("other", Of::Nobody),
];

const ROWS: [Row; 12] = table! {
    "CPU of a child that executes a program and ends" = "one~other" in "us";
    "the same, nothing attached once more, more" = "other % one" in "%";
    "the same, a bystander's, more" = "bystander % one~other" in "%";
    "the same, a target's, more" = "target % one~other" in "%";
    "program at a bystander's exec" = "bystander.exec" in "ns";
    "program at a bystander's end" = "bystander.end" in "ns";
    "both programs, of a bystander's child" = "bystander.share" in "%";
    "program at a target's exec" = "target.exec" in "ns";
    "program at a target's end" = "target.end" in "ns";
    "both programs, of a target's child" = "target.share" in "%";
    "events told as lost" = "target.lost" in "";
    "of 10,000 execs and 10,000 ends, neither told nor lost" = "worst target.astray" in "", Exactly(0.0);
};

/// An event, as far as it matters here.
#[derive(Deserialize)]
struct Event {
    command: String,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let (mut parent, other) = (Caller::start()?, Caller::start()?);
    let _account = Account::open()?;
    let measure = async |of| {
        let probes = match of {
            Of::Nobody => None,
            Of::Bystander => Some(attach(bench, &other).await?),
            Of::Target => Some(attach(bench, &parent).await?),
        };
        let micros = parent.call("spawn", CHILDREN)? as f64 / 1e3 / CHILDREN as f64;
        let mut found = vec![("", micros)];
        let Some(probes) = probes else {
            return Ok(found);
        };
        let [exec, end] = runs(&probes).await?.map(Runs::each);
        let share = (exec + end) / micros / 10.0;
        found.extend([("exec", exec), ("end", end), ("share", share)]);
        let printed = probes.stop().await?;
        if of == Of::Target {
            let (told, lost) = told(&printed)?;
            let astray = (2 * CHILDREN).abs_diff(told + lost);
            found.extend([("lost", lost as f64), ("astray", astray as f64)]);
        }
        Ok(found)
    };
    let series = bench.turns(Order::ToAndFro, &ALL, measure).await?;
    bench.tell("processes: ", &series, &ROWS);
    Ok(())
}

/// Everything that happens around a process is listed.
async fn attach(bench: &Bench, process: &Caller) -> Result<Probes> {
    let options = ["--events", "--interval", "200ms"];
    let programs = &bench.settings.programs;
    Probes::of_kind(
        programs,
        "processes",
        PROGRAMS[1],
        process.process,
        &options,
    )
    .await
}

/// What the programs took since they were loaded, for whoever it was: nobody else starts many.
async fn runs(probes: &Probes) -> Result<[Runs; 2]> {
    let (none, runs) = (Default::default(), account::runs(probes.process()?).await?);
    let [exec, end] = PROGRAMS.map(|program| account::since(&none, &runs, program));
    Ok([exec?, end?])
}

/// How many execs and ends of children were told one by one, and how many as lost.
fn told(printed: &Printed) -> Result<(u64, u64)> {
    let lines = printed.output.lines();
    let events = lines
        .map(serde_json::from_str)
        .collect::<std::result::Result<Vec<Event>, _>>();
    let events = events.map_err(Failure::format("an event"))?;
    let children = events.iter().filter(|event| event.command == COMMAND);
    let lost = match printed.errors.split_once("lost ") {
        Some((_, rest)) => {
            let count = rest.split(' ').next().unwrap_or_default();
            count.parse().map_err(Failure::format(rest))?
        }
        None => 0,
    };
    Ok((children.count() as u64, lost))
}
