use std::time::Duration;

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

/// Two doors, where they are, and what is asked there.
async fn server() -> (SocketAddr, SocketAddr, EndpointRequests) {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server {
        metrics: listener::bind(anywhere).await.unwrap(),
        secure: None,
        health: listener::bind(anywhere).await.unwrap(),
    };
    let metrics = server.metrics.local_addr().unwrap();
    let health = server.health.local_addr().unwrap();
    let (serving, inquiries) = server.serve();
    tokio::spawn(serving);
    (metrics, health, inquiries)
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn each_door_has_its_pages() {
    let (metrics, health, mut inquiries) = server().await;
    tokio::spawn(async move {
        while let Some((question, answer)) = inquiries.recv().await {
            let text = match question {
                Endpoint::Healthy => Ok("alive\n".to_string()),
                Endpoint::Ready => Err("not yet\n".to_string()),
                Endpoint::Metrics => Ok("calls 1\n".to_string()),
            };
            answer.send(text).unwrap();
        }
    });
    for (door, path, status, text) in [
        (health, "/healthz", "200", "alive\n"),
        (health, "/readyz", "503", "not yet\n"),
        (metrics, "/metrics", "200", "calls 1\n"),
        (
            health,
            "/metrics",
            "404",
            "there are /healthz and /readyz here\n",
        ),
        (
            metrics,
            "/healthz",
            "404",
            "there is /metrics here, and /healthz at a door of its own\n",
        ),
    ] {
        let said = answer(ask(door, path).await).await;
        assert!(
            said.starts_with(&format!("HTTP/1.1 {status} ")),
            "{path}: {said}"
        );
        assert!(said.ends_with(&format!("\r\n\r\n{text}")), "{path}: {said}");
    }
}

/// However many want metrics, the engine is asked first whether it lives.
#[tokio::test]
async fn who_asks_for_health_does_not_wait_for_those_who_want_metrics() {
    let (metrics, health, mut inquiries) = server().await;
    let mut wanting = Vec::new();
    for _ in 0..8 {
        wanting.push(ask(metrics, "/metrics").await);
    }
    let first = inquiries.metrics.recv().await.unwrap();
    let _asking = ask(health, "/healthz").await;
    while inquiries.health.is_empty() || inquiries.metrics.is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(first);
    let (question, _) = inquiries.recv().await.unwrap();
    assert_eq!(question, Endpoint::Healthy);
    let (question, _) = inquiries.recv().await.unwrap();
    assert_eq!(question, Endpoint::Metrics);
}
