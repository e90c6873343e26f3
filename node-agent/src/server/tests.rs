use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

use super::*;

/// A server that says it is well, and where it is.
async fn server() -> SocketAddr {
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (inquiries, mut asked) = mpsc::channel::<Inquiry>(16);
    tokio::spawn(serve(listener, inquiries));
    tokio::spawn(async move {
        while let Some((_, answer)) = asked.recv().await {
            answer.send(Ok("ok\n".to_string())).unwrap();
        }
    });
    address
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // Where it is cut off, what came before counts.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

const HEALTHZ: &str = "GET /healthz HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn those_who_hold_connections_open_keep_nobody_out() {
    let address = server().await;
    let mut held = Vec::new();
    for _ in 0..10 * MAX_CONNECTIONS {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HT").await.unwrap();
        held.push(stream);
    }
    let begun = Instant::now();
    let answer = ask(address, HEALTHZ).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    assert!(begun.elapsed() < HEADER_TIMEOUT);
    // Of the first, nothing is left.
    assert!(!matches!(held[0].read(&mut [0]).await, Ok(1)));
}

#[tokio::test]
async fn who_sends_no_request_is_cut_off() {
    let address = server().await;
    let begun = Instant::now();
    assert_eq!(ask(address, "GET /metrics HT").await, "");
    assert!(begun.elapsed() >= HEADER_TIMEOUT);
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let address = server().await;
    let long = "x".repeat(2 * MAX_HEADER_BYTES);
    let request = format!("GET /healthz HTTP/1.1\r\nHost: agent\r\nX-Long: {long}");
    let answer = ask(address, &request).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}
