use ckb_probe_crds::{Check, InstanceState};
use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::SignedDuration};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};

use super::{timing::SLOWEST, *};
use crate::{
    testing::{self, has_agent, pod, runs},
    world::{AgentPod, CkbProbeEntry, Phase},
};

mod publishing;
mod rig;

use rig::{AHEAD, FakeApi, ORDER, OWNER, PODS, Rig};

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn probe(name: &str) -> CkbProbeEntry {
    testing::probe("a", name, json!({}))
}

fn status_of(probe: &str) -> String {
    format!("PATCH /apis/ckbprobe.dev/v1alpha1/namespaces/a/ckbprobes/{probe}/status")
}

#[test]
fn a_target_leads_to_an_order_an_agent_and_a_status_once_each() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.begin();
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        seconds(5).await;
        assert_eq!(rig.api.count(ORDER), 1);
        assert_eq!(rig.api.count(PODS), 1);
        let statuses = rig.api.count(&status_of("p"));
        assert!((1..=2).contains(&statuses), "{:?}", rig.api.counts());
        let requests = rig.api.requests.lock().unwrap();
        let (_, agent) = requests.iter().find(|(line, _)| line == PODS).unwrap();
        assert_eq!(agent["metadata"]["ownerReferences"][0]["uid"], "uid-n");
        let (_, order) = requests.iter().find(|(line, _)| line == ORDER).unwrap();
        assert_eq!(
            order["metadata"]["ownerReferences"],
            json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "operator", "uid": "uid-operator" }])
        );
    });
}

#[test]
fn agents_are_not_blamed_for_the_time_in_which_the_operator_was_stopped() {
    for seconds_away in [0, 100] {
        Rig::run(FakeApi::new(|_| None), async |rig| {
            let (probe, pod) = (probe("p"), pod("a", "ckb-0", Some("n")));
            rig.begin();
            rig.target(&probe, &pod);
            seconds(3).await;
            let now = Timestamp::now();
            let mut agent = testing::agent("n");
            agent.running_since = Some(now);
            agent.template_hash = Some(rig.hash.clone());
            rig.tell(has_agent(agent));
            let mut report = testing::node_probe("n", 0, vec![testing::firing(&probe, &pod)]);
            report.spec = rig.api.ordered();
            report.status.as_mut().unwrap().reported_at = Some(MicroTime(now));
            rig.tell(testing::reports(report));
            seconds(3).await;
            let before = rig.api.count(&status_of("p"));
            assert!(before >= 1);
            AHEAD.with(|ahead| ahead.set(seconds_away));
            seconds(40).await;
            assert_eq!(rig.api.count(&status_of("p")), before);
        });
    }
}

#[test]
fn figures_are_told_once_in_an_interval_and_how_things_stand_at_once() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        let (probe, pod) = (probe("p"), pod("a", "ckb-0", Some("n")));
        rig.begin();
        rig.target(&probe, &pod);
        let mut agent = testing::agent("n");
        agent.template_hash = Some(rig.hash.clone());
        rig.tell(has_agent(agent));
        seconds(3).await;
        let report = |calls: u64, state: InstanceState| {
            let mut instance = testing::firing(&probe, &pod);
            instance.state = state;
            instance.probes[0].rows = vec![testing::row("Get", calls, "119:60,40")];
            let mut report = testing::node_probe("n", 0, vec![instance]);
            report.spec = rig.api.ordered();
            let now = Timestamp::now() + SignedDuration::from_micros(calls as i64);
            report.status.as_mut().unwrap().reported_at = Some(MicroTime(now));
            rig.tell(testing::reports(report));
        };
        let statuses = || rig.api.count(&status_of("p"));
        report(100, InstanceState::Attached);
        seconds(30).await;
        let before = statuses();
        // Ten seconds are an interval.
        for calls in 101..161 {
            report(calls, InstanceState::Attached);
            seconds(1).await;
        }
        let told = statuses() - before;
        assert!((6..=7).contains(&told), "{told}");
        // Of what was told last nothing is missing in the end.
        seconds(10).await;
        let count = |status: &Value| status["probes"][0]["rows"][0]["figures"]["count"].clone();
        let requests = rig.api.requests.lock().unwrap().clone();
        let (_, last) = requests
            .iter()
            .rfind(|(line, _)| *line == status_of("p"))
            .unwrap();
        assert_eq!(count(&last["status"]), "1600");

        let before = statuses();
        report(161, InstanceState::Attached);
        report(162, InstanceState::Waiting);
        seconds(2).await;
        assert!(statuses() > before);
    });
}

#[test]
fn an_agent_that_is_there_before_the_watch_has_told_of_it_is_no_fault() {
    let there = |line: &str| (line == PODS).then_some(409);
    Rig::run(FakeApi::new(there), async |rig| {
        rig.begin();
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        seconds(5).await;
        assert!(rig.api.count(PODS) >= 1);
        assert_eq!(failures(&rig), "");
    });
}

#[test]
fn a_pod_that_is_no_agent_of_the_node_and_has_its_name_is_a_fault() {
    let there = |line: &str| (line == PODS).then_some(409);
    Rig::run(FakeApi::new(there), async |rig| {
        rig.begin();
        // The pod that is there belongs to n.
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("m")));
        seconds(5).await;
        assert_ne!(failures(&rig), "");
    });
}

#[test]
fn a_conflict_is_a_fault_only_when_it_lasts() {
    for (conflicts, lasts) in [(3, false), (usize::MAX, true)] {
        let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let conflict = move |line: &str| {
            let another = line == ORDER && tries.fetch_add(1, Ordering::Relaxed) < conflicts;
            another.then_some(409)
        };
        Rig::run(FakeApi::new(conflict), async |rig| {
            rig.begin();
            rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
            seconds(120).await;
            assert_eq!(!failures(&rig).is_empty(), lasts);
            assert_eq!(rig.api.count(PODS), usize::from(!lasts));
        });
    }
}

#[test]
fn statuses_are_made_less_often_where_that_takes_more_than_its_share() {
    let ms = Duration::from_millis;
    assert_eq!(pace(ms(2), 1), ms(20));
    assert_eq!(pace(ms(2), 100), ms(2000));
    assert_eq!(pace(ms(200), 10_000), SLOWEST);
    assert_eq!(pace(Duration::ZERO, u32::MAX), Duration::ZERO);
}

/// What the metrics say has failed.
fn failures(rig: &Rig) -> String {
    let metrics = rig.page();
    let failed = metrics
        .lines()
        .filter(|line| line.starts_with("ckb_probe_reconcile_errors_total"));
    failed.collect()
}

#[test]
fn without_the_deployment_that_is_to_own_them_there_are_no_orders() {
    let uninstalled = |line: &str| (line == OWNER).then_some(404);
    Rig::run(FakeApi::new(uninstalled), async |rig| {
        rig.begin_unheard();
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        seconds(5).await;
        assert!(rig.api.count(OWNER) >= 1);
        assert_eq!(rig.api.count(ORDER), 0);
        assert_eq!(rig.api.count(PODS), 0);
        rig.says(r#"reason="ReadOwner""#);
    });
}

#[test]
fn nothing_is_written_before_the_caches_are_complete_or_without_the_lease() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        rig.lead();
        seconds(5).await;
        assert_eq!(rig.api.counts().len(), 0);
        assert!(!rig.ready.load(Ordering::Relaxed));
        rig.leadership
            .send_modify(|leadership| leadership.until = None);
        rig.synced();
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        seconds(5).await;
        assert_eq!(rig.api.counts().len(), 0);
        assert!(rig.ready.load(Ordering::Relaxed), "a standby is ready");
        rig.echoing();
        rig.lead();
        seconds(5).await;
        assert_eq!(rig.api.count(ORDER), 1);
    });
}

#[test]
fn a_lost_lease_stops_the_writing_by_itself() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.synced();
        let until = Some(Instant::now() + Duration::from_secs(10));
        rig.leadership
            .send_modify(|leadership| leadership.until = until);
        seconds(11).await;
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        seconds(5).await;
        assert_eq!(rig.api.counts().len(), 0);
        rig.says("ckb_probe_operator_leader 0");
    });
}

#[test]
fn one_broken_probe_or_node_stalls_no_other() {
    let broken = |line: &str| {
        let broken = line.contains("/ckbprobes/broken/") || line.ends_with("/nodeprobes/m");
        broken.then_some(500)
    };
    Rig::run(FakeApi::new(broken), async |rig| {
        rig.begin();
        rig.tell(testing::has(&probe("broken")));
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("m")));
        rig.target(&probe("p"), &pod("a", "ckb-1", Some("n")));
        seconds(1).await;
        assert_eq!(rig.api.count(ORDER), 1);
        assert!(rig.api.count(&status_of("p")) >= 1);
        seconds(600).await;
        let tries = rig.api.count(&status_of("broken"));
        assert!((12..40).contains(&tries), "{tries} tries in ten minutes");
        assert_eq!(rig.api.count(ORDER), 1);
        rig.says(&format!(
            "ckb_probe_reconcile_errors_total{{reason=\"WriteStatus\"}} {tries}"
        ));
    });
}

#[test]
fn a_probe_that_is_gone_is_no_error() {
    let gone = |line: &str| line.contains("/ckbprobes/").then_some(404);
    Rig::run(FakeApi::new(gone), async |rig| {
        rig.begin_unheard();
        rig.tell(testing::has(&probe("p")));
        seconds(60).await;
        assert_eq!(rig.api.count(&status_of("p")), 1);
        assert!(!rig.page().contains("WriteStatus"));
    });
}

#[test]
fn an_agent_that_ends_again_and_again_is_replaced_ever_less_often() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.begin();
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        let mut evicted = 0;
        for _ in 0..600 {
            seconds(1).await;
            let made = rig.api.count(PODS);
            if made > evicted {
                rig.tell(has_agent(AgentPod {
                    uid: format!("uid-{made}"),
                    phase: Phase::Finished,
                    template_hash: Some(rig.hash.clone()),
                    ..testing::agent("n")
                }));
                evicted = made;
            }
        }
        let made = rig.api.count(PODS);
        assert!((5..60).contains(&made), "{made} agents in ten minutes");
    });
}

#[test]
fn an_api_whose_watches_do_not_tell_what_is_written_is_not_flooded() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.begin_unheard();
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        for n in 0..600 {
            // News of something else are no reason to write again.
            rig.tell(runs(&pod("a", &format!("pending-{n}"), None)));
            seconds(1).await;
        }
        let writes = rig.api.count(ORDER);
        assert!((12..40).contains(&writes), "{writes} writes in ten minutes");
    });
}

#[test]
fn a_watch_that_fails_is_counted() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.begin_unheard();
        let error = WatchError {
            kind: "pods",
            source: watcher::Error::NoResourceVersion,
        };
        rig.news.unbounded_send(Err(error)).unwrap();
        seconds(1).await;
        rig.says("ckb_probe_reconcile_errors_total{reason=\"Watch\"} 1");
    });
}

const EVENTS: &str = "POST /apis/events.k8s.io/v1/namespaces/system/events";

/// The NodeProbe of the node `n`, whose agent lacks a capability.
fn unfit(age: i64) -> Change {
    let mut row = testing::node_probe("n", age, vec![]);
    row.status.as_mut().unwrap().agent.preflight = vec![Check {
        name: "Capabilities".into(),
        passed: false,
        detail: "BPF is missing".into(),
    }];
    testing::reports(row)
}

fn events(api: &FakeApi) -> Vec<Value> {
    let requests = api.requests.lock().unwrap();
    let events = requests.iter().filter(|(line, _)| line == EVENTS);
    events.map(|(_, event)| event.clone()).collect()
}

#[test]
fn what_an_agent_finds_in_its_way_is_told_once_however_often_it_reports() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.begin_unheard();
        for age in [9, 6, 3] {
            rig.tell(unfit(age));
            seconds(3).await;
        }
        let [event] = &events(&rig.api)[..] else {
            panic!("{:?}", events(&rig.api));
        };
        assert_eq!(event["reason"], "PreflightFailed");
        assert_eq!(event["type"], "Warning");
        assert_eq!(event["note"], "Capabilities: BPF is missing");
        assert_eq!(event["regarding"]["kind"], "NodeProbe");
        assert_eq!(event["regarding"]["name"], "n");
        assert_eq!(event["regarding"]["uid"], "uid-n");
        assert_eq!(event["metadata"]["namespace"], "system");
    });
}

#[test]
fn what_another_replica_has_told_is_told_again_in_the_same_words_and_is_no_error() {
    let told = |line: &str| (line == EVENTS).then_some(409);
    Rig::run(FakeApi::new(told), async |rig| {
        rig.synced();
        rig.tell(unfit(1));
        for _ in 0..2 {
            rig.lead();
            seconds(3).await;
            rig.leadership
                .send_modify(|leadership| leadership.until = None);
            seconds(3).await;
        }
        let events = events(&rig.api);
        assert_eq!(events.len(), 2, "once for each time it leads");
        assert_eq!(events[0]["metadata"]["name"], events[1]["metadata"]["name"]);
        let metrics = rig.page();
        assert!(!metrics.contains("WriteEvent"), "{metrics}");
    });
}

#[test]
fn what_cannot_be_told_is_tried_again() {
    let refused = |line: &str| (line == EVENTS).then_some(403);
    Rig::run(FakeApi::new(refused), async |rig| {
        rig.begin_unheard();
        rig.tell(unfit(1));
        seconds(600).await;
        let tries = events(&rig.api).len();
        assert!((12..40).contains(&tries), "{tries} tries in ten minutes");
        rig.says(r#"reason="WriteEvent""#);
    });
}
