use super::*;

fn settings(
    endpoint: Option<&str>,
    variables: &[(&str, &str)],
) -> Result<Option<Settings>, SettingsError> {
    Settings::new(endpoint, &|name| {
        let mut known = variables.iter();
        known
            .find(|(one, _)| *one == name)
            .map(|(_, value)| value.to_string())
    })
}

fn target(endpoint: Option<&str>, variables: &[(&str, &str)]) -> String {
    let settings = settings(endpoint, variables).unwrap().unwrap();
    settings.target.to_string()
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

#[test]
fn nothing_goes_anywhere_unless_somebody_says_where() {
    assert_eq!(settings(None, &[]), Ok(None));
    assert_eq!(settings(None, &[(PROTOCOL, "grpc")]), Ok(None));
    assert_eq!(settings(None, &[(ENDPOINT, " ")]), Ok(None));
    let set = (ENDPOINT, "http://a:1");
    for off in [
        ("OTEL_TRACES_EXPORTER", "none"),
        ("OTEL_SDK_DISABLED", "TRUE"),
    ] {
        assert_eq!(settings(None, &[set, off]), Ok(None));
        assert!(settings(Some("http://a:1"), &[off]).unwrap().is_some());
    }
    let other = settings(None, &[set, ("OTEL_TRACES_EXPORTER", "zipkin")]);
    assert!(matches!(other, Err(SettingsError::Unknown { .. })));
}

#[test]
fn where_they_go_is_as_the_specification_has_it() {
    assert_eq!(
        target(Some("http://a:4318"), &[]),
        "http://a:4318/v1/traces"
    );
    assert_eq!(
        target(None, &[(ENDPOINT, "https://a/otlp/")]),
        "https://a/otlp/v1/traces"
    );
    let whole = (TRACES_ENDPOINT, "http://a:1/x/y");
    assert_eq!(
        target(None, &[(ENDPOINT, "http://b:2"), whole]),
        "http://a:1/x/y"
    );
    assert_eq!(
        target(None, &[(TRACES_ENDPOINT, "http://a:1")]),
        "http://a:1/"
    );
    assert_eq!(target(Some("http://c:3"), &[whole]), "http://c:3/v1/traces");
    let grpc = (PROTOCOL, "grpc");
    assert_eq!(
        target(None, &[(ENDPOINT, "http://a:4317"), grpc]),
        format!("http://a:4317{EXPORT}")
    );
    assert_eq!(
        target(None, &[(ENDPOINT, "a:4317"), grpc]),
        format!("https://a:4317{EXPORT}")
    );
    let insecure = ("OTEL_EXPORTER_OTLP_INSECURE", "true");
    assert_eq!(
        target(None, &[(ENDPOINT, "a:4317"), grpc, insecure]),
        format!("http://a:4317{EXPORT}")
    );
    assert_eq!(
        target(None, &[(ENDPOINT, "http://[::1]:4318")]),
        "http://[::1]:4318/v1/traces"
    );
}

#[test]
fn what_is_no_address_is_refused_with_what_to_write() {
    for wrong in [
        "a:4318",
        "ftp://a",
        "http://",
        "unix:///a",
        "http://a b",
        "4318",
        "http://:80",
    ] {
        let error = settings(Some(wrong), &[]).unwrap_err();
        assert!(
            matches!(error, SettingsError::Endpoint { .. }),
            "{wrong}: {error}"
        );
        assert!(
            error.to_string().contains("write http://HOST:PORT"),
            "{error}"
        );
    }
    let error = settings(None, &[(ENDPOINT, "http://me:secret@a:1")]).unwrap_err();
    assert_eq!(
        error,
        SettingsError::Credentials {
            name: ENDPOINT.to_string()
        }
    );
    assert!(!error.to_string().contains("secret"));
}

#[test]
fn headers_are_read_and_never_printed() {
    let set = [(HEADERS, "Authorization=Basic%20c2VjcmV0, x-scope-orgid=7,")];
    let settings = settings(Some("http://a:1"), &set).unwrap().unwrap();
    let headers: Vec<_> = settings
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    assert_eq!(
        headers,
        [("authorization", "Basic c2VjcmV0"), ("x-scope-orgid", "7")]
    );
    assert!(!format!("{settings:?}").contains("c2VjcmV0"));
}

#[test]
fn a_header_that_cannot_be_read_is_named_by_its_place_alone() {
    for wrong in [
        "a=1,secret",
        "a=1,=secret",
        "a=1,b=%zzsecret",
        "a=1,b c=secret",
        "a=1,b=%0asecret",
    ] {
        let error = settings(Some("http://a:1"), &[(HEADERS, wrong)]).unwrap_err();
        let name = HEADERS.to_string();
        assert_eq!(error, SettingsError::Header { name, number: 2 });
        assert!(!error.to_string().contains("secret"));
    }
}

#[test]
fn the_rest_is_as_the_specification_has_it_and_traces_come_first() {
    let all = [
        (PROTOCOL, "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "/me.pem"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/me.key"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "service.name=other,deployment.environment=test%20net",
        ),
        ("OTEL_SERVICE_NAME", "ckb"),
    ];
    let settings = settings(Some("http://a:1"), &all).unwrap().unwrap();
    assert_eq!(settings.protocol, Protocol::Grpc);
    assert_eq!(settings.timeout, Duration::from_millis(2500));
    assert_eq!(settings.compression, Compression::Gzip);
    assert_eq!(settings.certificate, Some("/ca.pem".into()));
    assert_eq!(settings.client, Some(("/me.pem".into(), "/me.key".into())));
    let expected: Attributes = vec![
        ("deployment.environment".into(), "test net".into()),
        ("service.name".into(), "ckb".into()),
    ];
    assert_eq!(settings.resource, expected);
    assert_eq!(settings.receiver(), "a:1 by gRPC");
}

#[test]
fn what_is_not_there_is_refused_with_what_is() {
    for (name, text) in [
        (PROTOCOL, "http/json"),
        ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "0"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
    ] {
        let error = settings(Some("http://a:1"), &[(name, text)]).unwrap_err();
        assert!(error.to_string().starts_with(name), "{error}");
    }
    let half = settings(
        Some("http://a:1"),
        &[("OTEL_EXPORTER_OTLP_CLIENT_KEY", "/a")],
    );
    assert_eq!(half, Err(SettingsError::HalfClient));
}

#[test]
fn metrics_go_where_somebody_asks_for_them_and_by_variables_of_their_own() {
    let of = |endpoint: Option<&str>, set: &[(&str, &str)]| {
        let settings = Settings::of(Signal::Metrics, endpoint, &|name| {
            let mut known = set.iter();
            known
                .find(|(one, _)| *one == name)
                .map(|(_, value)| value.to_string())
        });
        let settings = settings.unwrap();
        settings.map(|settings| settings.target.to_string())
    };
    let (on, to) = (("OTEL_METRICS_EXPORTER", "otlp"), (ENDPOINT, "http://a:1"));
    // Not every receiver of spans takes metrics.
    assert_eq!(of(None, &[to]), None);
    assert_eq!(of(Some("http://a:1"), &[]), None);
    let expected = Some("http://a:1/v1/metrics".to_string());
    assert_eq!(of(None, &[to, on]), expected);
    assert_eq!(of(Some("http://a:1"), &[on]), expected);
    let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://b:2/x");
    assert_eq!(of(None, &[to, own]), Some("http://b:2/x".to_string()));
    assert_eq!(of(None, &[own, ("OTEL_METRICS_EXPORTER", "none")]), None);
    assert_eq!(of(None, &[own, ("OTEL_SDK_DISABLED", "true")]), None);
    let by_grpc = of(None, &[to, on, (PROTOCOL, "grpc")]).unwrap();
    assert_eq!(
        by_grpc,
        "http://a:1/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
    );
}

#[test]
fn metrics_are_exported_each_minute_and_at_most_each_second() {
    let interval = |text: Option<&str>| metric_interval(&|_| text.map(str::to_string));
    assert_eq!(interval(None), Ok(Duration::from_secs(60)));
    assert_eq!(interval(Some("5000")), Ok(Duration::from_secs(5)));
    assert_eq!(interval(Some("1")), Ok(Duration::from_secs(1)));
    assert!(interval(Some("1m")).is_err());
}

#[test]
fn a_named_exporter_has_its_own_variables_and_none_of_anybody_elses() {
    let variables = [
        (ENDPOINT, "https://default:1"),
        (HEADERS, "Authorization=default"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT__TEAM_A", "https://a:1"),
        ("OTEL_EXPORTER_OTLP_HEADERS__TEAM_A", "x=a"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT__TEAM", "https://team:1"),
        ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE__TEAM", "t/tls.crt"),
        ("OTEL_EXPORTER_OTLP_CLIENT_KEY__TEAM", "t/tls.key"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT__TEAM__A", "https://two:1"),
    ];
    let of = |exporter: &str| {
        let variable = |name: &str| {
            let mut known = variables.iter();
            let found = known.find(|(one, _)| *one == name);
            found.map(|(_, value)| value.to_string())
        };
        let settings = Settings::of_exporter(exporter, &variable).unwrap();
        settings.map(|one| (one.target.to_string(), one.headers.len(), one.client))
    };
    let to = |host: &str| format!("https://{host}:1/v1/traces");
    let client = Some(("t/tls.crt".into(), "t/tls.key".into()));
    assert_eq!(of("team-a"), Some((to("a"), 1, None)));
    assert_eq!(of("team"), Some((to("team"), 0, client)));
    assert_eq!(of("team--a"), Some((to("two"), 0, None)));
    assert_eq!(of("other"), None);
}
