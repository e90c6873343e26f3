//! Why a scenario could not go on.

use std::{fmt, fs, io, path::Path, time::Duration};

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

    /// For `map_err`: the system's word, with the file that it is about.
    pub fn at(path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let what = path.display().to_string();
        move |source| Self::System { what, source }
    }

    /// What must be, and what there is instead.
    pub fn unexpected(expected: impl Into<String>, got: impl fmt::Display) -> Self {
        Self::Unexpected {
            expected: expected.into(),
            got: got.to_string(),
        }
    }

    /// What must be, and is not there.
    pub fn missing(expected: impl Into<String>) -> Self {
        Self::unexpected(expected, "none")
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
pub fn expect<D: fmt::Display>(
    holds: bool,
    expected: impl Into<String>,
    got: impl FnOnce() -> D,
) -> Result<()> {
    match holds {
        true => Ok(()),
        false => Err(Failure::unexpected(expected, got())),
    }
}

/// What is in a text file.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    fs::read_to_string(&path).map_err(Failure::at(path.as_ref()))
}
