//! A Prometheus that is asked over TLS, and who asks it: one that has TLS itself, and one behind a door that lets in who has a token, as it is
//! in clusters.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Output,
    sync::Arc,
    thread,
};

use ckb_probe_testkit::{Folder, prometheus::Prometheus, wait_until};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::{EACH, Page, began, cells, report, tell};

/// What lets one in at the door.
const TOKEN: &str = "the-token-of-the-report";

/// Who may ask, and how bcrypt writes the password, which is `of the report`: made by crypt(3) with 16 rounds.
const PASSWORD: &str = "reader:of%20the%20report";
const USER: &str = "reader: $2b$04$jZxS9eu0p2Rt4EBhKntlt.qe2EPL31Wpzqb1l4p7f6Ik0f3cEAcy.";

/// Scrapes at which nothing is counted yet, and those after them.
const QUIET: u64 = 10;
const WORKING: u64 = 120;

/// Who signs certificates, and where these are.
struct Authority {
    folder: Folder,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = Folder::new();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path("ca.crt"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path("ca.crt")
    }

    /// A certificate for who is called so, and its key.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let file = |ending: &str| self.folder.path(&format!("{name}.{ending}"));
        fs::write(file("crt"), signed.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("crt"), file("key"))
    }

    /// A Prometheus with TLS, whose certificate is for this name, and which knows one user.
    fn prometheus(&self, name: &str) -> Prometheus {
        let (certificate, key) = self.sign(name);
        let web = format!(
            "tls_server_config: {{cert_file: {}, key_file: {}}}\nbasic_auth_users:\n  {USER}\n",
            certificate.display(),
            key.display()
        );
        Prometheus::of_history_behind(&history(), &web)
    }

    /// A door to a Prometheus, which lets in who has the token.
    fn door(&self, to: SocketAddr) -> SocketAddr {
        let (certificate, key) = self.sign("127.0.0.1");
        let chain = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        let key = PrivateKeyDer::from_pem_file(key).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(chain, key);
        let config = Arc::new(config.unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // It ends with the tests.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
                thread::spawn(move || let_in(StreamOwned::new(connection, stream), to));
            }
        });
        address
    }
}

/// Answers one request, if the other side goes on to make one.
fn let_in(mut stream: StreamOwned<ServerConnection, TcpStream>, to: SocketAddr) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let authorization = format!("authorization: Bearer {TOKEN}");
    let mut answer = Vec::new();
    if head.lines().any(|line| line == authorization) {
        let path = head.split(' ').nth(1).unwrap();
        let mut prometheus = TcpStream::connect(to).unwrap();
        let request = format!("GET {path} HTTP/1.0\r\nHost: x\r\n\r\n");
        prometheus.write_all(request.as_bytes()).unwrap();
        prometheus.read_to_end(&mut answer).unwrap();
    } else {
        answer.extend(b"HTTP/1.0 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    }
    let _ = stream.write_all(&answer);
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

/// An hour of one pod, which does nothing for the first minutes: a report of a day looks at a scrape here and there, and not at the first by
/// itself.
fn history() -> String {
    let (began, mut page) = (began(), Page(String::new()));
    for scrape in 0..=QUIET + WORKING {
        let (time, done) = (began + scrape * EACH, scrape.saturating_sub(QUIET));
        tell(&mut page, "ckb-0", (done * 300, done * 5), time);
    }
    page.0 + "# EOF\n"
}

/// Asks for all of it.
fn asked(address: &str, options: &[(&str, &Path)]) -> Output {
    let options = options
        .iter()
        .flat_map(|(option, file)| [*option, file.to_str().unwrap()]);
    let when = ["--last", "31h"];
    report(
        address,
        &when.into_iter().chain(options).collect::<Vec<_>>(),
    )
}

fn is_told(output: &Output) {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let get = cells(&text, "Get");
    assert!(
        get.contains(&(WORKING * 305).to_string().as_str()),
        "{get:?}"
    );
}

/// Nothing is told, and each of these is said, whom it is about among them; and no secret.
fn is_refused(output: &Output, said: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    for part in said {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    for secret in [TOKEN, "of%20the", "of the report"] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn a_prometheus_with_tls_is_one_whose_certificate_is_known() {
    let authority = Authority::new("ours");
    let prometheus = authority.prometheus("127.0.0.1");
    let (ca, port) = (authority.certificate(), prometheus.address().port());
    let address = format!("https://127.0.0.1:{port}");
    let with_password = format!("https://{PASSWORD}@127.0.0.1:{port}");
    let trusting = |address: &str| asked(address, &[("--ca", &ca)]);
    wait_until("Prometheus answers", || {
        trusting(&with_password).status.success()
    });
    is_told(&trusting(&with_password));

    // Who is signed by somebody else, or by nobody whom the system knows, is asked nothing.
    let others = Authority::new("other");
    let other = others.certificate();
    let untrusted = [
        address.as_str(),
        "is not to be trusted",
        "invalid peer certificate: UnknownIssuer",
        "who signed it with --ca",
    ];
    is_refused(&asked(&with_password, &[("--ca", &other)]), &untrusted);
    is_refused(&asked(&with_password, &[]), &untrusted);
    let by_name = format!("https://{PASSWORD}@localhost:{port}");
    let expected = [
        "https://localhost:",
        "not valid for name",
        "by a name that the certificate has",
    ];
    is_refused(&trusting(&by_name), &expected);

    // Certificates that are none.
    let nowhere = authority.folder.path("nowhere.crt");
    let expected = [
        address.as_str(),
        "nowhere.crt of --ca cannot be read (No such file",
        "in PEM, of who signed that of Prometheus",
    ];
    is_refused(&asked(&with_password, &[("--ca", &nowhere)]), &expected);
    let key = authority.folder.path("127.0.0.1.key");
    let expected = [address.as_str(), "has no certificate in PEM"];
    is_refused(&asked(&with_password, &[("--ca", &key)]), &expected);

    // One knows the other, and not who asks.
    let who = [address.as_str(), "refuses who asks (401)", "--token-file"];
    is_refused(&trusting(&address), &who);
    let token = authority.folder.path("token");
    fs::write(&token, TOKEN).unwrap();
    let with_token = asked(&address, &[("--ca", &ca), ("--token-file", &token)]);
    is_refused(&with_token, &who);
    let wrong = format!("https://reader:wrong@127.0.0.1:{port}");
    is_refused(&trusting(&wrong), &who);

    // Of two that speak something else to each other each says so.
    let expected = ["400", "HTTP request to an HTTPS server"];
    is_refused(&asked(&format!("http://127.0.0.1:{port}"), &[]), &expected);
}

#[test]
fn a_token_is_shown_over_tls_as_the_file_has_it() {
    let authority = Authority::new("ours");
    let prometheus = Prometheus::of_history(&history());
    let door = authority.door(prometheus.address());
    let (ca, address) = (authority.certificate(), format!("https://{door}"));
    let asked_with = |token: &Path| asked(&address, &[("--ca", &ca), ("--token-file", token)]);
    let file = authority.folder.path("token");
    let shown = |text: &str| {
        fs::write(&file, text).unwrap();
        asked_with(&file)
    };
    is_told(&shown(TOKEN));
    // As editors and echo write it.
    is_told(&shown(&format!("{TOKEN}\n")));
    let refused = [address.as_str(), "refuses who asks (401)", "--token-file"];
    is_refused(&shown("another"), &refused);
    is_refused(&asked(&address, &[("--ca", &ca)]), &refused);
    let expected = [address.as_str(), "token of --token-file is empty"];
    is_refused(&shown("\n"), &expected);
    let expected = [address.as_str(), "of --token-file has more than one word"];
    is_refused(&shown(&format!("Bearer {TOKEN}")), &expected);
    let expected = [
        address.as_str(),
        "of --token-file cannot be read (No such file",
    ];
    is_refused(&asked_with(&authority.folder.path("none")), &expected);

    // The other way round.
    let plain = format!("https://{}", prometheus.address());
    let expected = [plain.as_str(), "does not speak TLS", "http://"];
    is_refused(&asked(&plain, &[("--ca", &ca)]), &expected);
}
