//! Why a scenario could not go on.

use std::{io, time::Duration};

/// Why a step of a scenario failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// The API server refused, or did not answer.
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    /// The machine refused.
    #[error("{what}: {source}")]
    System {
        /// The text that cannot be read.
        what: String,
        /// The system's word.
        source: io::Error,
    },
    /// A command did not succeed.
    #[error("{command} failed: {output}")]
    Command {
        /// The command.
        command: String,
        /// What it printed.
        output: String,
    },
    /// A text is not in the format that it should be in.
    #[error("{what} cannot be read: {why}")]
    Format {
        /// Which text.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Something is not as it must be.
    #[error("expected {expected}; got {got}")]
    Unexpected {
        /// What must be.
        expected: String,
        /// What there is instead.
        got: String,
    },
    /// Something did not come about in time.
    #[error("waited {:.1} s for {what}; at last: {last}", .limit.as_secs_f64())]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long was waited.
        limit: Duration,
        /// Why it had not come about at the last look.
        last: Box<Failure>,
    },
}

/// The result of a step.
pub type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    /// For `map_err`: the system's word, with what was tried.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }

    /// For `map_err`: a text that is not in its format.
    pub fn format<E: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = what.into();
        move |why| Self::Format {
            what,
            why: why.to_string(),
        }
    }
}

/// Succeeds when `holds`; says what was expected and what there is otherwise.
pub fn expect(
    holds: bool,
    expected: impl Into<String>,
    got: impl FnOnce() -> String,
) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Failure::Unexpected {
        expected: expected.into(),
        got: got(),
    })
}
