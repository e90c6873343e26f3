use std::{convert::Infallible, net::SocketAddr};

use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Bytes, header::AUTHORIZATION, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use rcgen::{CertificateParams, KeyPair};
use tokio::net::TcpListener;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

use super::*;
use crate::client::{Handshake, handshake, of_account};

/// A folder as a kubelet fills it, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ckb-probe-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let folder = Self(path);
        folder.put("token", "first\n");
        folder
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// Makes a server that this folder trusts.
    fn server(&self) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.put("ca.crt", &certificate.pem());
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(server))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Answers each request with what it says of who asks.
async fn listen(tls: Option<TlsAcceptor>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let echo = |request: Request<_>| async move {
        let _: &hyper::body::Incoming = request.body();
        let said = request.headers().get(AUTHORIZATION);
        let said = said.map_or(Bytes::from("nobody"), |said| {
            Bytes::copy_from_slice(said.as_bytes())
        });
        Ok::<_, Infallible>(Response::new(Full::new(said)))
    };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let tls = tls.clone();
            tokio::spawn(async move {
                let http = hyper::server::conn::http1::Builder::new();
                match tls {
                    None => drop(
                        http.serve_connection(TokioIo::new(stream), service_fn(echo))
                            .await,
                    ),
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            let stream = TokioIo::new(stream);
                            drop(http.serve_connection(stream, service_fn(echo)).await);
                        }
                    }
                }
            });
        }
    });
    address
}

/// Who asks, as the API server at this address hears it.
async fn asks(address: &str, folder: &Folder) -> Result<String, kube::Error> {
    let client = of_account(Account::at(address, &folder.0).unwrap()).unwrap();
    let request = Request::get("/").body(Body::empty()).unwrap();
    let answer = client.send(request).await?;
    let said = answer.into_body().collect().await.unwrap().to_bytes();
    Ok(String::from_utf8(said.to_vec()).unwrap())
}

#[tokio::test]
async fn an_api_server_of_the_right_certificate_is_told_who_asks_and_no_other_is() {
    let folder = Folder::new("account");
    let right = listen(Some(folder.server())).await;
    assert_eq!(
        asks(&format!("https://{right}"), &folder).await.unwrap(),
        "Bearer first"
    );
    let plain = listen(None).await;
    assert_eq!(
        asks(&format!("http://{plain}"), &folder).await.unwrap(),
        "nobody"
    );
    // Another one is trusted from here on.
    let _ = folder.server();
    let refused = asks(&format!("https://{right}"), &folder).await;
    let why = handshake(&refused.unwrap_err());
    assert!(matches!(why, Some(Handshake::Untrusted(_))), "{why:?}");
}

#[test]
fn what_a_kubelet_writes_anew_is_read_anew_and_what_it_takes_away_stays() {
    let folder = Folder::new("recent");
    let token = Recent::of(folder.0.join("token"), read_token).unwrap();
    let start = Instant::now();
    let at = |seconds| token.get_at(start + Duration::from_secs(seconds));
    folder.put("token", "second");
    assert_eq!(at(49), "Bearer first");
    assert_eq!(at(51), "Bearer second");
    folder.put("token", "\0");
    assert_eq!(at(102), "Bearer second");
    fs::remove_file(folder.0.join("token")).unwrap();
    assert_eq!(at(153), "Bearer second");
    folder.put("token", "third");
    assert_eq!(at(202), "Bearer second");
    assert_eq!(at(204), "Bearer third");
    assert!(at(204).is_sensitive());
}

#[tokio::test]
async fn whoever_is_trusted_now_is_known_by_a_connection_made_later() {
    let folder = Folder::new("trust");
    let _ = folder.server();
    let trust = Trust(Recent::of(folder.0.join("ca.crt"), read_roots).unwrap());
    let pem = || fs::read(folder.0.join("ca.crt")).unwrap();
    let believes = |trust: &WebPkiServerVerifier| {
        let certificate = CertificateDer::from_pem_slice(&pem()).unwrap();
        let name = ServerName::try_from("127.0.0.1").unwrap();
        trust
            .verify_server_cert(&certificate, &[], &name, &[], UnixTime::now())
            .is_ok()
    };
    let start = Instant::now();
    assert!(believes(&trust.0.get_at(start)));
    let _ = folder.server();
    assert!(!believes(&trust.0.get_at(start)));
    assert!(believes(&trust.0.get_at(start + Duration::from_secs(51))));
}

#[test]
fn addresses_are_those_of_pods() {
    assert_eq!(address("10.96.0.1", "443"), "https://10.96.0.1:443");
    assert_eq!(address("fd00::1", "6443"), "https://[fd00::1]:6443");
    assert_eq!(address("api.internal", "443"), "https://api.internal:443");
}

#[test]
fn what_is_missing_is_named() {
    let folder = Folder::new("missing");
    let at = |address| {
        let account = Account::at(address, &folder.0);
        account.err().map(|error| error.to_string())
    };
    let ca = folder.0.join("ca.crt").display().to_string();
    assert_eq!(
        at("https://10.96.0.1"),
        Some(format!(
            "cannot read {ca}: No such file or directory (os error 2)"
        ))
    );
    folder.put("ca.crt", "none");
    let none = at("https://10.96.0.1").unwrap();
    let begin = format!("{ca} holds no certificate in PEM: ");
    assert!(none.starts_with(&begin), "{none}");
    assert_eq!(at("http://127.0.0.1:8001"), None);
}
