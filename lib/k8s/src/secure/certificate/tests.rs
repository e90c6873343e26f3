use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{ClientConfig, RootCertStore, pki_types::ServerName},
};

use super::*;

/// A folder of the test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ckb-probe-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Puts a certificate for this name there; returns it.
    fn fill(&self, name: &str) -> CertificateDer<'static> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(self.0.join("tls.crt"), certificate.pem()).unwrap();
        fs::write(self.0.join("tls.key"), key.serialize_pem()).unwrap();
        certificate.der().clone()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Where it is shown.
async fn shown(certificate: &Arc<Certificate>) -> SocketAddr {
    let acceptor = TlsAcceptor::from(Arc::new(certificate.clone().server().unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = acceptor.accept(stream).await;
        }
    });
    address
}

/// Whether who trusts this certificate alone takes the server for one of that name.
async fn trusts(address: SocketAddr, root: &CertificateDer<'static>, name: &'static str) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from(name).unwrap();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .is_ok()
}

fn current(certificate: &Certificate) -> CertificateDer<'static> {
    certificate.current.read().unwrap().cert[0].clone()
}

#[tokio::test]
async fn one_of_its_own_making_is_valid_for_its_name() {
    let certificate = Certificate::new(Source::OwnMaking("metrics.svc".to_owned())).unwrap();
    let address = shown(&certificate).await;
    let root = current(&certificate);
    assert!(trusts(address, &root, "metrics.svc").await);
    assert!(!trusts(address, &root, "other.svc").await);
    // Of the same name, and not the same.
    let other = make("metrics.svc").unwrap();
    assert!(!trusts(address, &other.cert[0], "metrics.svc").await);
}

#[tokio::test(start_paused = true)]
async fn one_of_its_own_making_is_exchanged_in_time() {
    let certificate = Certificate::new(Source::OwnMaking("metrics.svc".to_owned())).unwrap();
    let first = current(&certificate);
    tokio::spawn(keep_fresh(Arc::downgrade(&certificate)));
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(current(&certificate), first);
    tokio::time::advance(RENEWED - 4 * LOOK).await;
    tokio::time::sleep(LOOK).await;
    assert_eq!(current(&certificate), first);
    tokio::time::sleep(2 * LOOK).await;
    assert_ne!(current(&certificate), first);
}

#[tokio::test(start_paused = true)]
async fn one_in_a_folder_is_read_again_when_it_changes() {
    let folder = Folder::new("changes");
    let first = folder.fill("first.svc");
    let certificate = Certificate::new(Source::Folder(folder.0.clone())).unwrap();
    assert_eq!(current(&certificate), first);
    tokio::spawn(keep_fresh(Arc::downgrade(&certificate)));
    let second = folder.fill("second.svc");
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(current(&certificate), second);
    // A key that is another's, as between the writing of two files.
    folder.fill("third.svc");
    let key = fs::read(folder.0.join("tls.key")).unwrap();
    folder.fill("fourth.svc");
    fs::write(folder.0.join("tls.key"), key).unwrap();
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(current(&certificate), second);
    let fifth = folder.fill("fifth.svc");
    tokio::time::sleep(2 * LOOK).await;
    assert_eq!(current(&certificate), fifth);
}

#[test]
fn what_is_wrong_with_a_folder_is_said() {
    let folder = Folder::new("wrong");
    let path = folder.0.display().to_string();
    let said = || {
        Certificate::new(Source::Folder(folder.0.clone()))
            .unwrap_err()
            .to_string()
    };
    assert!(
        said().starts_with(&format!("cannot read {path}/tls.crt: ")),
        "{}",
        said()
    );
    folder.fill("some.svc");
    fs::write(folder.0.join("tls.crt"), "nothing").unwrap();
    assert_eq!(
        said(),
        format!("{path}/tls.crt holds no certificate in PEM: there is none")
    );
    folder.fill("some.svc");
    fs::write(folder.0.join("tls.key"), "nothing").unwrap();
    assert!(
        said().starts_with(&format!("{path}/tls.key holds no private key in PEM: ")),
        "{}",
        said()
    );
}
