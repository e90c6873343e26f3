//! What was found in a cluster, and what it comes to.

use ckb_probe_crds::{CkbProbe, NodeProbe};
use k8s_openapi::{
    api::{
        apps::v1::Deployment,
        coordination::v1::Lease,
        core::v1::{Node, Pod},
    },
    jiff::Timestamp,
};

use super::{Diagnosis, Finding, Mark, Part, Place, installation, probe};
use crate::VERSION;

/// What the API server says when it is asked for something.
#[derive(Clone, Debug, Default)]
pub enum Answer<T> {
    /// What there is.
    Known(T),
    /// That whoever asks may not know.
    Forbidden,
    /// Something else, in its own words, or nothing.
    Failed(String),
    /// It was not asked.
    #[default]
    Unasked,
}

impl<T> Answer<T> {
    /// What there is, where that is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(found) => Some(found),
            Self::Forbidden | Self::Failed(_) | Self::Unasked => None,
        }
    }
}

/// Something that somebody may do, or may not.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Right {
    /// Who, as a sentence begins: `you`, or `the operator`.
    pub who: String,
    /// The verb and the resource: `list ckbprobes.ckbprobe.dev`.
    pub what: String,
    /// Where; empty where it is everywhere.
    pub namespace: String,
    /// What does not work without, as the end of a sentence.
    pub without: String,
    /// Whether nothing can be measured without.
    pub needed: bool,
    /// Whether that is so; None where it cannot be known.
    pub granted: Option<bool>,
}

/// All that is looked at, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The moment.
    pub now: Timestamp,
    /// The namespace that is asked about; None: all.
    pub namespace: Option<String>,
    /// The CkbProbe that is asked about; None: all.
    pub name: Option<String>,
    /// The version of the API server.
    pub server: Answer<String>,
    /// The plural names of what it serves under `ckbprobe.dev/v1alpha1`.
    pub resources: Answer<Vec<String>>,
    /// The Deployments of operators.
    pub operators: Answer<Vec<Deployment>>,
    /// Their pods.
    pub operator_pods: Answer<Vec<Pod>>,
    /// The Lease of the operator that works.
    pub lease: Answer<Option<Lease>>,
    /// Who may do what.
    pub rights: Vec<Right>,
    /// The CkbProbes of the namespace.
    pub probes: Answer<Vec<CkbProbe>>,
    /// The orders and reports of nodes.
    pub node_probes: Answer<Vec<NodeProbe>>,
    /// The agents' pods.
    pub agents: Answer<Vec<Pod>>,
    /// The nodes.
    pub nodes: Answer<Vec<Node>>,
}

impl Snapshot {
    /// The namespace of the installation: the operator's, or else that of the agents.
    pub fn system(&self) -> Option<&str> {
        let deployments = self.operators.known().into_iter().flatten();
        let mut namespaces = deployments.filter_map(|one| one.metadata.namespace.as_deref());
        let orders = self.node_probes.known().into_iter().flatten();
        let mut others = orders.filter_map(|one| one.metadata.namespace.as_deref());
        namespaces.next().or_else(|| others.next())
    }

    /// What is wrong first, and what else is known.
    pub fn diagnose(&self) -> Diagnosis {
        let mut findings = Vec::new();
        let fatal = |findings: &[Finding]| findings.iter().any(|one| one.mark == Mark::Failed);
        for look in [
            installation::server,
            installation::crds,
            installation::operator,
            installation::rights,
        ] {
            findings.extend(look(self));
            // What needs it would only say the same in other words.
            if fatal(&findings) {
                return Diagnosis::of(self.parts(), findings);
            }
        }
        findings.extend(self.of_probes());
        Diagnosis::of(self.parts(), findings)
    }

    fn of_probes(&self) -> Vec<Finding> {
        let place = Place::CkbProbe;
        let probes = match &self.probes {
            Answer::Known(probes) => probes,
            Answer::Forbidden | Answer::Unasked => return Vec::new(),
            Answer::Failed(why) => {
                return vec![Finding::failed(
                    place,
                    format!("CkbProbes cannot be read: {why}"),
                )];
            }
        };
        let asked = |one: &&CkbProbe| self.name.is_none() || one.metadata.name == self.name;
        let asked: Vec<&CkbProbe> = probes.iter().filter(asked).collect();
        if asked.is_empty() {
            return vec![self.none_of(probes)];
        }
        let each = asked.into_iter();
        each.flat_map(|one| probe::of(self, one)).collect()
    }

    fn none_of(&self, probes: &[CkbProbe]) -> Finding {
        let place = Place::CkbProbe;
        let within = match &self.namespace {
            Some(namespace) => format!("in namespace {namespace}"),
            None => "in any namespace".to_owned(),
        };
        let names = probes.iter().filter_map(|one| one.metadata.name.as_deref());
        let names: Vec<&str> = names.take(20).collect();
        let list = match &self.namespace {
            Some(_) => "kubectl get ckbprobes -A",
            None => "kubectl ckbprobe try storage -n NAMESPACE -l app=ckb",
        };
        let finding = match (&self.name, names.is_empty()) {
            (Some(name), true) => Finding::failed(
                place,
                format!("there is no CkbProbe {name} {within}, nor any other"),
            ),
            (Some(name), false) => Finding::failed(
                place,
                format!(
                    "there is no CkbProbe {name} {within}: it has {}",
                    names.join(", ")
                ),
            ),
            (None, _) => Finding::warning(
                place,
                format!("there is no CkbProbe {within}: nothing is to be measured"),
            ),
        };
        finding.next(list).see("the-ckbprobe-and-its-pods")
    }

    /// What is installed, and in which versions.
    fn parts(&self) -> Vec<Part> {
        let part = |name: String, version: String| Part { name, version };
        let mut parts = vec![part("command line".to_owned(), VERSION.to_owned())];
        if let Some(version) = self.server.known() {
            parts.push(part("API server".to_owned(), version.clone()));
        }
        for one in self.operators.known().into_iter().flatten() {
            parts.push(part("operator".to_owned(), installation::version(one)));
        }
        for one in self.node_probes.known().into_iter().flatten() {
            if let (Some(node), Some(status)) = (&one.metadata.name, &one.status) {
                parts.push(part(
                    format!("agent on {node}"),
                    status.agent.version.clone(),
                ));
            }
        }
        parts
    }
}
