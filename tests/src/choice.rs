//! What the programs of the tests have in common on their command lines.

use std::process::ExitCode;

use tokio::signal::ctrl_c;

use crate::failure::{Failure, Result};

/// Looks at what was chosen by name out of `known`, which are names and what they are. Tells how the program ends where there is
/// nothing to be done: they were to be listed, or one of them is none.
pub fn refused<'a>(
    what: &str,
    known: impl Iterator<Item = (&'a str, &'a str)> + Clone,
    list: bool,
    chosen: &[String],
) -> Option<ExitCode> {
    if list {
        for (name, about) in known {
            println!("{name:<20} {about}");
        }
        return Some(ExitCode::SUCCESS);
    }
    let unknown = |name: &&String| known.clone().all(|(known, _)| known != **name);
    let name = chosen.iter().find(unknown)?;
    eprintln!("error: there is no {what} {name}; see --list");
    Some(ExitCode::from(2))
}

/// What comes of this, unless somebody interrupts it first: what it has started ends with it.
pub async fn unless_interrupted<T>(run: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::select! {
        outcome = run => outcome,
        _ = ctrl_c() => Err(Failure::Interrupted),
    }
}

/// How a program ends of which this came: true when everything is as it must be.
pub fn exit_code(outcome: Result<bool>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
