//! The scenarios, in the order of the report. Each is one function in one module.

use futures::future::LocalBoxFuture;

use crate::{failure::Result, scene::Scene, workload::Workload};

mod agent_kill;
mod broken;
mod capture;
mod column_families;
mod cost;
mod dashboards;
mod deletion;
mod doors;
mod dropped;
mod everything;
mod exporters_admitted;
mod figures;
mod footprint;
mod ground_truth;
mod health;
mod impostor;
mod kinds;
mod kinds_admitted;
mod network_policy;
mod outage;
mod parts;
mod plugin;
mod pod_security;
mod postgresql;
mod preflight;
mod prelude;
mod profiles;
mod refusals;
mod release;
mod restart;
mod rights;
mod same_question;
mod sampling;
mod secure_metrics;
mod sigterm;
mod slow_operations;
mod static_pod;
mod target_died;
mod throttled;
mod tutorial;
mod two_pods;
mod unavailable;

/// A scenario.
pub struct Scenario {
    /// Its name on the command line and in the report.
    pub name: &'static str,
    /// The same where it is played with a real CKB node in a run that plays it, or others, with the stand-in too.
    pub name_on_ckb: &'static str,
    /// What it shows, in a sentence.
    pub about: &'static str,
    /// What it is played with.
    on: On,
    /// Who may play at the same time.
    beside: Beside,
    run: for<'a, 'b> fn(&'a mut Scene<'b>) -> LocalBoxFuture<'a, Result<()>>,
}

/// What a scenario is played with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum On {
    /// With the stand-in: a real CKB node would say the same.
    StandIn,
    /// With either: a real CKB node may say something else.
    Either,
    /// With both: the stand-in, whose calls are known, is held against more than a node can be.
    Both,
}

/// Who may play at the same time as a scenario.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    /// Whoever stays in namespaces of its own, too: it mostly waits, and counts what is its own, which is true of one target beside others.
    Others,
    /// No other scenario: it restarts or breaks what all share, or looks at the whole cluster. What else the machine does, when it has
    /// nothing better to do, is nothing to it.
    NoOther,
    /// Nobody at all: it measures what is the whole node's, or the agent's.
    Nobody,
}

/// Of those that are played at the same time, those that take longest, by far: half a minute and more.
const LONG: [&str; 9] = [
    "figures",
    "target_died",
    "profiles",
    "parts",
    "cost",
    "tutorial",
    "sampling",
    "kinds",
    "slow_operations",
];

/// Those that take longer than a gate has: `make nightly` plays them, and whoever names them.
const NIGHTLY: [&str; 1] = ["capture"];

impl Scenario {
    /// Whether it is played with one of these workloads: the stand-in leaves to a real node what either serves for.
    pub fn is_for(&self, workload: Workload, all: &[Workload]) -> bool {
        match workload {
            Workload::Ckb => self.on != On::StandIn,
            Workload::Rocksdb => !all.contains(&Workload::Ckb) || self.on != On::Either,
        }
    }

    /// How many may be played at the same time, this one among them, where `most` are at the most.
    pub fn at_once(&self, most: usize) -> usize {
        match self.beside {
            Beside::Others => most,
            Beside::NoOther | Beside::Nobody => 1,
        }
    }

    /// Whether the machine must do nothing but play scenarios meanwhile.
    pub fn is_undisturbed(&self) -> bool {
        self.beside == Beside::Nobody
    }

    /// Whether it is played only where it is named.
    pub fn is_nightly(&self) -> bool {
        NIGHTLY.contains(&self.name)
    }

    /// Whether it is better begun before others.
    pub fn is_long(&self) -> bool {
        LONG.contains(&self.name)
    }

    /// Plays it.
    pub async fn run(&self, scene: &mut Scene<'_>) -> Result<()> {
        scene.set().await?;
        (self.run)(scene).await
    }
}

macro_rules! scenarios {
    ($($name:ident: $on:ident, $beside:ident, $about:literal;)*) => {
        &[$(Scenario {
            name: stringify!($name),
            name_on_ckb: concat!(stringify!($name), "_on_ckb"),
            about: $about,
            on: On::$on,
            beside: Beside::$beside,
            run: |scene| Box::pin($name::run(scene)),
        }),*]
    };
}

/// Every scenario, in the order of the report.
pub const ALL: &[Scenario] = scenarios! {
    refusals: StandIn, Others, "the API server says what is wrong with a CkbProbe";
    kinds_admitted: StandIn, Others, "where namespaces do not trust each other, no kind is admitted that looks at the whole node";
    exporters_admitted: StandIn, Others, "a namespace names the exporters of traces that the installation says, and no others";
    figures: Either, Others, "from kubectl apply to the status and to Prometheus, held against bpftrace";
    dashboards: Either, NoOther, "every query of every rule and panel has an answer, by a Prometheus that scrapes the cluster";
    ground_truth: StandIn, Others, "counts to the last call and quantiles, held against a program that knows them";
    sampling: Both, Others, "a busy target is measured within the default budget, and its rates are true";
    column_families: Both, Others, "every call is put down to a column family, by the name of CKB's schema";
    slow_operations: Both, Others, "the slowest calls in the status, all of them in the log, each lost one counted";
    health: StandIn, Others, "what a real RocksDB suffers is in the status within one report interval, and goes as that is over";
    throttled: StandIn, Others, "a pod with a CPU limit is told to be throttled, the pod beside it is not, and what the node does not account for is unknown";
    two_pods: StandIn, Others, "what was not selected is not counted, however alike it is";
    same_question: StandIn, Others, "CkbProbes that ask the same are measured once, whoever of them comes or goes";
    impostor: StandIn, Others, "a pod that is made to look like another's container is not measured for it";
    static_pod: StandIn, Others, "a static pod is found, though the kubelet has another uid for it";
    kinds: Either, Others, "what each kind tells of one target, held against what others see of it";
    postgresql: StandIn, Others, "USDT probes of PostgreSQL in a pod: each statement of a process is counted, and each transaction of pgbench in what serves it";
    profiles: Either, Others, "stacks of a window become profiles that a user can read, a few of each mode, until the CkbProbe goes";
    parts: StandIn, Others, "an agent writes parts of profiles of its own node only; the operator merges, keeps as many as asked, and tidies up";
    plugin: StandIn, Others, "what kubectl ckbprobe tries is measured and leaves nothing, what it says is broken first is, and what it shows agrees";
    capture: StandIn, Others, "a profile that waits for an anomaly is taken once a fault is planted, shows the function that it is in, and never before";
    tutorial: StandIn, Others, "each command of docs/tutorial.md prints what is printed there";
    cost: StandIn, Others, "what a CkbProbe costs is found by turns, and nothing where it costs nothing; it is left as it was found";
    everything: Either, Nobody, "the sample that asks every kind at once, under one budget: none takes another down";
    deletion: Either, NoOther, "a deleted CkbProbe leaves no probe and no agent";
    restart: Either, Others, "a target that is killed is attached again when it is back";
    agent_kill: Either, NoOther, "a killed agent takes its probes with it, does not harm its target, and comes back";
    sigterm: StandIn, NoOther, "an agent that is told to end takes its probes off and ends well";
    broken: StandIn, NoOther, "what is wrong is said, once, in words to act on, and disturbs nobody else";
    target_died: StandIn, Others, "a target that dies after each attach is left alone, until the spec changes";
    preflight: StandIn, Others, "what an agent found on its node is told, and how it attaches there";
    unavailable: StandIn, NoOther, "an agent pod that cannot start is told of, with the kubelet's reason";
    pod_security: StandIn, Others, "each pod meets the strictest Pod Security level that it can; the examples of the chart are accepted";
    rights: StandIn, Others, "what the accounts of operator and agent may do, asked of the API server";
    release: StandIn, NoOther, "an upgrade and a rollback keep what is asked and count on; uninstalled, agents and probes go, CkbProbes stay";
    doors: StandIn, NoOther, "a thousand connections from an ordinary pod keep nobody out, and cost little";
    secure_metrics: StandIn, NoOther, "protected metrics are for those alone whom the API server lets read them";
    network_policy: StandIn, NoOther, "where NetworkPolicies are followed, scrapes and the kubelet get in, and requests to the API server out";
    dropped: StandIn, NoOther, "a connection to the API server that says nothing any more is given up, and pausing works";
    footprint: Either, Nobody, "what agent and operator themselves use";
    // Last: kubelet and the controllers take their time to find back to an API server.
    outage: StandIn, NoOther, "without operator and API server nothing is lost but the time";
};

#[cfg(test)]
mod tests {
    use super::*;

    fn names(workload: Workload, all: &[Workload]) -> Vec<&'static str> {
        let played = ALL.iter().filter(|one| one.is_for(workload, all));
        played.map(|one| one.name).collect()
    }

    #[test]
    fn those_that_are_begun_before_others_are_played_beside_others() {
        for name in LONG {
            let scenario = ALL.iter().find(|one| one.name == name);
            assert!(scenario.is_some_and(|one| one.at_once(8) > 1), "{name}");
        }
    }

    #[test]
    fn those_that_are_too_long_for_a_gate_are_in_the_nightly_script() {
        let script = crate::fixture::repository().join("scripts/nightly.sh");
        let script = std::fs::read_to_string(script).unwrap_or_default();
        for name in NIGHTLY {
            let scenario = ALL.iter().find(|one| one.name == name);
            assert!(scenario.is_some_and(Scenario::is_nightly), "{name}");
            assert!(script.contains(&format!("--only {name}")), "{name}");
        }
    }

    #[test]
    fn what_is_left_to_a_real_node_is_played_there() {
        let both = [Workload::Rocksdb, Workload::Ckb];
        let [stand_in, ckb] = both.map(|workload| names(workload, &both));
        for scenario in ALL {
            let times = [&stand_in, &ckb].map(|names| names.contains(&scenario.name));
            assert!(times != [false; 2], "{} is played nowhere", scenario.name);
            assert!(
                times != [true; 2] || scenario.on == On::Both,
                "{} is played twice",
                scenario.name
            );
        }
        let alone = names(Workload::Rocksdb, &[Workload::Rocksdb]);
        assert_eq!(alone.len(), ALL.len());
    }
}
