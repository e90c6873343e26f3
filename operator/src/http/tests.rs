use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::*;

async fn get(address: std::net::SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_pages_say_how_it_is() {
    let pages = Pages {
        metrics: Metrics::new().unwrap(),
        ready: Arc::default(),
    };
    let ready = pages.ready.clone();
    let metrics = pages.metrics.clone();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(serve(listener, pages));

    assert!(
        get(address, "GET /healthz")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(
        get(address, "GET /readyz")
            .await
            .starts_with("HTTP/1.1 503")
    );
    ready.store(true, Ordering::Relaxed);
    assert!(
        get(address, "GET /readyz")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(get(address, "GET /else").await.starts_with("HTTP/1.1 404"));
    assert!(
        get(address, "POST /metrics")
            .await
            .starts_with("HTTP/1.1 405")
    );
    metrics.reconciled("node", Duration::from_millis(3));
    metrics.set_leader(true);
    let text = get(address, "GET /metrics").await;
    assert!(
        text.contains("content-type: text/plain; version=0.0.4"),
        "{text}"
    );
    assert!(text.contains("ckb_probe_operator_leader 1\n"), "{text}");
    assert!(
        text.contains(
            "ckb_probe_reconcile_duration_seconds_bucket{kind=\"node\",le=\"0.005\"} 1\n"
        ),
        "{text}"
    );
    server.abort();
}

#[tokio::test]
async fn those_who_hold_connections_open_keep_nobody_out() {
    let pages = Pages {
        metrics: Metrics::new().unwrap(),
        ready: Arc::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, pages));
    let mut held = Vec::new();
    for _ in 0..10 * MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HT").await.unwrap();
        held.push(stream);
    }
    let answer = tokio::time::timeout(HEADER_TIMEOUT / 2, get(address, "GET /healthz")).await;
    assert!(answer.unwrap().starts_with("HTTP/1.1 200"));
}
