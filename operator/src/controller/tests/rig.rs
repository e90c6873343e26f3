//! A controller on a fake API, fed by hand.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Mutex};

use ckb_probe_crds::NodeProbeSpec;
use futures::channel::mpsc;
use hyper::http::request::Parts;
use k8s_openapi::jiff::SignedDuration;
use kube::{Client, runtime::watcher::Event};
use serde_json::{Value, json};

use super::super::*;
use crate::{
    execute::Events,
    template::AgentTemplate,
    testing::{self, node, runs},
    world::{AgentPod, CkbProbeEntry, Raw, RawAgent, TargetPod},
};

pub(super) const ORDER: &str = "PATCH /apis/ckbprobe.dev/v1alpha1/namespaces/system/nodeprobes/n";
pub(super) const OWNER: &str = "GET /apis/apps/v1/namespaces/system/deployments/operator";
pub(super) const PODS: &str = "POST /api/v1/namespaces/system/pods";

/// A request, as `METHOD path`.
pub(super) type Answer = dyn Fn(&str) -> Option<u16> + Send + Sync;

/// Takes every request, does what is asked, and refuses those that `refuse` gives a code for.
#[derive(Clone)]
pub(super) struct FakeApi {
    pub(super) requests: Arc<Mutex<Vec<(String, Value)>>>,
    pub(super) refuse: Arc<Answer>,
    /// What is written is told to the watches.
    pub(super) news: Arc<Mutex<Option<News>>>,
}

pub(super) type News = mpsc::UnboundedSender<Result<Change, WatchError>>;

impl FakeApi {
    pub(super) fn new(refuse: impl Fn(&str) -> Option<u16> + Send + Sync + 'static) -> Self {
        Self {
            requests: Arc::default(),
            refuse: Arc::new(refuse),
            news: Arc::default(),
        }
    }

    pub(super) fn client(&self) -> Client {
        let api = self.clone();
        testing::client(move |parts, body| {
            let answer = api.answer(&parts, &body);
            async { Ok(answer) }
        })
    }

    pub(super) fn answer(&self, parts: &Parts, body: &[u8]) -> (u16, Value) {
        let mut object: Value = serde_json::from_slice(body).unwrap_or_default();
        let line = format!("{} {}", parts.method, parts.uri.path());
        let mut requests = self.requests.lock().unwrap();
        requests.push((line.clone(), object.clone()));
        drop(requests);
        match (self.refuse)(&line) {
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
                    if line.contains("/pods/") {
                        object["metadata"]["ownerReferences"] = json!([{
                            "apiVersion": "ckbprobe.dev/v1alpha1", "kind": "NodeProbe",
                            "name": "n", "uid": "uid-n", "controller": true,
                        }]);
                    }
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
                    object["metadata"]["creationTimestamp"] = testing::at(-100).to_string().into();
                }
                (200, object)
            }
        }
    }

    pub(super) fn tell(&self, change: Change) {
        if let Some(news) = &*self.news.lock().unwrap() {
            news.unbounded_send(Ok(change)).unwrap();
        }
    }

    /// How often each request was made.
    pub(super) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for (line, _) in self.requests.lock().unwrap().iter() {
            *counts.entry(line.clone()).or_default() += 1;
        }
        counts
    }

    /// The order that was written last.
    pub(super) fn ordered(&self) -> Option<NodeProbeSpec> {
        let requests = self.requests.lock().unwrap();
        let mut orders = requests.iter().filter(|(line, _)| line == ORDER);
        let (_, order) = orders.next_back()?;
        Some(serde_json::from_value(order["spec"].clone()).unwrap())
    }

    pub(super) fn count(&self, line: &str) -> usize {
        self.counts().get(line).copied().unwrap_or_default()
    }
}

pub(super) const TEMPLATE: &str =
    "{apiVersion: v1, kind: Pod, metadata: {}, spec: {containers: [{name: agent}]}}";

thread_local! {
    /// By how many seconds the wall clock that the controller sees is ahead.
    pub(super) static AHEAD: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

/// A controller on a fake API, fed by hand.
pub(super) struct Rig {
    pub(super) api: FakeApi,
    pub(super) news: News,
    pub(super) leadership: watch::Sender<Leadership>,
    pub(super) metrics: Metrics,
    pub(super) ready: Arc<AtomicBool>,
    pub(super) hash: String,
}

impl Rig {
    /// Runs `script` beside the controller.
    pub(super) fn run(api: FakeApi, script: impl AsyncFnOnce(Rig)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let template = AgentTemplate::parse(TEMPLATE).unwrap();
            let hash = template.hash().to_owned();
            let metrics = Metrics::new().unwrap();
            let events = Events::new(api.client(), "system".into(), "me".into(), metrics.clone());
            let executor = Executor::new(
                api.client(),
                "system".into(),
                events.clone(),
                template,
                Some("operator".into()),
            );
            let (leadership, receiver) = watch::channel(Leadership::default());
            let (news, changes) = mpsc::unbounded();
            let publisher = Publisher::new(api.client(), "system", events, metrics.clone(), None);
            let ready = Arc::<AtomicBool>::default();
            let mut controller = Controller::new(
                executor,
                publisher,
                Limits::default(),
                receiver,
                metrics.clone(),
                ready.clone(),
            );
            controller.wall =
                || Timestamp::now() + SignedDuration::from_secs(AHEAD.with(std::cell::Cell::get));
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

    pub(super) fn lead(&self) {
        let until = Some(Instant::now() + Duration::from_secs(3600));
        self.leadership
            .send_modify(|leadership| leadership.until = until);
    }

    /// What the metrics say.
    pub(super) fn page(&self) -> String {
        self.metrics.render().unwrap()
    }

    /// The metrics say this.
    #[track_caller]
    pub(super) fn says(&self, metric: &str) {
        let page = self.page();
        assert!(page.contains(metric), "{page}");
    }

    pub(super) fn tell(&self, change: Change) {
        self.news.unbounded_send(Ok(change)).unwrap();
    }

    /// Leads, where the watches have told of all there is, and go on to tell what is written.
    pub(super) fn begin(&self) {
        self.echoing();
        self.begin_unheard();
    }

    /// Leads, where the watches have told of all there is, and tell nothing of what is written.
    pub(super) fn begin_unheard(&self) {
        self.lead();
        self.synced();
    }

    /// From now on the watches tell what is written, as they do.
    pub(super) fn echoing(&self) {
        *self.api.news.lock().unwrap() = Some(self.news.clone());
    }

    pub(super) fn synced(&self) {
        testing::synced()
            .into_iter()
            .for_each(|change| self.tell(change));
    }

    pub(super) fn target(&self, probe: &CkbProbeEntry, pod: &TargetPod) {
        self.tell(node(pod.node.as_deref().unwrap()));
        self.tell(runs(pod));
        self.tell(testing::has(probe));
    }
}
