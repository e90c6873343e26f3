//! Why a verb cannot do what it is to do.

use std::{error::Error, io, path::PathBuf};

use ckb_probe_k8s::client::ClientError;

use crate::flames::FlamesError;

/// What came in the way.
#[derive(Debug, thiserror::Error)]
pub enum VerbError {
    /// No cluster is named.
    #[error(
        "cannot find a cluster: {0}. It is that of --kubeconfig, of KUBECONFIG, or of ~/.kube/config"
    )]
    Config(#[from] kube::config::KubeconfigError),
    /// It cannot be connected to.
    #[error("cannot connect to the cluster: {0}")]
    Client(#[from] ClientError),
    /// The API server refuses something, or does not answer.
    #[error("cannot {what}: {}", sentence(.source))]
    Request {
        /// What was to be done.
        what: String,
        /// What it says.
        source: Box<kube::Error>,
    },
    /// It may not be done.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// What containers use may not be read.
    #[error(
        "you may not read how much CPU time the containers of node {node} use: {message}. That takes the right to get nodes/proxy, which \
         whoever looks after the cluster has. (metrics.k8s.io needs none, and tells means of times that it chooses: too coarse to tell \
         windows apart by.) Nothing was changed"
    )]
    Kubelet {
        /// The node.
        node: String,
        /// The API server's words.
        message: String,
    },
    /// They cannot be read.
    #[error(
        "the kubelet of node {node} does not tell how much CPU time its containers use: {said}"
    )]
    Unanswered {
        /// The node.
        node: String,
        /// What came in the way.
        said: String,
    },
    /// The CkbProbe says that it is being compared.
    #[error(
        "CkbProbe {subject} is being compared by another cost, or one was killed before it could put spec.paused back to {paused}: where none \
         runs any more, {restore} does that"
    )]
    Compared {
        /// `namespace/name`.
        subject: String,
        /// How it was found.
        paused: String,
        /// What to type.
        restore: String,
    },
    /// Nothing can be compared.
    #[error("{0}. Nothing was changed")]
    Incomparable(String),
    /// A command of whoever asks tells nothing.
    #[error(transparent)]
    Command(#[from] crate::commands::CommandError),
    /// A file cannot be made.
    #[error("cannot write {}: {}", .0.display(), .1)]
    File(PathBuf, #[source] io::Error),
    /// There is nothing to draw.
    #[error(
        "{0} has no probe that tells how long something took: see kubectl ckbprobe histogram --help"
    )]
    NoDistribution(String),
    /// Stacks cannot be drawn.
    #[error(transparent)]
    Flames(#[from] FlamesError),
    /// No probe samples them.
    #[error(
        "of CkbProbe {0} {1}: kubectl ckbprobe try flames makes a CkbProbe that does, and docs/flame-graphs.md says what to write into one"
    )]
    NoStacks(String, String),
    /// There is no window of stacks, and none comes.
    #[error("{0}")]
    NoWindow(String),
    /// A file cannot be opened.
    #[error("{} is written, and {program} cannot open it: {source}", .file.display())]
    Open {
        /// The file.
        file: PathBuf,
        /// What was to open it.
        program: &'static str,
        /// Why it does not.
        source: io::Error,
    },
    /// There are no blocks.
    #[error("{0} has no probe of the kind chain: kubectl ckbprobe try blocks makes one")]
    NoBlocks(String),
    /// Pods are not chosen like this.
    #[error(transparent)]
    Selector(#[from] ckb_probe_views::selector::SelectorError),
    /// Prometheus tells nothing.
    #[error(transparent)]
    Prometheus(#[from] crate::prometheus::PrometheusError),
    /// There is nothing to make a report of.
    #[error(transparent)]
    Report(#[from] crate::report::ReportError),
    /// There is no terminal to draw on.
    #[error(transparent)]
    Terminal(#[from] crate::terminal::TerminalError),
    /// Nothing can be printed, or no signal be waited for.
    #[error("cannot print: {0}")]
    Print(#[from] io::Error),
}

/// The API server does not let whoever asks do that.
#[derive(Debug, thiserror::Error)]
#[error(
    "you may not {what} in namespace {namespace}: {message}. The cluster's roles view and edit have these rights where the chart has \
     rbac.aggregate"
)]
pub struct Forbidden {
    /// What may not be done.
    pub what: String,
    /// The namespace in which it may not.
    pub namespace: String,
    /// The API server's words.
    pub message: String,
}

impl VerbError {
    /// Whether whoever reads what is printed went away: it has what it wanted.
    pub fn has_no_reader(&self) -> bool {
        match self {
            Self::Print(error) | Self::Flames(FlamesError::Print(error)) => {
                error.kind() == io::ErrorKind::BrokenPipe
            }
            _ => false,
        }
    }

    /// Of a request.
    pub(crate) fn request(what: impl Into<String>, namespace: &str, error: kube::Error) -> Self {
        let what = what.into();
        match error {
            kube::Error::Api(status) if status.code == 403 => Self::Forbidden(Forbidden {
                what,
                namespace: namespace.to_owned(),
                message: status.message.clone(),
            }),
            source => Self::Request {
                what,
                source: Box::new(source),
            },
        }
    }
}

/// An error of a request as a person reads it: the API server's own words, or why there was no answer.
pub(crate) fn sentence(error: &kube::Error) -> String {
    if let kube::Error::Api(status) = error {
        return match status.message.is_empty() {
            true => format!("the API server says {}", status.code),
            false => status.message.clone(),
        };
    }
    // Each layer says what the next one says, too: the last is what happened.
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    format!("the API server cannot be reached: {innermost}")
}
