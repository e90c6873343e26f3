use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::Instant,
};

use super::*;

/// Longer than any client may wait here, on a machine that has time for it.
const PROMPT: Duration = Duration::from_secs(1);

/// Serves `/healthz`, and a long `/metrics`.
async fn server() -> SocketAddr {
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, None, |asked| {
        let page = match asked.path {
            "/healthz" => Page::Text("ok\n".to_owned()),
            "/metrics" => Page::Text("x".repeat(4 << 20)),
            "/broken" => Page::Unavailable("not now\n".to_owned()),
            _ => Page::Unknown("there is /healthz\n"),
        };
        Box::pin(async { page })
    }));
    address
}

/// A connection from one address of the loopback network or another.
async fn connect(from: [u8; 4], address: SocketAddr) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(address).await.unwrap()
}

async fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = connect([127, 0, 0, 1], address).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    // Where it is cut off, what came before counts.
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn each_path_is_answered() {
    let address = server().await;
    let answer = ask(address, &get("/healthz")).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("content-type: text/plain; version=0.0.4"));
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    let answer = ask(address, &get("/else")).await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let answer = ask(address, &get("/broken")).await;
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let answer = ask(address, &get("/healthz").replace("GET", "POST")).await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
}

#[tokio::test]
async fn a_thousand_who_hold_connections_open_keep_nobody_out() {
    let address = server().await;
    // What an answer takes on this machine while nobody else is there.
    let begun = Instant::now();
    ask(address, &get("/metrics")).await;
    let prompt = PROMPT.max(20 * begun.elapsed());
    let mut held = Vec::new();
    for number in 0..1000 {
        let mut stream = connect([127, 0, 0, 2], address).await;
        let request = match number % 3 {
            0 => "",
            1 => "GET /metrics HT",
            // Asked for, and never read.
            _ => "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        };
        // One that has gone already may refuse it.
        let _ = stream.write_all(request.as_bytes()).await;
        held.push(stream);
    }
    let begun = Instant::now();
    while begun.elapsed() < 2 * HEADER_TIMEOUT {
        let answer = timeout(prompt, ask(address, &get("/healthz"))).await;
        assert!(answer.unwrap().ends_with("\r\n\r\nok\n"));
        let answer = timeout(prompt, ask(address, &get("/metrics"))).await;
        assert!(answer.unwrap().len() > 4 << 20);
        // They come again.
        for stream in held.iter_mut().take(100) {
            *stream = connect([127, 0, 0, 2], address).await;
        }
        held.rotate_left(100);
    }
}

/// A scrape that takes its time is not cut off by those who open connection after connection.
#[tokio::test]
async fn who_opens_many_cuts_off_nobody_else() {
    let address = server().await;
    let mut scraper = connect([127, 0, 0, 1], address).await;
    scraper.write_all(get("/metrics").as_bytes()).await.unwrap();
    let mut head = [0; 15];
    scraper.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    let mut held = Vec::new();
    for _ in 0..10 * PLACES.all {
        held.push(connect([127, 0, 0, 2], address).await);
    }
    let mut rest = Vec::new();
    scraper.read_to_end(&mut rest).await.unwrap();
    assert!(rest.len() > 4 << 20, "{}", rest.len());
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
    let request = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {long}");
    let answer = ask(address, &request).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
}

#[tokio::test]
async fn who_has_not_read_a_shared_page_when_it_is_dropped_is_cut_off() {
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let page = Arc::new("x".repeat(16 << 20));
    let shared = SharedText::of(&page, "text/long");
    tokio::spawn(serve(listener, None, move |_| {
        let page = Page::Shared(shared.clone());
        Box::pin(async { page })
    }));
    let whole = ask(address, &get("/metrics")).await;
    assert!(whole.contains("\r\ncontent-length: 16777216\r\n"));
    assert!(whole.contains("\r\ncontent-type: text/long\r\n"));
    assert!(whole.ends_with(&*page));
    let mut slow = connect([127, 0, 0, 1], address).await;
    slow.write_all(get("/metrics").as_bytes()).await.unwrap();
    let mut begun = vec![0; 1 << 10];
    slow.read_exact(&mut begun).await.unwrap();
    // Nobody who reads has a copy.
    assert_eq!(Arc::strong_count(&page), 1);
    drop(page);
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest).await;
    assert!(rest.len() < 16 << 20, "{}", rest.len());
    let gone = ask(address, &get("/metrics")).await;
    assert!(gone.starts_with("HTTP/1.1 503 "), "{gone}");
}
