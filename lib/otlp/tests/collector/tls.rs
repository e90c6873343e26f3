//! Whom a receiver must be, and who it wants to be spoken with by.

use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use ckb_probe_otlp::{Exporter, ExporterError, TlsError};
use ckb_probe_testkit::{Collector, Tls};
use ckb_probe_traces::{Cause, Counts};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

use super::{
    GRPC, LONG, all_arrive,
    made::{group, limits, scope},
    settings,
};

const CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CERTIFICATE";
const CLIENT_CERTIFICATE: &str = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE";
const CLIENT_KEY: &str = "OTEL_EXPORTER_OTLP_CLIENT_KEY";

/// Who signs certificates.
struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(folder.path().join("ca.crt"), certificate.pem()).unwrap();
        let issuer = Issuer::new(params, key);
        Self { folder, issuer }
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// A certificate for this machine, and its key.
    fn sign(&self, name: &str) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_string(), "127.0.0.1".to_string()];
        let params = CertificateParams::new(names).unwrap();
        let signed = params.signed_by(&key, &self.issuer).unwrap();
        let file = |ending: &str| self.folder.path().join(format!("{name}.{ending}"));
        fs::write(file("crt"), signed.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        (file("crt"), file("key"))
    }

    /// A Collector that it knows; and which knows those alone whom `clients` knows.
    fn collector(&self, clients: Option<PathBuf>) -> Collector {
        let (certificate, key) = self.sign("receiver");
        Collector::start_with(Some(Tls {
            certificate,
            key,
            clients,
        }))
    }
}

/// A Collector that is known, and takes spans of its clients alone: who signs its certificate, and who theirs.
fn for_clients() -> (Authority, Authority, Collector) {
    let (authority, clients) = (Authority::new("ours"), Authority::new("clients"));
    let collector = authority.collector(Some(clients.certificate()));
    (authority, clients, collector)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Exports three spans to who will not have them, until that is known.
fn refused(endpoint: &str, set: &[(&str, &str)]) -> (Counts, String) {
    let exporter = Exporter::start(settings(endpoint, set), scope(), limits()).unwrap();
    exporter.offer(group(99, 3));
    while exporter.counts().failures == 0 {
        let counts = exporter.counts();
        assert_eq!(counts.dropped_in_all(), 0, "{:?}", exporter.problem());
        sleep(Duration::from_millis(5));
    }
    let (counts, problem) = exporter.end(Duration::ZERO);
    (counts, problem.unwrap())
}

#[test]
fn a_receiver_with_tls_is_one_whose_certificate_is_known() {
    let authority = Authority::new("ours");
    let collector = authority.collector(None);
    let known = authority.certificate();
    let known = (CERTIFICATE, text(&known));
    all_arrive(&collector, &collector.http(), &[known], 0);
    all_arrive(&collector, &collector.grpc(), &[known, GRPC], 10_000);
    // Whoever is not known gets nothing.
    let other = Authority::new("other");
    let unknown = other.certificate();
    let (counts, problem) = refused(&collector.http(), &[(CERTIFICATE, text(&unknown))]);
    assert_eq!(counts.dropped_for(Cause::Ended), 3, "{counts:?}");
    assert!(problem.contains("certificate"), "{problem}");
    assert_eq!(collector.spans().len(), 6000);
}

#[test]
fn a_receiver_that_wants_to_know_who_sends_is_told_by_a_certificate() {
    let (authority, clients, collector) = for_clients();
    let known = authority.certificate();
    let known = (CERTIFICATE, text(&known));
    let (certificate, key) = clients.sign("agent");
    let shown = [
        known,
        (CLIENT_CERTIFICATE, text(&certificate)),
        (CLIENT_KEY, text(&key)),
    ];
    all_arrive(&collector, &collector.http(), &shown, 0);
    let by_grpc = [&shown[..], &[GRPC]].concat();
    all_arrive(&collector, &collector.grpc(), &by_grpc, 10_000);
}

#[test]
fn who_shows_no_certificate_or_a_strangers_is_told_so_and_nothing_is_given_up_for_it() {
    let (authority, _clients, collector) = for_clients();
    let known = authority.certificate();
    let known = (CERTIFICATE, text(&known));
    let strangers = Authority::new("strangers");
    let (certificate, key) = strangers.sign("agent");
    let stranger = [
        known,
        (CLIENT_CERTIFICATE, text(&certificate)),
        (CLIENT_KEY, text(&key)),
    ];
    for (endpoint, protocol) in [(collector.http(), None), (collector.grpc(), Some(GRPC))] {
        let with = |set: &[(&'static str, &str)]| {
            let set: Vec<(&str, &str)> = set.iter().copied().chain(protocol).collect();
            let (counts, problem) = refused(&endpoint, &set);
            // It waited to the end for somebody to see to it.
            assert_eq!(counts.dropped_for(Cause::Ended), 3, "{counts:?}");
            problem
        };
        assert_eq!(
            with(&[known]),
            "the receiver wants to know by a certificate who sends: name one and its key in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and \
             _CLIENT_KEY (in a cluster otlp.clientSecret)"
        );
        let problem = with(&stranger);
        assert!(
            problem.starts_with(
                "the receiver does not accept the certificate in OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE: it says "
            ),
            "{problem}"
        );
    }
    assert_eq!(collector.spans().len(), 0);
}

#[test]
fn a_certificate_that_is_renewed_is_shown_without_a_restart() {
    let (authority, clients, collector) = for_clients();
    let known = authority.certificate();
    // The one that is there at first is a stranger's.
    let strangers = Authority::new("strangers");
    let (certificate, key) = strangers.sign("agent");
    let folder = tempfile::tempdir().unwrap();
    let (shown, with) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    fs::copy(&certificate, &shown).unwrap();
    fs::copy(&key, &with).unwrap();
    let set = [
        (CERTIFICATE, text(&known)),
        (CLIENT_CERTIFICATE, text(&shown)),
        (CLIENT_KEY, text(&with)),
    ];
    let exporter = Exporter::start(settings(&collector.http(), &set), scope(), limits()).unwrap();
    exporter.offer(group(1, 3));
    while exporter.counts().failures == 0 {
        sleep(Duration::from_millis(5));
    }
    let (certificate, key) = clients.sign("agent");
    fs::copy(certificate, &shown).unwrap();
    fs::copy(key, &with).unwrap();
    let (counts, problem) = exporter.end(LONG);
    assert_eq!((counts.exported, problem), (3, None), "{counts:?}");
}

#[test]
fn a_key_of_another_certificate_is_told_at_once() {
    let authority = Authority::new("ours");
    let (certificate, _) = authority.sign("one");
    let (_, key) = authority.sign("other");
    let set = [
        (CLIENT_CERTIFICATE, text(&certificate)),
        (CLIENT_KEY, text(&key)),
    ];
    let error = Exporter::start(settings("https://localhost:1", &set), scope(), limits());
    let error = error.unwrap_err();
    assert!(
        matches!(error, ExporterError::Tls(TlsError::Unusable(_))),
        "{error}"
    );
}
