use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Mutex};

use ckb_probe_crds::Check;
use futures::channel::mpsc;
use http_body_util::BodyExt;
use hyper::{Request, Response, StatusCode};
use kube::{
    Client,
    client::Body,
    runtime::watcher::{self, Event},
};
use serde_json::{Value, json};

use super::*;
use crate::{
    template::AgentTemplate,
    testing::{self, has_agent, node, pod, runs},
    world::{AgentPod, Phase, ProbeRow, Raw, RawAgent, TargetPod},
};

/// A request, as `METHOD path`.
type Answer = dyn Fn(&str) -> Option<u16> + Send + Sync;

/// Takes every request, does what is asked, and refuses those that `refuse` gives a code for.
#[derive(Clone)]
struct FakeApi {
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    refuse: Arc<Answer>,
    /// What is written is told to the watches.
    news: Arc<Mutex<Option<News>>>,
}

type News = mpsc::UnboundedSender<Result<Change, WatchError>>;

impl FakeApi {
    fn new(refuse: impl Fn(&str) -> Option<u16> + Send + Sync + 'static) -> Self {
        Self {
            requests: Arc::default(),
            refuse: Arc::new(refuse),
            news: Arc::default(),
        }
    }

    fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { Ok::<_, std::io::Error>(api.answer(request).await) }
        });
        Client::new(service, "system")
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let mut object: Value = serde_json::from_slice(&body).unwrap_or_default();
        let line = format!("{} {}", parts.method, parts.uri.path());
        self.requests
            .lock()
            .unwrap()
            .push((line.clone(), object.clone()));
        let (code, answer) = match (self.refuse)(&line) {
            Some(code) => {
                let failure =
                    json!({ "status": "Failure", "code": code, "reason": "", "message": "no" });
                (code, failure)
            }
            None if parts.method == hyper::Method::DELETE => {
                let name = parts.uri.path().rsplit('/').next().unwrap();
                let uid = object["preconditions"]["uid"].as_str().unwrap();
                if line.contains("/pods/") {
                    self.tell(Change::Agent(Event::Delete(AgentPod {
                        name: name.into(),
                        uid: uid.into(),
                        ..AgentPod::default()
                    })));
                }
                let done = json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" });
                (200, done)
            }
            None => {
                let name = parts.uri.path().rsplit('/').next().unwrap_or_default();
                if parts.method == hyper::Method::GET {
                    object = json!({ "metadata": { "name": name } });
                }
                if object["metadata"]["uid"].is_null() {
                    object["metadata"]["uid"] = format!("uid-{name}").into();
                }
                if line.contains("/nodeprobes/") {
                    let row: Raw = serde_json::from_value(object.clone()).unwrap();
                    self.tell(Change::NodeProbe(Event::Apply(row.into())));
                }
                if line == PODS {
                    object["metadata"]["uid"] = format!("uid-{}", self.count(PODS)).into();
                    let row: RawAgent = serde_json::from_value(object.clone()).unwrap();
                    self.tell(Change::Agent(Event::Apply(row.into())));
                }
                if line.contains("/ckbprobes/") {
                    object["spec"] = serde_json::to_value(testing::spec(json!({}))).unwrap();
                    object["metadata"]["namespace"] = "a".into();
                    object["metadata"]["generation"] = 3.into();
                }
                (200, object)
            }
        };
        let mut response = Response::new(Body::from(serde_json::to_vec(&answer).unwrap()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap();
        response
    }

    fn tell(&self, change: Change) {
        if let Some(news) = &*self.news.lock().unwrap() {
            news.unbounded_send(Ok(change)).unwrap();
        }
    }

    /// How often each request was made.
    fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (line, _) in self.requests.lock().unwrap().iter() {
            *counts.entry(line.clone()).or_default() += 1;
        }
        counts
    }

    fn count(&self, line: &str) -> usize {
        self.counts().get(line).copied().unwrap_or_default()
    }
}

const TEMPLATE: &str =
    "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers: [{name: agent}]}}";

/// A controller on a fake API, fed by hand.
struct Rig {
    api: FakeApi,
    news: News,
    leadership: watch::Sender<Leadership>,
    metrics: Metrics,
    ready: Arc<AtomicBool>,
    hash: String,
}

impl Rig {
    /// Runs `script` beside the controller.
    fn run(api: FakeApi, script: impl AsyncFnOnce(Rig)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let template = AgentTemplate::parse(TEMPLATE).unwrap();
            let hash = template.hash().to_owned();
            let executor = Executor::new(
                api.client(),
                "system".into(),
                "me".into(),
                template,
                Some("operator".into()),
            );
            let (leadership, receiver) = watch::channel(Leadership::default());
            let (news, changes) = mpsc::unbounded();
            let metrics = Metrics::new().unwrap();
            let ready = Arc::<AtomicBool>::default();
            let controller = Controller::new(executor, receiver, metrics.clone(), ready.clone());
            let rig = Rig {
                api,
                news,
                leadership,
                metrics,
                ready,
                hash,
            };
            let done = Rc::new(RefCell::new(false));
            tokio::select! {
                () = controller.run(changes) => {}
                () = script(rig) => *done.borrow_mut() = true,
            }
            assert!(*done.borrow(), "the controller ended first");
        });
    }

    fn lead(&self) {
        let until = Some(Instant::now() + Duration::from_secs(3600));
        self.leadership
            .send_modify(|leadership| leadership.until = until);
    }

    fn tell(&self, change: Change) {
        self.news.unbounded_send(Ok(change)).unwrap();
    }

    /// From now on the watches tell what is written, as they do.
    fn echoing(&self) {
        *self.api.news.lock().unwrap() = Some(self.news.clone());
    }

    fn synced(&self) {
        self.tell(Change::Probe(Event::InitDone));
        self.tell(Change::Pod(Event::InitDone));
        self.tell(Change::Node(Event::InitDone));
        self.tell(Change::NodeProbe(Event::InitDone));
        self.tell(Change::Agent(Event::InitDone));
    }

    fn target(&self, probe: &ProbeRow, pod: &TargetPod) {
        self.tell(node(pod.node.as_deref().unwrap()));
        self.tell(runs(pod));
        self.tell(testing::has(probe));
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn probe(name: &str) -> ProbeRow {
    testing::probe("a", name, json!({}))
}

const ORDER: &str = "PATCH /apis/ckbprobe.dev/v1alpha1/namespaces/system/nodeprobes/n";
const OWNER: &str = "GET /apis/apps/v1/namespaces/system/deployments/operator";
const PODS: &str = "POST /api/v1/namespaces/system/pods";

fn status_of(probe: &str) -> String {
    format!("PATCH /apis/ckbprobe.dev/v1alpha1/namespaces/a/ckbprobes/{probe}/status")
}

#[test]
fn a_target_leads_to_an_order_an_agent_and_a_status_once_each() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.echoing();
        rig.lead();
        rig.synced();
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
fn without_the_deployment_that_is_to_own_them_there_are_no_orders() {
    let uninstalled = |line: &str| (line == OWNER).then_some(404);
    Rig::run(FakeApi::new(uninstalled), async |rig| {
        rig.lead();
        rig.synced();
        rig.target(&probe("p"), &pod("a", "ckb-0", Some("n")));
        seconds(5).await;
        assert!(rig.api.count(OWNER) >= 1);
        assert_eq!(rig.api.count(ORDER), 0);
        assert_eq!(rig.api.count(PODS), 0);
        let metrics = rig.metrics.render().unwrap();
        assert!(metrics.contains(r#"reason="ReadOwner""#), "{metrics}");
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
        assert!(
            rig.metrics
                .render()
                .unwrap()
                .contains("ckb_probe_operator_leader 0")
        );
    });
}

#[test]
fn one_broken_probe_or_node_stalls_no_other() {
    let broken = |line: &str| {
        let broken = line.contains("/ckbprobes/broken/") || line.ends_with("/nodeprobes/m");
        broken.then_some(500)
    };
    Rig::run(FakeApi::new(broken), async |rig| {
        rig.echoing();
        rig.lead();
        rig.synced();
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
        let metrics = rig.metrics.render().unwrap();
        assert!(metrics.contains(&format!(
            "ckb_probe_reconcile_errors_total{{reason=\"WriteStatus\"}} {tries}"
        )));
    });
}

#[test]
fn a_probe_that_is_gone_is_no_error() {
    let gone = |line: &str| line.contains("/ckbprobes/").then_some(404);
    Rig::run(FakeApi::new(gone), async |rig| {
        rig.lead();
        rig.synced();
        rig.tell(testing::has(&probe("p")));
        seconds(60).await;
        assert_eq!(rig.api.count(&status_of("p")), 1);
        assert!(!rig.metrics.render().unwrap().contains("WriteStatus"));
    });
}

#[test]
fn an_agent_that_ends_again_and_again_is_replaced_ever_less_often() {
    Rig::run(FakeApi::new(|_| None), async |rig| {
        rig.echoing();
        rig.lead();
        rig.synced();
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
        rig.lead();
        rig.synced();
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
        rig.lead();
        rig.synced();
        let error = WatchError {
            kind: "pods",
            source: watcher::Error::NoResourceVersion,
        };
        rig.news.unbounded_send(Err(error)).unwrap();
        seconds(1).await;
        let metrics = rig.metrics.render().unwrap();
        assert!(metrics.contains("ckb_probe_reconcile_errors_total{reason=\"Watch\"} 1"));
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
        rig.lead();
        rig.synced();
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
        let metrics = rig.metrics.render().unwrap();
        assert!(!metrics.contains("WriteEvent"), "{metrics}");
    });
}

#[test]
fn what_cannot_be_told_is_tried_again() {
    let refused = |line: &str| (line == EVENTS).then_some(403);
    Rig::run(FakeApi::new(refused), async |rig| {
        rig.lead();
        rig.synced();
        rig.tell(unfit(1));
        seconds(600).await;
        let tries = events(&rig.api).len();
        assert!((12..40).contains(&tries), "{tries} tries in ten minutes");
        let metrics = rig.metrics.render().unwrap();
        assert!(metrics.contains(r#"reason="WriteEvent""#), "{metrics}");
    });
}
