//! What an agent counts, held against what bpftrace counts of the same calls.

use std::collections::BTreeMap;

use crate::{
    bpf::Code,
    bpftrace::{Bpftrace, Counts},
    cluster::Component,
    failure::Result,
    operations,
    process::Process,
    scene::PROBE,
    workload::Target,
};

/// Both count, from one moment of the process's life on.
pub struct Comparison {
    bpftrace: Bpftrace,
    process: Process,
    agent: Component,
    namespace: String,
    operations: Vec<&'static str>,
    before: Both,
}

/// What both have counted of an operation.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The operation.
    pub operation: &'static str,
    /// By the agent.
    pub ours: u64,
    /// By bpftrace.
    pub theirs: u64,
}

/// What both had counted at one moment: the agent by operation, bpftrace by function.
struct Both {
    ours: BTreeMap<&'static str, u64>,
    theirs: Counts,
}

impl Compared {
    /// By how many percent they differ.
    pub fn difference(&self) -> f64 {
        self.ours.abs_diff(self.theirs) as f64 / self.theirs.max(1) as f64 * 100.0
    }
}

impl Comparison {
    /// Begins it. An agent that records every call is attached to all of them by now.
    pub async fn begin(
        namespace: &str,
        target: &Target,
        code: &Code,
        agent: &Component,
        operations: &[&'static str],
    ) -> Result<Self> {
        let mut bpftrace = Bpftrace::count(target.process, code, operations).await?;
        let before = Both::now(target.process, agent, namespace, operations, &mut bpftrace).await?;
        Ok(Self {
            bpftrace,
            process: target.process,
            agent: agent.clone(),
            namespace: namespace.to_string(),
            operations: operations.to_vec(),
            before,
        })
    }

    /// Ends it: what both have counted since it began. Prints where they differ.
    pub async fn end(mut self) -> Result<Vec<Compared>> {
        let (process, agent) = (self.process, &self.agent);
        let after = Both::now(
            process,
            agent,
            &self.namespace,
            &self.operations,
            &mut self.bpftrace,
        )
        .await?;
        self.bpftrace.stop().await?;
        let compared = self.operations.into_iter().map(|operation| {
            let one = Compared {
                operation,
                ours: after.ours(operation) - self.before.ours(operation),
                theirs: after.theirs(operation) - self.before.theirs(operation),
            };
            if one.ours != one.theirs {
                crate::note!(
                    "{operation}: {} counted, {} by bpftrace",
                    one.ours,
                    one.theirs
                );
            }
            one
        });
        Ok(compared.collect())
    }
}

impl Both {
    /// Takes both counts while the process is stopped.
    async fn now(
        process: Process,
        agent: &Component,
        namespace: &str,
        operations: &[&'static str],
        bpftrace: &mut Bpftrace,
    ) -> Result<Self> {
        let _stopped = process.stop().await?;
        let theirs = bpftrace.counts().await?;
        let metrics = agent.scrape().await?.operations(namespace, PROBE);
        let ours = operations.iter().map(|operation| {
            let of_it = metrics.iter().filter(|one| one.name == *operation);
            let calls: f64 = of_it.map(|one| one.calls).sum();
            (*operation, calls as u64)
        });
        Ok(Self {
            ours: ours.collect(),
            theirs,
        })
    }

    fn ours(&self, operation: &str) -> u64 {
        self.ours.get(operation).copied().unwrap_or_default()
    }

    fn theirs(&self, operation: &str) -> u64 {
        let functions = operations::functions_of(&[operation]).into_iter();
        let counts = functions.filter_map(|function| self.theirs.get(function));
        counts.sum()
    }
}
