//! What an exec and an end cost, somebody else's and a target's own, and whether any is missed.

use serde::Deserialize;

use super::{
    Bench,
    account::{self, Account, Runs},
    caller::Caller,
    probes::{Printed, Probes},
    statistics::{percent_more, ratios, summary, to_and_fro},
};
use crate::{
    failure::{Failure, Result},
    report::Bound,
};

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
const ALL: [Of; 4] = [Of::Nobody, Of::Bystander, Of::Target, Of::Nobody];

/// An event, as far as it matters here.
#[derive(Deserialize)]
struct Event {
    command: String,
}

pub async fn run(bench: &mut Bench) -> Result<()> {
    let (mut parent, other) = (Caller::start().await?, Caller::start().await?);
    let _account = Account::open()?;
    let mut micros = [const { Vec::new() }; ALL.len()];
    let mut each = [const { [const { Vec::new() }; 2] }; ALL.len()];
    let (mut astray, mut lost) = (0, Vec::new());
    for round in 0..bench.settings.rounds {
        for index in to_and_fro(ALL.len(), round) {
            let probes = match ALL[index] {
                Of::Nobody => None,
                Of::Bystander => Some(attach(bench, &other).await?),
                Of::Target => Some(attach(bench, &parent).await?),
            };
            let took = parent.call("spawn", CHILDREN).await?;
            micros[index].push(took as f64 / 1e3 / CHILDREN as f64);
            let Some(probes) = probes else {
                continue;
            };
            for (each, runs) in each[index].iter_mut().zip(runs(&probes).await?) {
                each.push(runs.each());
            }
            let printed = probes.stop().await?;
            if ALL[index] == Of::Target {
                let (told, missing) = told(&printed)?;
                astray = astray.max((2 * CHILDREN).abs_diff(told + missing));
                lost.push(missing as f64);
            }
        }
    }
    add_costs(bench, &micros, &each);
    let lost = summary(lost);
    bench.figure("processes: events told as lost", lost, "", None);
    // The worst, not the median: this is exact, or it is wrong.
    let name = "processes: of 10,000 execs and 10,000 ends, neither told nor lost";
    bench.value(name, astray as f64, "", Some(Bound::Exactly(0.0)));
    Ok(())
}

fn add_costs(bench: &mut Bench, micros: &[Vec<f64>; ALL.len()], each: &[[Vec<f64>; 2]; ALL.len()]) {
    let [one, bystander, target, other] = micros;
    let nothing: Vec<f64> = one.iter().zip(other).map(|(a, b)| (a + b) / 2.0).collect();
    let mut add = |what: &str, values: &[f64], unit| {
        let name = format!("processes: {what}");
        bench.figure(&name, summary(values.iter().copied()), unit, None);
    };
    add(
        "CPU of a child that executes a program and ends",
        &nothing,
        "us",
    );
    let more = [
        ("nothing attached once more", percent_more(other, one)),
        ("a bystander's", percent_more(bystander, &nothing)),
        ("a target's", percent_more(target, &nothing)),
    ];
    for (whose, percents) in &more {
        add(&format!("the same, {whose}, more"), percents, "%");
    }
    for (whose, [exec, end], cpu) in [
        ("a bystander's", &each[1], bystander),
        ("a target's", &each[2], target),
    ] {
        add(&format!("program at {whose} exec"), exec, "ns");
        add(&format!("program at {whose} end"), end, "ns");
        let both: Vec<f64> = exec.iter().zip(end).map(|(exec, end)| exec + end).collect();
        let parts = ratios(&both, cpu);
        let percents: Vec<f64> = parts.iter().map(|part| part / 10.0).collect();
        add(&format!("both programs, of {whose} child"), &percents, "%");
    }
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
