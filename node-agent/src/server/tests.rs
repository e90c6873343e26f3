use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

/// Two doors: where they are, the engine's pulse, and who wants metrics.
async fn server() -> (
    SocketAddr,
    SocketAddr,
    Arc<Pulse>,
    mpsc::Receiver<MetricsRequest>,
) {
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server {
        metrics: listener::bind(anywhere).await.unwrap(),
        secure: None,
        health: listener::bind(anywhere).await.unwrap(),
    };
    let metrics = server.metrics.local_addr().unwrap();
    let health = server.health.local_addr().unwrap();
    let pulse = Arc::new(Pulse::default());
    let (serving, wanted) = server.serve(Arc::clone(&pulse)).unwrap();
    tokio::spawn(serving);
    (metrics, health, pulse, wanted)
}

/// Has the engine come round from now on, however slow the machine is.
fn beating(pulse: &Arc<Pulse>) {
    pulse.beat(true);
    let pulse = Arc::downgrade(pulse);
    thread::spawn(move || {
        while let Some(pulse) = pulse.upgrade() {
            pulse.beat(true);
            thread::sleep(FRESH / 20);
        }
    });
}

async fn ask(address: SocketAddr, path: &str) -> TcpStream {
    ask_with(address, path, "*/*").await
}

async fn ask_with(address: SocketAddr, path: &str, accept: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: agent\r\nAccept: {accept}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn answer(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn is_answered(door: SocketAddr, path: &str, status: &str, text: &str) {
    let said = answer(ask(door, path).await).await;
    let begins = said.starts_with(&format!("HTTP/1.1 {status} "));
    let ends = said.ends_with(&format!("\r\n\r\n{text}"));
    assert!(begins && ends, "{path}: {said}");
}

#[tokio::test]
async fn each_door_has_its_pages() {
    let (metrics, health, pulse, mut wanted) = server().await;
    tokio::spawn(async move {
        while let Some(MetricsRequest { format, answer }) = wanted.recv().await {
            assert_eq!(format, Format::Text);
            answer.send(Ok("calls 1\n".to_string())).unwrap();
        }
    });
    let early = "no orders seen yet: is the API server reachable?\n";
    is_answered(health, "/readyz", "503", early).await;
    beating(&pulse);
    is_answered(health, "/readyz", "200", "ok\n").await;
    is_answered(health, "/healthz", "200", "ok\n").await;
    is_answered(metrics, "/metrics", "200", "calls 1\n").await;
    let known = "there are /healthz and /readyz here\n";
    is_answered(health, "/metrics", "404", known).await;
    let known = "there is /metrics here, and /healthz at a door of its own\n";
    is_answered(metrics, "/healthz", "404", known).await;
}

/// This runtime has one thread: what serves metrics stands still with it.
#[tokio::test]
async fn who_asks_for_health_waits_neither_for_metrics_nor_for_an_engine_that_is_busy() {
    let (metrics, health, pulse, wanted) = server().await;
    let mut wanting = Vec::new();
    for _ in 0..32 {
        wanting.push(ask(metrics, "/metrics").await);
    }
    beating(&pulse);
    let (done, is_done) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let healthy = async { is_answered(health, "/healthz", "200", "ok\n").await };
        runtime.unwrap().block_on(healthy);
        done.send(()).unwrap();
    });
    // Busy meanwhile.
    is_done.recv_timeout(Duration::from_secs(60)).unwrap();
    drop(wanted);
}

#[tokio::test]
async fn an_idle_engine_comes_round_when_it_is_asked_and_one_that_does_not_is_stuck() {
    let (_metrics, health, pulse, _wanted) = server().await;
    tokio::time::sleep(FRESH).await;
    let said = answer(ask(health, "/healthz").await).await;
    assert!(said.starts_with("HTTP/1.1 503 "), "{said}");
    assert!(said.contains("the engine is stuck for "), "{said}");
    let comes_round = tokio::spawn(async move {
        loop {
            pulse.wanted().await;
            pulse.beat(true);
        }
    });
    // Whoever doubted before has it come round once.
    tokio::time::sleep(2 * FRESH).await;
    is_answered(health, "/healthz", "200", "ok\n").await;
    comes_round.abort();
}

#[tokio::test]
async fn a_scraper_that_reads_openmetrics_has_it_and_is_told_so() {
    let (metrics, _, _, mut wanted) = server().await;
    tokio::spawn(async move {
        while let Some(MetricsRequest { format, answer }) = wanted.recv().await {
            answer.send(Ok(format!("{format:?}\n"))).unwrap();
        }
    });
    for (accept, media_type, text) in [
        (
            "text/plain",
            "text/plain; version=0.0.4; charset=utf-8",
            "Text",
        ),
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            "OpenMetrics",
        ),
    ] {
        let said = answer(ask_with(metrics, "/metrics", accept).await).await;
        assert!(
            said.contains(&format!("\r\ncontent-type: {media_type}\r\n")),
            "{said}"
        );
        assert!(said.ends_with(&format!("\r\n\r\n{text}\n")), "{said}");
    }
}
