use std::sync::{Arc, Mutex};

use hyper::{Method, http::request::Parts};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing;

const DURATION: Duration = Duration::from_secs(15);

fn sighting(holder: Option<&str>, since: Instant) -> ObservedLease {
    ObservedLease {
        version: "7".into(),
        holder: holder.map(str::to_owned),
        duration: DURATION,
        transitions: 3,
        acquired: None,
        since,
    }
}

fn hold(transitions: i32, taken: bool) -> Decision {
    Decision::Hold {
        version: "7".into(),
        transitions,
        taken,
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_made_renewed_waited_for_or_taken() {
    let then = Instant::now();
    let expired = then + DURATION + Duration::from_millis(1);
    let decide = |holder, now| decide("me", Some(&sighting(holder, then)), now);
    assert_eq!(super::decide("me", None, then), Decision::Create);
    assert_eq!(decide(Some("me"), then), hold(3, false));
    assert_eq!(decide(Some("me"), expired), hold(3, false));
    assert_eq!(decide(Some("you"), then + DURATION), Decision::Wait);
    assert_eq!(decide(Some("you"), expired), hold(4, true));
    assert_eq!(decide(None, then), hold(4, true));
    assert_eq!(decide(Some(""), then), hold(4, true));
}

/// One Lease, as an API server keeps it, that can be made not to answer.
#[derive(Clone, Default)]
struct FakeApi(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    lease: Option<Value>,
    version: u64,
    away: bool,
    hangs: bool,
}

impl FakeApi {
    fn client(&self) -> Client {
        let api = self.clone();
        testing::client(move |parts, body| api.clone().answer(parts, body))
    }

    async fn answer(self, parts: Parts, body: Vec<u8>) -> std::io::Result<(u16, Value)> {
        if self.0.lock().unwrap().hangs {
            std::future::pending::<()>().await;
        }
        let mut state = self.0.lock().unwrap();
        if state.away {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        let known = state.lease.clone();
        Ok(match (parts.method, known) {
            (Method::GET, Some(lease)) => (200, lease),
            (Method::GET, None) => (404, failure(404)),
            (Method::POST, None) => (201, state.store(&body)),
            (Method::POST, Some(_)) => (409, failure(409)),
            (Method::PUT, Some(lease)) => {
                let sent: Value = serde_json::from_slice(&body).unwrap();
                let version = |lease: &Value| lease["metadata"]["resourceVersion"].clone();
                match version(&sent) == version(&lease) {
                    true => (200, state.store(&body)),
                    false => (409, failure(409)),
                }
            }
            (method, _) => panic!("{method}"),
        })
    }

    fn holder(&self) -> Option<String> {
        let state = self.0.lock().unwrap();
        let holder = &state.lease.as_ref()?["spec"]["holderIdentity"];
        holder.as_str().map(str::to_owned)
    }

    fn away(&self, away: bool) {
        self.0.lock().unwrap().away = away;
    }

    fn hangs(&self, hangs: bool) {
        self.0.lock().unwrap().hangs = hangs;
    }
}

impl State {
    fn store(&mut self, body: &[u8]) -> Value {
        let mut lease: Value = serde_json::from_slice(body).unwrap();
        self.version += 1;
        lease["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.lease = Some(lease.clone());
        lease
    }
}

fn failure(code: u16) -> Value {
    let reason = if code == 404 { "NotFound" } else { "Conflict" };
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "" })
}

struct Replica {
    leadership: watch::Receiver<Leadership>,
    task: tokio::task::JoinHandle<()>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Replica {
    fn start(api: &FakeApi, identity: &str) -> Self {
        let config = ElectionConfig {
            namespace: "system".into(),
            lease: "operator".into(),
            identity: identity.into(),
            duration: DURATION,
        };
        let (mut election, leadership) = Election::new(api.client(), config);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            tokio::select! {
                () = election.run() => {}
                _ = stopped => election.release().await.unwrap(),
            }
        });
        Self {
            leadership,
            task,
            stop: Some(stop),
        }
    }

    fn leads(&self) -> bool {
        self.leadership.borrow().leads(Instant::now())
    }

    /// As SIGTERM does.
    async fn release(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.task.await.unwrap();
    }

    /// As SIGKILL does.
    fn kill(self) {
        self.task.abort();
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Two replicas, of which the first leads.
async fn two() -> (FakeApi, Replica, Replica) {
    let api = FakeApi::default();
    let first = Replica::start(&api, "a");
    seconds(1).await;
    let second = Replica::start(&api, "b");
    seconds(1).await;
    (api, first, second)
}

#[tokio::test(start_paused = true)]
async fn of_two_replicas_one_leads_for_as_long_as_it_lives() {
    let (api, first, second) = two().await;
    for _ in 0..120 {
        seconds(1).await;
        assert!(first.leads() && !second.leads());
    }
    assert_eq!(api.holder().as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_stops_hands_over_at_once() {
    let (api, first, second) = two().await;
    first.release().await;
    assert_eq!(api.holder(), None);
    seconds(2).await;
    assert!(second.leads());
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_dies_is_replaced_after_the_leases_duration() {
    let (_api, first, second) = two().await;
    first.kill();
    seconds(10).await;
    assert!(!second.leads());
    seconds(9).await;
    assert!(second.leads());
}

#[tokio::test(start_paused = true)]
async fn a_standby_does_not_release_what_another_holds() {
    let (api, first, second) = two().await;
    second.release().await;
    assert_eq!(api.holder().as_deref(), Some("a"));
    assert!(first.leads());
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_the_leader_steps_down_in_time_and_comes_back() {
    for hangs in [false, true] {
        let api = FakeApi::default();
        let replica = Replica::start(&api, "a");
        seconds(4).await;
        assert!(replica.leads());
        let away = Instant::now();
        if hangs {
            api.hangs(true);
        } else {
            api.away(true);
        }
        seconds(10).await;
        assert!(!replica.leads(), "hangs: {hangs}");
        seconds(20).await;
        assert!(replica.leadership.borrow().unanswered > Some(away));
        api.away(false);
        api.hangs(false);
        seconds(7).await;
        assert!(replica.leads(), "hangs: {hangs}");
    }
}

proptest! {
    /// Replicas start, stop, die and lose the API server at any time: never do two lead at once.
    #[test]
    fn never_do_two_lead(events in prop::collection::vec((0..8_u8, 0..9_u64), 1..30)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async move {
            let api = FakeApi::default();
            let mut replicas: Vec<Replica> = vec![];
            for (serial, (event, pause)) in events.into_iter().enumerate() {
                match event {
                    0..=2 if replicas.len() < 3 => replicas.push(Replica::start(&api, &serial.to_string())),
                    3 if !replicas.is_empty() => replicas.remove(0).kill(),
                    4 => api.away(true),
                    5 => api.hangs(true),
                    _ => {
                        api.away(false);
                        api.hangs(false);
                    }
                }
                for _ in 0..pause * 10 {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    let leaders = replicas.iter().filter(|replica| replica.leads()).count();
                    assert!(leaders <= 1);
                }
            }
            // And once all is well, one does.
            api.away(false);
            api.hangs(false);
            seconds(40).await;
            let leaders = replicas.iter().filter(|replica| replica.leads()).count();
            assert_eq!(leaders, replicas.len().min(1));
        });
    }
}
