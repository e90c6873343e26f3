//! The scenarios, in the order in which they are run. Each is one function in one module.

use futures::future::LocalBoxFuture;

use crate::{failure::Result, scene::Scene, workload::Workload};

mod agent_kill;
mod broken;
mod column_families;
mod deletion;
mod doors;
mod dropped;
mod everything;
mod figures;
mod footprint;
mod ground_truth;
mod impostor;
mod kinds;
mod outage;
mod parts;
mod pod_security;
mod preflight;
mod profiles;
mod refusals;
mod restart;
mod same_question;
mod sampling;
mod secure_metrics;
mod sigterm;
mod slow_operations;
mod static_pod;
mod target_died;
mod two_pods;
mod unavailable;

/// A scenario.
pub struct Scenario {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// What it shows, in a sentence.
    pub about: &'static str,
    /// Whether it says something of a real CKB node that it does not say of a stand-in.
    on_ckb: bool,
    run: for<'a, 'b> fn(&'a mut Scene<'b>) -> LocalBoxFuture<'a, Result<()>>,
}

impl Scenario {
    /// Whether it is run with this workload.
    pub fn is_for(&self, workload: Workload) -> bool {
        self.on_ckb || workload == Workload::Rocksdb
    }

    /// Plays it.
    pub async fn run(&self, scene: &mut Scene<'_>) -> Result<()> {
        scene.set().await?;
        (self.run)(scene).await
    }
}

macro_rules! scenario {
    ($name:ident, $on_ckb:expr, $about:expr) => {
        Scenario {
            name: stringify!($name),
            about: $about,
            on_ckb: $on_ckb,
            run: |scene| Box::pin($name::run(scene)),
        }
    };
}

/// All of them.
pub const ALL: &[Scenario] = &[
    scenario!(
        refusals,
        false,
        "the API server says what is wrong with a CkbProbe"
    ),
    scenario!(
        figures,
        true,
        "from kubectl apply to the status and to Prometheus, held against bpftrace"
    ),
    scenario!(
        ground_truth,
        false,
        "counts to the last call and quantiles, held against a program that knows them"
    ),
    scenario!(
        sampling,
        true,
        "a busy target is measured within the default budget, and its rates are true"
    ),
    scenario!(
        column_families,
        true,
        "every call is put down to a column family, by the name of CKB's schema"
    ),
    scenario!(
        slow_operations,
        true,
        "the slowest calls in the status, all of them in the log, each lost one counted"
    ),
    scenario!(
        two_pods,
        false,
        "what was not selected is not counted, however alike it is"
    ),
    scenario!(
        same_question,
        false,
        "CkbProbes that ask the same are measured once, whoever of them comes or goes"
    ),
    scenario!(
        impostor,
        false,
        "a pod that is made to look like another's container is not measured for it"
    ),
    scenario!(
        static_pod,
        false,
        "a static pod is found, though the kubelet has another uid for it"
    ),
    scenario!(
        kinds,
        true,
        "what each kind tells of one target, held against what others see of it"
    ),
    scenario!(
        profiles,
        true,
        "stacks of a window become profiles that a user can read, a few of each mode, until the CkbProbe goes"
    ),
    scenario!(
        parts,
        false,
        "an agent writes parts of profiles of its own node only; the operator merges, keeps as many as asked, and tidies up"
    ),
    scenario!(
        everything,
        true,
        "the sample that asks every kind at once, under one budget: none takes another down"
    ),
    scenario!(
        deletion,
        true,
        "a deleted CkbProbe leaves no probe and no agent"
    ),
    scenario!(
        restart,
        true,
        "a target that is killed is attached again when it is back"
    ),
    scenario!(
        agent_kill,
        true,
        "a killed agent takes its probes with it, does not harm its target, and comes back"
    ),
    scenario!(
        sigterm,
        false,
        "an agent that is told to end takes its probes off and ends well"
    ),
    scenario!(
        broken,
        false,
        "what is wrong is said, once, in words to act on, and disturbs nobody else"
    ),
    scenario!(
        target_died,
        false,
        "a target that dies after each attach is left alone, until the spec changes"
    ),
    scenario!(
        preflight,
        false,
        "what an agent found on its node is told, and how it attaches there"
    ),
    scenario!(
        unavailable,
        false,
        "an agent pod that cannot start is told of, with the kubelet's reason"
    ),
    scenario!(
        pod_security,
        false,
        "each pod meets the strictest Pod Security level that it can; the examples of the chart are accepted"
    ),
    scenario!(
        doors,
        false,
        "a thousand connections from an ordinary pod keep nobody out, and cost little"
    ),
    scenario!(
        secure_metrics,
        false,
        "protected metrics are for those alone whom the API server lets read them"
    ),
    scenario!(
        dropped,
        false,
        "a connection to the API server that says nothing any more is given up, and pausing works"
    ),
    scenario!(footprint, true, "what agent and operator themselves use"),
    // Last: kubelet and the controllers take their time to find back to an API server.
    scenario!(
        outage,
        false,
        "without operator and API server nothing is lost but the time"
    ),
];
