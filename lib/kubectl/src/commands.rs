//! Commands of whoever wants to know what measuring costs: one tells what was done, one asks for something and is timed.

use std::{
    process::{Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use clap::Args;

/// Between two requests, so that they are no load.
const PAUSE: Duration = Duration::from_millis(50);

/// Which ones.
#[derive(Args, Clone, Debug, Default)]
pub struct CommandArguments {
    /// A shell command that prints a number that grows with what was done, such as requests that were served: its rate is compared.
    #[arg(long, value_name = "COMMAND")]
    pub counter: Option<String>,
    /// A shell command that asks for something, again and again: how long it takes is compared.
    #[arg(long, value_name = "COMMAND")]
    pub request: Option<String>,
}

/// Why a command tells nothing.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no shell.
    #[error("cannot run the command of --{option}: {source}")]
    Run {
        /// Which of them.
        option: &'static str,
        /// Why there is none.
        source: std::io::Error,
    },
    /// It did not end well.
    #[error("the command of --{option} failed ({status}): {said}")]
    Failed {
        /// Which of them.
        option: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// What it said of that.
        said: String,
    },
    /// It does not count.
    #[error("the command of --counter printed {0:?}, and not a number")]
    NoNumber(String),
    /// It takes too long.
    #[error("the command of --request did not end once in a window: choose longer ones, by --each")]
    NoAnswer,
}

impl CommandArguments {
    /// What the counter is at now.
    pub fn count(&self) -> Result<Option<f64>, CommandError> {
        let Some(command) = &self.counter else {
            return Ok(None);
        };
        let printed = said_by(command, "counter")?;
        let number = printed.parse();
        let no_number = |_| CommandError::NoNumber(printed.chars().take(100).collect());
        number.map(Some).map_err(no_number)
    }

    /// Begins to make requests.
    pub fn requests(&self) -> Option<Requests> {
        self.request.as_deref().map(Requests::begin)
    }
}

/// Runs a command of the shell to its end.
fn said_by(command: &str, option: &'static str) -> Result<String, CommandError> {
    let output = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::null())
        .output()
        .map_err(|source| CommandError::Run { option, source })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes.trim_ascii()).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr);
    // It may have been told by somebody else: nothing in it moves a cursor.
    let said = said.chars().filter(|letter| !letter.is_control());
    Err(CommandError::Failed {
        option,
        status: output.status,
        said: said.take(200).collect(),
    })
}

/// Requests that are made one after the other, until nobody wants to know of them any more.
pub struct Requests {
    took: mpsc::Receiver<Result<Duration, CommandError>>,
}

impl Requests {
    fn begin(command: &str) -> Self {
        let (tell, took) = mpsc::channel();
        let command = command.to_string();
        thread::spawn(move || {
            loop {
                let begin = Instant::now();
                let answer = said_by(&command, "request").map(|_| begin.elapsed());
                let over = answer.is_err();
                if tell.send(answer).is_err() || over {
                    break;
                }
                thread::sleep(PAUSE);
            }
        });
        Self { took }
    }

    /// How long they took, in nanoseconds: the median. The one that is under way does not count.
    pub fn end(self) -> Result<f64, CommandError> {
        let mut took: Vec<Duration> = self.took.try_iter().collect::<Result<_, _>>()?;
        took.sort_unstable();
        let median = took.get(took.len() / 2).ok_or(CommandError::NoAnswer)?;
        Ok(median.as_nanos() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(command: &str) -> CommandArguments {
        CommandArguments {
            counter: Some(command.to_owned()),
            request: None,
        }
    }

    #[test]
    fn a_counter_is_a_number_and_what_is_none_is_said() {
        assert_eq!(counting("echo ' 12.5'").count().unwrap(), Some(12.5));
        assert_eq!(CommandArguments::default().count().unwrap(), None);
        let error = counting("echo tip").count().unwrap_err();
        assert!(matches!(error, CommandError::NoNumber(said) if said == "tip"));
        let error = counting("printf 'no\\033[2J' >&2; false")
            .count()
            .unwrap_err();
        assert!(matches!(error, CommandError::Failed { said, .. } if said == "no[2J"));
    }

    #[test]
    fn requests_are_timed_until_one_fails() {
        let of = |command: &str| {
            let requests = Requests::begin(command);
            thread::sleep(Duration::from_millis(700));
            requests.end()
        };
        let median = of("sleep 0.1").unwrap();
        assert!((1e8..6e8).contains(&median), "{median}");
        assert!(matches!(of("false"), Err(CommandError::Failed { .. })));
        assert!(matches!(of("sleep 9"), Err(CommandError::NoAnswer)));
    }
}
