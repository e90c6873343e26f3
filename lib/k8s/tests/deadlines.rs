//! What becomes of a connection to the API server behind which nobody is any more.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "where it panics, a test fails"
)]

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ckb_probe_k8s::client::client;
use futures::{StreamExt as _, future, stream};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::{Client, Config, client::Body};
use socket2::{SockFilter, SockRef};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

/// What the project promises.
const NOTICED: Duration = Duration::from_secs(20);

/// Lets so much time pass of what this program has: while the machine does not let it run, next to none of it passes.
async fn passes(time: Duration) {
    const TICK: Duration = Duration::from_millis(100);
    for _ in 0..time.as_millis() / TICK.as_millis() {
        tokio::time::sleep(TICK).await;
    }
}

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Answers a watch with one line and then nothing, `/never` not at all, and everything else at once.
async fn answer(request: Request<Incoming>) -> Result<Answer, Infallible> {
    if request.uri().path() == "/never" {
        future::pending::<()>().await;
    }
    let watch = request.uri().query() == Some("watch=true");
    let line = Bytes::from_static(b"{}\n");
    Ok(Response::new(if watch {
        let news = stream::iter([Ok(Frame::data(line))]).chain(stream::pending());
        StreamBody::new(news).boxed_unsync()
    } else {
        Full::new(line).boxed_unsync()
    }))
}

/// An API server that speaks HTTP/1.1 without TLS; each connection is handed out as well.
async fn plain_server() -> (Client, mpsc::UnboundedReceiver<socket2::Socket>) {
    let (listener, address) = listen().await;
    let (connected, connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let socket = SockRef::from(&stream).try_clone().unwrap();
            let _ = connected.send(socket);
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service_fn(answer)),
            );
        }
    });
    let config = Config::new(format!("http://{address}").parse().unwrap());
    (client(config).unwrap(), connections)
}

/// An API server that speaks HTTP/2 over TLS, and what lies between it and the client: as long as `open`, it forwards. It says
/// when it has another connection.
async fn server_behind(open: Arc<AtomicBool>) -> (Client, mpsc::UnboundedReceiver<()>) {
    let (listener, server) = listen().await;
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
    let certificate = signed.cert.der().clone();
    let mut tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .unwrap();
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let tls = TlsAcceptor::from(Arc::new(tls));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = tls.accept(stream).await.unwrap();
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .timer(TokioTimer::new())
                    .serve_connection(TokioIo::new(stream), service_fn(answer)),
            );
        }
    });
    let (listener, address) = listen().await;
    let (connected, connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((from, _)) = listener.accept().await {
            let _ = connected.send(());
            let to = TcpStream::connect(server).await.unwrap();
            let (from, to) = (from.into_split(), to.into_split());
            tokio::spawn(forward(from.0, to.1, open.clone()));
            tokio::spawn(forward(to.0, from.1, open.clone()));
        }
    });
    let mut config = Config::new(format!("https://{address}").parse().unwrap());
    config.root_cert = Some(vec![certificate.to_vec()]);
    (client(config).unwrap(), connections)
}

/// Forwards while it is to. Afterwards it takes everything, acknowledges it, and passes nothing on.
async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    open: Arc<AtomicBool>,
) {
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        if open.load(Ordering::Relaxed) {
            to.write_all(&buffer[..length]).await.unwrap();
        }
    }
    future::pending::<()>().await;
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).unwrap()
}

/// A watch of which the first news has come.
async fn watch(client: &Client) -> Body {
    let mut news = client.send(get("/?watch=true")).await.unwrap().into_body();
    let first = news.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "{}\n");
    news
}

/// Waits for the end of a watch, for as long as it may take.
async fn ends(mut news: Body) {
    tokio::select! {
        biased;
        end = news.frame() => assert!(end.unwrap().is_err()),
        () = passes(NOTICED) => panic!("it goes on"),
    }
}

#[tokio::test]
async fn a_watch_whose_packets_are_dropped_ends() {
    let (client, mut connections) = plain_server().await;
    let news = watch(&client).await;
    // What arrives is dropped before TCP sees it, as by a firewall that has forgotten the connection.
    let drop_all = SockFilter::new(6, 0, 0, 0);
    connections
        .recv()
        .await
        .unwrap()
        .attach_filter(&[drop_all])
        .unwrap();
    ends(news).await;
    // And nothing of it is left in the way of what comes next.
    watch(&client).await;
    assert!(connections.try_recv().is_ok(), "a connection of its own");
}

#[tokio::test]
async fn a_watch_behind_something_that_forwards_no_more_ends() {
    let open = Arc::new(AtomicBool::new(true));
    let (client, mut connections) = server_behind(open.clone()).await;
    let news = watch(&client).await;
    connections.recv().await.unwrap();
    open.store(false, Ordering::Relaxed);
    ends(news).await;
    open.store(true, Ordering::Relaxed);
    watch(&client).await;
    assert!(connections.try_recv().is_ok(), "a connection of its own");
}

#[tokio::test]
async fn a_watch_without_news_goes_on() {
    let (client, _connections) = server_behind(Arc::new(AtomicBool::new(true))).await;
    let mut news = watch(&client).await;
    let more = tokio::time::timeout(NOTICED + NOTICED / 4, news.frame()).await;
    assert!(more.is_err(), "{more:?}");
}

#[tokio::test]
async fn a_request_that_is_not_answered_fails() {
    let (client, _connections) = plain_server().await;
    let answer = tokio::select! {
        biased;
        answer = client.send(get("/never")) => answer,
        () = passes(NOTICED) => panic!("there is no end"),
    };
    let error = answer.unwrap_err();
    assert!(
        error.to_string().contains("no answer within 15 s"),
        "{error}"
    );
}
