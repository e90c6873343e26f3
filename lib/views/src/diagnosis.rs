//! Where on the way from the API server to its figures a CkbProbe gets stuck: one finding after the other, in the order in which one
//! thing needs the other, so that the first that failed is what is to be repaired.

pub mod cluster;
pub mod host;
mod installation;
mod probe;
mod reasons;

use ckb_probe_crds::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::TROUBLESHOOTING;

/// A place on the way, each of which needs those before it.
#[derive(
    Clone,
    Copy,
    Debug,
    Deserialize,
    Eq,
    Hash,
    IntoStaticStr,
    JsonSchema,
    Ord,
    PartialEq,
    PartialOrd,
    Serialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Place {
    /// The API server answers.
    Cluster,
    /// It knows the resources.
    Crd,
    /// An operator is there, and works.
    Operator,
    /// Who asks, and the operator, may do what that takes.
    Rbac,
    /// There is a CkbProbe, and the operator took it up.
    CkbProbe,
    /// It selects pods that run.
    Pods,
    /// The agents of their nodes report.
    Agent,
    /// Their nodes can be measured.
    Node,
    /// The process is there.
    Process,
    /// It has what is to be probed.
    Symbols,
    /// The kernel lets it be probed.
    Kernel,
    /// Something is counted.
    Figures,
}

impl Place {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// How it is at a place.
#[derive(
    Clone, Copy, Debug, Deserialize, Eq, JsonSchema, Ord, PartialEq, PartialOrd, Serialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// As it should be.
    Passed,
    /// Something to know, which keeps nothing from being measured.
    Warning,
    /// Something to repair.
    Failed,
}

impl Mark {
    /// As `linkerd check` has it.
    pub fn sign(self) -> char {
        match self {
            Self::Passed => '√',
            Self::Warning => '‼',
            Self::Failed => '×',
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The place that was looked at.
    pub place: Place,
    /// The CkbProbe that it is about, `namespace/name`, or on a host the process; unset of what is about all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// How it is.
    pub mark: Mark,
    /// What was found.
    pub text: String,
    /// The reason in one word, where the status of a CkbProbe gives one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What to type next: commands for a shell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<String>,
    /// The page that says more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub see: Option<String>,
}

impl Finding {
    /// It is as it should be.
    pub fn passed(place: Place, text: impl Into<String>) -> Self {
        Self::new(place, Mark::Passed, text)
    }

    /// Something to know.
    pub fn warning(place: Place, text: impl Into<String>) -> Self {
        Self::new(place, Mark::Warning, text)
    }

    /// Something to repair.
    pub fn failed(place: Place, text: impl Into<String>) -> Self {
        Self::new(place, Mark::Failed, text)
    }

    fn new(place: Place, mark: Mark, text: impl Into<String>) -> Self {
        Self {
            place,
            subject: None,
            mark,
            text: text.into(),
            reason: None,
            next: Vec::new(),
            see: None,
        }
    }

    /// With a command to type next.
    #[must_use]
    pub fn next(mut self, command: impl Into<String>) -> Self {
        self.next.push(command.into());
        self
    }

    /// With the part of the page that says more.
    #[must_use]
    pub fn see(mut self, anchor: &str) -> Self {
        self.see = Some(format!("{TROUBLESHOOTING}#{anchor}"));
        self
    }

    /// About this.
    #[must_use]
    pub fn about(mut self, subject: &str) -> Self {
        self.subject = Some(subject.to_owned());
        self
    }
}

/// A part of what is installed, and its version.
#[derive(Clone, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub struct Part {
    /// Which it is: `command line`, `operator`, `agent on NODE`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What was found, at one look.
#[derive(Clone, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// Whether nothing is to be repaired: what the exit code says.
    pub ok: bool,
    /// What is installed.
    pub parts: Vec<Part>,
    /// What was looked at, in the order in which one thing needs the other. What comes after a place that is broken, and needs it, is not
    /// among them.
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// What these come to.
    pub fn of(parts: Vec<Part>, findings: Vec<Finding>) -> Self {
        Self {
            ok: findings.iter().all(|one| one.mark != Mark::Failed),
            parts,
            findings,
        }
    }

    /// Whether nothing is on its way any more, to be waited for.
    pub fn is_settled(&self) -> bool {
        let passing = |one: &Finding| {
            let reason = one.reason;
            matches!(reason, Some(Reason::Attaching | Reason::AgentStarting))
        };
        // That there is no answer to one yet is told without a reason.
        let waited = |one: &Finding| {
            let is_of_one = one.place == Place::CkbProbe && one.subject.is_some();
            is_of_one && one.mark == Mark::Warning
        };
        !self
            .findings
            .iter()
            .any(|one| passing(one) || waited(one) && one.reason.is_none())
    }

    /// What is to be repaired first.
    pub fn first_failure(&self) -> Option<&Finding> {
        self.findings.iter().find(|one| one.mark == Mark::Failed)
    }
}

#[cfg(test)]
mod tests;
