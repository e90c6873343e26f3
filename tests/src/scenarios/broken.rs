//! What is wrong is said, once, in words to act on, and disturbs nobody else.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::prelude::*;
use crate::workload::fixture_target;

/// Until a person can read what is wrong.
const TOLD: Duration = Duration::from_secs(20);

/// Calls now and then, for longer than the scenario lasts.
const CALLS: &[&str] = &["--rate", "20", "rocksdb_get_pinned_cf 20000 constant:1000"];

/// What is wrong, and what must be said of it.
struct Case {
    /// The CkbProbe's name, and what is wrong.
    name: &'static str,
    /// Whose pods it selects.
    app: &'static str,
    executable: &'static str,
    /// Whether the CkbProbe takes what the kernel must single-step.
    include_single_stepped: bool,
    /// The condition Ready.
    ready: (&'static str, Reason),
    /// The reason of the condition Degraded, which must be true, and of an Event.
    degraded: Option<Reason>,
    /// What its message must contain.
    words: &'static [&'static str],
}

const HEALTHY: Case = Case {
    name: "healthy",
    app: "healthy",
    executable: "ground-truth",
    include_single_stepped: true,
    ready: ("True", Reason::Firing),
    degraded: None,
    words: &[],
};

const CASES: &[Case] = &[
    Case {
        name: "no-pod",
        app: "nobody",
        ready: ("False", Reason::NoMatchingPods),
        degraded: Some(Reason::NoMatchingPods),
        words: &["app=nobody"],
        ..HEALTHY
    },
    Case {
        name: "no-executable",
        executable: "nosuch",
        ready: ("False", Reason::ExecutableNotFound),
        degraded: Some(Reason::ExecutableNotFound),
        words: &["nosuch", "healthy"],
        ..HEALTHY
    },
    Case {
        name: "stripped",
        app: "stripped",
        executable: "ground-truth-stripped",
        ready: ("False", Reason::SymbolNotFound),
        degraded: Some(Reason::SymbolNotFound),
        words: &["stripped", "rocksdb_get_pinned_cf"],
        ..HEALTHY
    },
    Case {
        name: "partial",
        app: "partial",
        executable: "ground-truth-partial",
        degraded: Some(Reason::SymbolNotFound),
        words: &["MultiGet", "rocksdb_multi_get_cf"],
        ..HEALTHY
    },
    Case {
        name: "single-stepped",
        include_single_stepped: false,
        degraded: Some(Reason::SingleStepped),
        words: &[
            "rocksdb_iter_next",
            "rocksdb_iter_seek",
            "includeSingleStepped",
        ],
        ..HEALTHY
    },
    HEALTHY,
];

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    for (app, variant) in [
        ("healthy", "ground-truth"),
        ("stripped", "ground-truth-stripped"),
        ("partial", "ground-truth-partial"),
    ] {
        let pod = FixturePod {
            variant,
            ..FixturePod::ground_truth(app, CALLS)
        };
        scene.begin(pod).await?;
    }
    let applied = Instant::now();
    for case in CASES {
        let target = fixture_target(case.app, case.executable);
        let operations = operations::names();
        let mut probe = probe(&scene.namespace, case.name, target, &operations, "2s");
        probe["spec"]["probes"][0]["rocksdb"]["includeSingleStepped"] =
            json!(case.include_single_stepped);
        scene.apply_probe(probe).await?;
    }
    for case in CASES {
        wait::until(case.name, TOLD * 3, async || case.check(scene).await).await?;
        let what = format!("until the conditions are right, {}", case.name);
        scene.seconds(&what, applied.elapsed(), TOLD);
    }
    // Every report is another occasion to say the same again.
    let reported = async || {
        let status = scene.now("healthy").await?;
        Result::Ok(status.last_report_time.map(|time| time.0))
    };
    let first = reported().await?;
    wait::until("three more reports", ATTACH, async || {
        let latest = reported().await?;
        let passed = latest.zip(first).map(|(latest, first)| latest - first);
        expect(
            passed.is_some_and(|passed| passed.get_seconds() >= 6),
            "a report of three intervals later",
            || format!("{latest:?} after {first:?}"),
        )
    })
    .await?;
    for case in CASES {
        let Some(reason) = case.degraded else {
            continue;
        };
        let events = scene.events(case.name, reason).await?;
        scene.equal(
            &format!("Events of reason {reason}, {}", case.name),
            events,
            1,
        );
    }

    silent_agent(scene).await?;
    for case in CASES {
        wait::until(case.name, TOLD * 3, async || case.check(scene).await).await?;
    }
    scene.equal("conditions that are right in the end", CASES.len(), 6);
    Ok(())
}

impl Case {
    /// Succeeds when the conditions are as they must be.
    async fn check(&self, scene: &Scene<'_>) -> Result<()> {
        let status = scene.now(self.name).await?;
        let find = |type_: &str| find(&status.conditions, type_);
        let ready = find(condition::READY)?;
        let (status, reason) = self.ready;
        expect(
            ready.status == status && ready.reason == reason.as_str(),
            format!("Ready {status}, {reason}, of {}", self.name),
            || format!("{ready:?}"),
        )?;
        let degraded = find(condition::DEGRADED)?;
        let Some(reason) = self.degraded else {
            return expect(
                degraded.status == "False",
                format!("Degraded False, of {}", self.name),
                || format!("{degraded:?}"),
            );
        };
        let worded = self
            .words
            .iter()
            .all(|word| degraded.message.contains(word));
        expect(
            degraded.status == "True" && degraded.reason == reason.as_str() && worded,
            format!(
                "Degraded True, {reason}, with the words {:?}, of {}",
                self.words, self.name
            ),
            || format!("{degraded:?}"),
        )
    }
}

/// An agent that hangs is told of, and forgotten when it goes on.
async fn silent_agent(scene: &mut Scene<'_>) -> Result<()> {
    let agent = scene.cluster.agent().await?;
    let stopped = agent.process.stop().await?;
    let began = Instant::now();
    let told = wait::until("AgentSilent", TOLD * 2, async || {
        let status = scene.now("healthy").await?;
        let ready = find(&status.conditions, condition::READY)?;
        expect(
            ready.status == "False" && ready.reason == Reason::AgentSilent.as_str(),
            "Ready False, AgentSilent",
            || format!("{ready:?}"),
        )
    })
    .await;
    let took = began.elapsed();
    drop(stopped);
    told?;
    scene.figure(
        "until an agent that hangs is told of, with intervals of 2 s",
        took.as_secs_f64(),
        "s",
        Bound::AtMost(TOLD.as_secs_f64()),
    );
    Ok(())
}

fn find<'a>(conditions: &'a [Condition], type_: &str) -> Result<&'a Condition> {
    let mut conditions = conditions.iter();
    conditions
        .find(|condition| condition.type_ == type_)
        .ok_or_else(|| Failure::missing(format!("a condition {type_}")))
}
