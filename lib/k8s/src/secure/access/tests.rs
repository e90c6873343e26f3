use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use http_body_util::BodyExt as _;
use hyper::{Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};

use super::{
    super::{Protection, Secure},
    *,
};

/// An API server that knows `prometheus`, who may read metrics, and `curious`, who may not; and how often it was asked.
fn client() -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        count.fetch_add(1, Ordering::Relaxed);
        answer(request)
    });
    (Client::new(service, "default"), asked)
}

fn access() -> (Access, Arc<AtomicUsize>) {
    let (client, asked) = client();
    (Access::new(client), asked)
}

async fn answer(request: Request<Body>) -> Result<Response<Body>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let mut review: Value = serde_json::from_slice(&body).unwrap();
    let spec = &review["spec"];
    let status = match &*path {
        "/apis/authentication.k8s.io/v1/tokenreviews" => match spec["token"].as_str().unwrap() {
            "broken" => return Err(std::io::Error::other("out of order")),
            name @ ("prometheus" | "curious") => json!({
                "authenticated": true,
                "user": { "username": name, "uid": "7", "groups": ["all"], "extra": { "a": ["b"] } },
            }),
            _ => json!({ "authenticated": false, "error": "no such token" }),
        },
        "/apis/authorization.k8s.io/v1/subjectaccessreviews" => {
            let attributes = json!({ "path": "/metrics", "verb": "get" });
            assert_eq!(spec["nonResourceAttributes"], attributes);
            assert_eq!(spec["groups"], json!(["all"]));
            assert_eq!(spec["uid"], "7");
            assert_eq!(spec["extra"], json!({ "a": ["b"] }));
            json!({ "allowed": spec["user"] == "prometheus" })
        }
        other => panic!("{other}"),
    };
    review["status"] = status;
    Ok(Response::new(Body::from(review.to_string().into_bytes())))
}

async fn status(access: &Access, token: Option<&str>) -> StatusCode {
    match access.admit(token).await {
        Ok(()) => StatusCode::OK,
        Err(refusal) => refusal.status(),
    }
}

#[tokio::test(start_paused = true)]
async fn only_who_may_read_metrics_is_let_in() {
    let (access, asked) = access();
    assert_eq!(status(&access, None).await, 401);
    assert_eq!(status(&access, Some("")).await, 401);
    assert_eq!(status(&access, Some(&"x".repeat(9000))).await, 401);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
    assert_eq!(status(&access, Some("prometheus")).await, 200);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    assert_eq!(status(&access, Some("stranger")).await, 401);
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert_eq!(status(&access, Some("curious")).await, 403);
    assert_eq!(asked.load(Ordering::Relaxed), 5);
    let refusal = access.admit(Some("curious")).await.unwrap_err().to_string();
    assert!(
        refusal.starts_with("forbidden: curious may not get the path /metrics"),
        "{refusal}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_door_is_secure_where_that_is_asked_for() {
    let protection = |secure| Protection {
        secure,
        certificate: None,
        server_name: "ckb-probe".to_owned(),
    };
    let open = Secure::new(&protection(false), client().0).unwrap();
    assert!(open.is_none());
    let secure = Secure::new(&protection(true), client().0).unwrap().unwrap();
    assert!(secure.admit(Some("prometheus")).await.is_ok());
    for token in [None, Some("stranger")] {
        let refused = secure.admit(token).await.unwrap_err();
        assert_eq!(refused.status(), 401);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_said_holds_for_a_while() {
    let (access, asked) = access();
    for _ in 0..10 {
        assert_eq!(status(&access, Some("prometheus")).await, 200);
        assert_eq!(status(&access, Some("stranger")).await, 401);
    }
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    tokio::time::advance(REFUSED).await;
    assert_eq!(status(&access, Some("stranger")).await, 401);
    assert_eq!(status(&access, Some("prometheus")).await, 200);
    assert_eq!(asked.load(Ordering::Relaxed), 4);
    tokio::time::advance(ADMITTED).await;
    assert_eq!(status(&access, Some("prometheus")).await, 200);
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}

/// Thirty-two who guess tokens, all at once: each has its answer in the end.
async fn guesses(access: &Arc<Access>) -> Vec<tokio::task::JoinHandle<StatusCode>> {
    let guess = |guess: u32| {
        let access = Arc::clone(access);
        tokio::spawn(async move { status(&access, Some(&guess.to_string())).await })
    };
    let guesses = (0..32).map(guess).collect();
    tokio::task::yield_now().await;
    guesses
}

/// An API server that does not answer says nothing of anybody, so nothing is remembered.
#[tokio::test(start_paused = true)]
async fn nobody_is_let_in_while_the_api_server_does_not_answer() {
    let (access, asked) = access();
    assert_eq!(status(&access, Some("broken")).await, 503);
    assert_eq!(status(&access, Some("broken")).await, 503);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn who_guesses_gets_few_guesses_and_is_in_nobodys_way() {
    let (access, asked) = access();
    let access = Arc::new(access);
    assert_eq!(status(&access, Some("prometheus")).await, 200);
    let guesses = guesses(&access).await;
    let begun = Instant::now();
    assert_eq!(status(&access, Some("prometheus")).await, 200);
    assert_eq!(begun.elapsed(), Duration::ZERO);
    // As many as there can be connections: one who was not known yet still gets an answer before a scrape times out.
    assert_eq!(status(&access, Some("curious")).await, 403);
    let waited = begun.elapsed();
    assert!(waited < Duration::from_secs(5), "{waited:?}");
    for guess in guesses {
        assert_eq!(guess.await.unwrap(), 401);
    }
    let eight_a_second = begun.elapsed().as_secs_f64() * 8.0;
    assert!(asked.load(Ordering::Relaxed) as f64 <= 2.0 + 2.0 + 2.0 + eight_a_second);
}

#[tokio::test(start_paused = true)]
async fn who_was_let_in_before_does_not_wait_behind_guesses_when_that_ends() {
    let (access, asked) = access();
    let access = Arc::new(access);
    assert_eq!(status(&access, Some("prometheus")).await, 200);
    tokio::time::sleep(ADMITTED).await;
    let guesses = guesses(&access).await;
    let begun = Instant::now();
    let before = asked.load(Ordering::Relaxed);
    assert_eq!(status(&access, Some("prometheus")).await, 200);
    assert!(
        asked.load(Ordering::Relaxed) >= before + 2,
        "it is asked about anew"
    );
    assert_eq!(begun.elapsed(), Duration::ZERO);
    for guess in guesses {
        assert_eq!(guess.await.unwrap(), 401);
    }
    // Who stayed away for long is a stranger again.
    let id = Id::of("prometheus");
    let (end, moment) = (begun + ADMITTED + NO_STRANGER, Duration::from_millis(1));
    assert!(access.known().was_admitted(&id, end - moment));
    assert!(!access.known().was_admitted(&id, end));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_does_not_say_is_not_asked_more_often_than_one_that_refuses() {
    let (access, asked) = access();
    let begun = Instant::now();
    let tries = (0..16).map(|_| status(&access, Some("broken")));
    assert_eq!(futures::future::join_all(tries).await, [503; 16]);
    assert_eq!(asked.load(Ordering::Relaxed), 16);
    assert!(begun.elapsed() >= PENALTY * 8, "{:?}", begun.elapsed());
}

#[test]
fn what_is_remembered_is_bounded() {
    let mut known = Known::default();
    let now = Instant::now();
    let id = |number: usize| Id::of(&number.to_string());
    known.note(id(0), TokenVerdict::Admitted, now);
    for number in 1..=10 * REMEMBERED {
        known.note(id(number), TokenVerdict::Unknown, now);
        assert!(known.refused.len() <= REMEMBERED);
    }
    assert_eq!(known.of(&id(0), now), Some(TokenVerdict::Admitted));
    assert_eq!(
        known.of(&id(10 * REMEMBERED), now),
        Some(TokenVerdict::Unknown)
    );
    assert_eq!(known.of(&id(0), now + ADMITTED), None);
    // One who may no more is in one book only.
    known.note(id(0), TokenVerdict::Forbidden("curious".to_owned()), now);
    assert_eq!(
        known.of(&id(0), now),
        Some(TokenVerdict::Forbidden("curious".to_owned()))
    );
    assert!(known.admitted.is_empty());
}

#[test]
fn what_would_be_the_first_to_end_is_forgotten_first() {
    let mut known = Known::default();
    let (now, id) = (Instant::now(), |number: usize| Id::of(&number.to_string()));
    let later = now + Duration::from_secs(1);
    known.note(id(0), TokenVerdict::Unknown, later);
    known.note(id(1), TokenVerdict::Unknown, now);
    for number in 2..REMEMBERED {
        known.note(id(number), TokenVerdict::Unknown, later);
    }
    let is_known = |known: &Known, number| known.of(&id(number), later).is_some();
    assert!((0..REMEMBERED).all(|number| is_known(&known, number)));
    known.note(id(REMEMBERED), TokenVerdict::Unknown, later);
    let forgotten: Vec<usize> = (0..=REMEMBERED)
        .filter(|number| !is_known(&known, *number))
        .collect();
    assert_eq!(forgotten, [1]);
    // What holds no more takes no place.
    known.note(id(0), TokenVerdict::Unknown, later + REFUSED);
    assert_eq!(known.refused.len(), 1);
}
