//! Where traces and figures go: what the chart makes of `otlp`.

use super::*;

#[test]
fn agents_export_traces_to_whom_the_installation_names_and_have_no_credentials_of_others() {
    let variables = |values: &[&str]| -> Vec<String> {
        let objects = rendered(values).unwrap();
        let map = named(&objects, "ConfigMap", "ckb-probe-operator").unwrap();
        let pod = map["data"]["agent-pod.yaml"].as_str().unwrap();
        let pod: Value = serde_yaml::from_str(pod).unwrap();
        let container = &pod["spec"]["containers"][0];
        let all = container["env"].as_array().unwrap().iter();
        let of_otlp = all.filter(|one| one["name"].as_str().unwrap().starts_with("OTEL_"));
        of_otlp.map(Value::to_string).collect()
    };
    // A Secret alone names nobody.
    assert_eq!(variables(&["otlp.headersSecret=token"]), [""; 0]);
    let set = variables(&[
        "otlp.endpoint=https://collector.observability:4317",
        "otlp.protocol=grpc",
        "otlp.headersSecret=token",
    ]);
    assert_eq!(
        set,
        [
            r#"{"name":"OTEL_EXPORTER_OTLP_ENDPOINT","value":"https://collector.observability:4317"}"#,
            r#"{"name":"OTEL_EXPORTER_OTLP_PROTOCOL","value":"grpc"}"#,
            r#"{"name":"OTEL_EXPORTER_OTLP_COMPRESSION","value":"gzip"}"#,
            r#"{"name":"OTEL_EXPORTER_OTLP_HEADERS","valueFrom":{"secretKeyRef":{"key":"headers","name":"token","optional":true}}}"#,
        ]
    );
    let shown = variables(&[
        "otlp.endpoint=https://collector:4318",
        "otlp.clientSecret=agent",
    ]);
    assert_eq!(
        shown[3..],
        [
            r#"{"name":"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE","value":"/etc/ckb-probe-otlp-client/tls.crt"}"#,
            r#"{"name":"OTEL_EXPORTER_OTLP_CLIENT_KEY","value":"/etc/ckb-probe-otlp-client/tls.key"}"#,
        ]
    );
    let figures = variables(&[
        "otlp.endpoint=http://collector:4318",
        "otlp.metrics.enabled=true",
    ]);
    assert_eq!(
        figures[3..],
        [
            r#"{"name":"OTEL_METRICS_EXPORTER","value":"otlp"}"#,
            r#"{"name":"OTEL_METRIC_EXPORT_INTERVAL","value":"60000"}"#,
        ]
    );
    for wrong in [
        "otlp.metrics.intervalSeconds=0",
        "otlp.endpoint=collector:4318",
        "otlp.endpoint=http://me:word@collector:4318",
    ] {
        rendered(&[wrong]).unwrap_err();
    }
}

/// A chart with two exporters besides the default, each with Secrets of its own.
const EXPORTERS: [&str; 9] = [
    "otlp.endpoint=https://collector:4317",
    "otlp.headersSecret=of-all",
    "otlp.exporters.team-a.endpoint=https://a:4318",
    "otlp.exporters.team-a.namespaces={a,a-staging}",
    "otlp.exporters.team-a.headersSecret=of-a",
    "otlp.exporters.team-a.clientSecret=key-of-a",
    "otlp.exporters.archive.endpoint=http://archive",
    "otlp.exporters.archive.namespaces={*}",
    "otlp.exporters.archive.certificateSecret=ca-of-archive",
];

#[test]
fn each_exporter_has_its_own_receiver_and_secrets_in_the_agent_and_a_list_of_who_may_name_it() {
    let objects = rendered(&EXPORTERS).unwrap();
    let map = named(&objects, "ConfigMap", "ckb-probe-operator").unwrap();
    let pod: Value = serde_yaml::from_str(map["data"]["agent-pod.yaml"].as_str().unwrap()).unwrap();
    let container = &pod["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap().iter();
    let variable = |name: &str| -> Value {
        let mut found = variables.clone().filter(|one| one["name"] == name);
        let only = found.next().cloned().unwrap_or_default();
        assert_eq!(found.next(), None);
        match &only["valueFrom"]["secretKeyRef"] {
            Value::Null => only["value"].clone(),
            secret => secret["name"].clone(),
        }
    };
    assert_eq!(variable("EXPORTERS"), "archive,team-a");
    for (name, expected) in [
        ("ENDPOINT", json!("https://collector:4317")),
        ("HEADERS", json!("of-all")),
        ("ENDPOINT__TEAM_A", json!("https://a:4318")),
        ("PROTOCOL__TEAM_A", json!("http/protobuf")),
        ("COMPRESSION__TEAM_A", json!("gzip")),
        ("HEADERS__TEAM_A", json!("of-a")),
        ("CERTIFICATE__TEAM_A", json!(null)),
        (
            "CLIENT_KEY__TEAM_A",
            json!("/etc/ckb-probe-exporters/team-a/client/tls.key"),
        ),
        ("ENDPOINT__ARCHIVE", json!("http://archive")),
        ("HEADERS__ARCHIVE", json!(null)),
        (
            "CERTIFICATE__ARCHIVE",
            json!("/etc/ckb-probe-exporters/archive/receiver/ca.crt"),
        ),
        ("CLIENT_KEY__ARCHIVE", json!(null)),
    ] {
        let name = format!("OTEL_EXPORTER_OTLP_{name}");
        assert_eq!(variable(&name), expected, "{name}");
    }
    // Each file that is named is mounted from the Secret that it is to be of, and nothing else is.
    let mounted = |file: &str| -> Vec<String> {
        let mounts = container["volumeMounts"].as_array().unwrap().iter();
        let of_file = mounts.filter(|mount| mount["mountPath"] == file);
        let volumes = pod["spec"]["volumes"].as_array().unwrap();
        let secrets = of_file.map(|mount| {
            let mut of_mount = volumes.iter().filter(|one| one["name"] == mount["name"]);
            of_mount.next().unwrap()["secret"]["secretName"].to_string()
        });
        secrets.collect()
    };
    let folder = "/etc/ckb-probe-exporters";
    let client = mounted(&format!("{folder}/team-a/client"));
    assert_eq!(client, ["\"key-of-a\""]);
    let receiver = mounted(&format!("{folder}/archive/receiver"));
    assert_eq!(receiver, ["\"ca-of-archive\""]);
    assert_eq!(container["volumeMounts"].as_array().unwrap().len(), 2);
    assert_eq!(pod["spec"]["volumes"].as_array().unwrap().len(), 2);

    assert_eq!(
        environment(&objects, "EXPORTERS"),
        Some("archive=*;team-a=a,a-staging")
    );
    let policy = named(&objects, POLICY, "ckb-probe-exporters").unwrap();
    let admits = &policy["spec"]["validations"][0]["expression"];
    assert_eq!(
        admits.as_str().unwrap(),
        "object.spec.traces.exporter == \"archive\" || (object.spec.traces.exporter == \"team-a\" && \
         request.namespace in [\"a\",\"a-staging\"]) || false"
    );
    assert!(named(&objects, BINDING, "ckb-probe-exporters").is_some());
}

#[test]
fn without_named_exporters_nobody_may_name_one() {
    let objects = rendered(&[]).unwrap();
    assert_eq!(environment(&objects, "EXPORTERS"), None);
    let policy = named(&objects, POLICY, "ckb-probe-exporters").unwrap();
    assert_eq!(policy["spec"]["validations"][0]["expression"], "false");
    let off = rendered(&["admissionPolicy.enabled=false"]).unwrap();
    assert_eq!(named(&off, POLICY, "ckb-probe-exporters"), None);
}

#[test]
fn what_is_no_exporter_is_refused() {
    let one = |name: &str, rest: &str| {
        let values = [
            format!("otlp.exporters.{name}.endpoint=http://a:1"),
            format!("otlp.exporters.{name}.namespaces={{a}}"),
            format!("otlp.exporters.{name}.{rest}"),
        ];
        rendered(&values.each_ref().map(String::as_str))
    };
    one("a", "protocol=grpc").unwrap();
    for (name, rest) in [
        ("default", "protocol=grpc"),
        ("Team", "protocol=grpc"),
        ("1a", "protocol=grpc"),
        ("a", "protocol=thrift"),
        ("a", "endpoint=http://me:word@a:1"),
        ("a", "endpoint="),
        ("a", "namespaces={A}"),
        ("a", "namespaces="),
        ("a", "secret=x"),
    ] {
        one(name, rest).unwrap_err();
    }
    let many: Vec<String> = (0..9)
        .flat_map(|number| {
            let exporter = format!("otlp.exporters.e{number}");
            [
                format!("{exporter}.endpoint=http://a:1"),
                format!("{exporter}.namespaces={{a}}"),
            ]
        })
        .collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    rendered(&many[..16]).unwrap();
    rendered(&many).unwrap_err();
}

#[test]
fn agents_may_reach_whom_traces_go_to_and_nobody_else() {
    let policy = |values: &[&str]| {
        let restricted = [
            "networkPolicy.enabled=true",
            "networkPolicy.apiServerCIDRs={10.0.0.1/32}",
        ];
        let objects = rendered(&[&restricted[..], values].concat()).unwrap();
        let policy = named(&objects, "NetworkPolicy", "ckb-probe-agent").unwrap();
        policy["spec"]["egress"].as_array().unwrap().clone()
    };
    assert_eq!(policy(&[]).len(), 1);
    let egress = policy(&["otlp.endpoint=http://collector:4318"]);
    assert_eq!(egress.len(), 3);
    assert_eq!(
        egress[1]["ports"],
        json!([{"port": 4318, "protocol": "TCP"}])
    );
    let egress = policy(&EXPORTERS);
    assert_eq!(
        egress[1]["ports"],
        json!([
            {"port": 4317, "protocol": "TCP"},
            {"port": 80, "protocol": "TCP"},
            {"port": 4318, "protocol": "TCP"},
        ])
    );
}

#[test]
fn profiles_are_pushed_as_pyroscope_takes_them_unless_a_value_that_says_alpha_asks_for_otlp() {
    let form = |values: &[&str]| {
        let objects = rendered(values).unwrap();
        environment(&objects, "PROFILES_PUSH_FORM").map(str::to_owned)
    };
    let url = "profiles.push.url=http://collector.observability:4318";
    assert_eq!(form(&[]), None);
    assert_eq!(form(&[url]).as_deref(), Some("pyroscope"));
    let alpha = "profiles.push.form=otlp-alpha";
    assert_eq!(form(&[url, alpha]).as_deref(), Some("otlp-alpha"));
    rendered(&[url, "profiles.push.form=otlp"]).unwrap_err();
}
