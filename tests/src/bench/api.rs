//! As much of an API server as one agent needs: one NodeProbe, over TLS, to be listed, watched and reported on.
//!
//! The agent that is measured is thus the whole one, its client and its reports included, without the load that a real
//! API server would put on the machine beside it.

use std::{
    convert::Infallible,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
};

use ckb_probe_crds::{Assignment, NodeProbe, NodeProbeSpec, NodeProbeStatus};
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, crypto::ring, pki_types::PrivateKeyDer},
};

use super::prelude::*;
use crate::cluster::SYSTEM;

/// The node's name, and so the NodeProbe's.
pub const NODE: &str = "bench";

/// As long as a real API server keeps a watch open, at the least.
const WATCH: Duration = Duration::from_secs(290);

/// The object, and what has been reported on it.
#[derive(Clone)]
struct Store {
    object: watch::Sender<NodeProbe>,
    reports: Arc<Mutex<Vec<NodeProbeStatus>>>,
}

/// The API server. It ends when it is dropped.
pub struct ApiServer {
    /// Where it is.
    pub address: String,
    store: Store,
    // Never shut down in a hurry: it is dropped in an async context.
    runtime: Option<tokio::runtime::Runtime>,
    folder: TempDir,
}

impl ApiServer {
    /// Starts one, with a NodeProbe that orders nothing.
    pub fn start() -> Result<Self> {
        let folder = TempDir::new().map_err(Failure::system("a temporary folder"))?;
        let tls = tls(folder.path())?;
        let (listener, address) = listen()?;
        let token = folder.path().join("token");
        fs::write(&token, "bench").map_err(Failure::at(&token))?;
        let mut object = NodeProbe::new(NODE, NodeProbeSpec::default());
        object.metadata.namespace = Some(SYSTEM.to_string());
        object.metadata.uid = Some("00000000-0000-4000-8000-000000000001".to_string());
        object.metadata.generation = Some(1);
        object.metadata.resource_version = Some("1".to_string());
        let store = Store {
            object: watch::Sender::new(object),
            reports: Arc::default(),
        };
        // A thread of its own: a measurement that waits for something must not keep the agent waiting.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(Failure::system("the API server's thread"))?;
        runtime.spawn(serve(listener, tls, store.clone()));
        Ok(Self {
            address: format!("https://{address}"),
            store,
            runtime: Some(runtime),
            folder,
        })
    }

    /// Of whose account a client is to be.
    pub fn account(&self) -> &Path {
        self.folder.path()
    }

    /// Gives the agent new orders, and returns their generation.
    pub fn order(&self, assignments: Vec<Assignment>) -> i64 {
        let mut ordered = 0;
        self.store.object.send_modify(|object| {
            ordered = object.metadata.generation.unwrap_or_default() + 1;
            object.metadata.generation = Some(ordered);
            object.spec = NodeProbeSpec { assignments };
            change(object);
        });
        ordered
    }

    /// Every report so far, the oldest first.
    pub fn reports(&self) -> Vec<NodeProbeStatus> {
        self.store.reports().clone()
    }

    /// The last report.
    pub fn latest(&self) -> Option<NodeProbeStatus> {
        self.store.reports().last().cloned()
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Store {
    fn reports(&self) -> std::sync::MutexGuard<'_, Vec<NodeProbeStatus>> {
        // What is behind it is whole after every statement.
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of the object has a version of its own.
fn change(object: &mut NodeProbe) {
    object.metadata.resource_version = Some((version(object) + 1).to_string());
}

fn version(object: &NodeProbe) -> u64 {
    let version = object.metadata.resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}

async fn serve(listener: tokio::net::TcpListener, tls: TlsAcceptor, store: Store) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, store) = (tls.clone(), store.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else {
                return;
            };
            let service = service_fn(|request| answer(request, store.clone()));
            // Ends with the client, in whatever way.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn answer(
    request: Request<Incoming>,
    store: Store,
) -> std::result::Result<Answer, hyper::Error> {
    let collection = format!("/apis/ckbprobe.dev/v1alpha1/namespaces/{SYSTEM}/nodeprobes");
    let status = format!("{collection}/{NODE}/status");
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default().to_string();
    Ok(match *request.method() {
        Method::GET if path == collection && parameter(&query, "watch").is_some() => {
            let seen = parameter(&query, "resourceVersion").and_then(|seen| seen.parse().ok());
            watch(&store, seen.unwrap_or_default())
        }
        Method::GET if path == collection => {
            let object = store.object.borrow().clone();
            reply(
                StatusCode::OK,
                &json!({
                    "apiVersion": "ckbprobe.dev/v1alpha1",
                    "kind": "NodeProbeList",
                    "metadata": { "resourceVersion": object.metadata.resource_version },
                    "items": [object],
                }),
            )
        }
        Method::PATCH if path == status => {
            let body = request.into_body().collect().await?.to_bytes();
            report(&store, &body)
        }
        _ => refusal(StatusCode::NOT_FOUND, "NotFound"),
    })
}

/// The value of a parameter of a query, undecoded.
fn parameter<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    let mut parameters = query.split('&').filter_map(|pair| pair.split_once('='));
    parameters
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// Every version after the one that was seen, as it comes about.
fn watch(store: &Store, seen: u64) -> Answer {
    let changes = stream::unfold(
        (store.object.subscribe(), seen),
        |(mut object, seen)| async move {
            let newer = object
                .wait_for(|object| version(object) > seen)
                .await
                .ok()?
                .clone();
            let event = json!({ "type": "MODIFIED", "object": newer });
            let line = Bytes::from(event.to_string() + "\n");
            Some((Ok(Frame::data(line)), (object, version(&newer))))
        },
    );
    let limited = changes.take_until(tokio::time::sleep(WATCH));
    Response::new(StreamBody::new(limited).boxed_unsync())
}

/// Takes a report, and tells those that watch, as a real API server does: the agent too hears of its own reports.
fn report(store: &Store, body: &[u8]) -> Answer {
    let status = serde_json::from_slice::<Value>(body)
        .and_then(|mut patch| serde_json::from_value::<NodeProbeStatus>(patch["status"].take()));
    let Ok(status) = status else {
        return refusal(StatusCode::BAD_REQUEST, "BadRequest");
    };
    store.reports().push(status.clone());
    store.object.send_modify(|object| {
        object.status = Some(status);
        change(object);
    });
    reply(StatusCode::OK, &json!(*store.object.borrow()))
}

fn refusal(code: StatusCode, reason: &str) -> Answer {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "reason": reason, "message": reason, "code": code.as_u16(),
    });
    reply(code, &status)
}

fn reply(code: StatusCode, body: &Value) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = code;
    let json = hyper::header::HeaderValue::from_static("application/json");
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, json);
    response
}

fn listen() -> Result<(tokio::net::TcpListener, SocketAddr)> {
    let bound = TcpListener::bind("127.0.0.1:0").and_then(|listener| {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((tokio::net::TcpListener::from_std(listener)?, address))
    });
    bound.map_err(Failure::system("a port for the API server"))
}

/// With a certificate for 127.0.0.1 that nobody has signed but itself, which a client is told to trust.
fn tls(folder: &Path) -> Result<TlsAcceptor> {
    let what = "the API server's certificate";
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_string()]);
    let made = made.map_err(Failure::format(what))?;
    fs::write(folder.join("ca.crt"), made.cert.pem()).map_err(Failure::system(what))?;
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der());
    let key = key.map_err(Failure::format(what))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(Failure::format(what))?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .map_err(Failure::format(what))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
