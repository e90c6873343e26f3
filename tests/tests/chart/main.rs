//! What the chart and the code must say alike, and what the chart makes of its values.

mod otlp;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use ckb_probe_crds::Kind;
use ckb_probe_tests::chart::{named, rendered, root};
use serde_json::{Value, json};

fn chart(file: &str) -> String {
    read(&root().join(file))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn kinds() -> BTreeSet<String> {
    let kinds = Kind::ALL.iter().map(|kind| kind.as_str().to_owned());
    kinds.collect()
}

/// The value of a variable in the operator's environment.
fn environment<'a>(objects: &'a [Value], name: &str) -> Option<&'a str> {
    let operator = named(objects, "Deployment", "ckb-probe-operator").unwrap();
    let container = &operator["spec"]["template"]["spec"]["containers"][0];
    let mut variables = container["env"].as_array().unwrap().iter();
    let variable = variables.find(|variable| variable["name"] == name)?;
    variable["value"].as_str()
}

const KINDS_POLICY: &str = "ckb-probe-kinds";
const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// The kinds that the API server refuses.
fn refused(objects: &[Value]) -> Vec<&str> {
    let Some(policy) = named(objects, POLICY, KINDS_POLICY) else {
        return Vec::new();
    };
    let validations = policy["spec"]["validations"].as_array().unwrap();
    let expressions = validations.iter().map(|one| {
        let expression = one["expression"].as_str().unwrap();
        let kind = expression
            .strip_prefix("!object.spec.probes.exists(probe, has(probe.")
            .and_then(|rest| rest.strip_suffix("))"));
        kind.unwrap_or_else(|| panic!("{expression}"))
    });
    expressions.collect()
}

/// As `helm upgrade --reuse-values` has it, which takes the values of the earlier chart for all that there are.
#[test]
fn an_upgrade_that_leaves_new_values_out_is_refused_before_anything_changes() {
    for value in [
        "multiTenant",
        "kinds",
        "admissionPolicy",
        "limits.minReportInterval",
        "limits.profileBytesPerNamespace",
        "agent.maxOverheadFloor",
        "agent.maxNodePercent",
        "agent.kernelFunctions",
        "agent.blockIo",
        "otlp",
        "profiles.push.form",
        "alerts",
        "dashboards",
    ] {
        let without = format!("{value}=null");
        let refused = rendered(&[&without]).unwrap_err();
        let name = value.rsplit('.').next().unwrap();
        assert!(
            refused.contains(&format!("missing property '{name}'")),
            "{value}: {refused}"
        );
    }
}

#[test]
fn the_chart_knows_every_kind() {
    let schema: Value = serde_json::from_str(&chart("values.schema.json")).unwrap();
    let known = &schema["properties"]["kinds"]["properties"]["admitted"]["items"]["enum"];
    let known: BTreeSet<String> = serde_json::from_value(known.clone()).unwrap();
    assert_eq!(known, kinds());

    let helpers = chart("templates/_helpers.tpl");
    let (_, every) = helpers
        .split_once("define \"ckb-probe.everyKind\" -}}")
        .unwrap();
    let (every, _) = every.split_once("{{").unwrap();
    let every = every.trim().split(',').map(str::to_owned);
    assert_eq!(every.collect::<BTreeSet<_>>(), kinds());
}

#[test]
fn every_kind_is_admitted_unless_something_else_is_said() {
    let objects = rendered(&[]).unwrap();
    assert_eq!(named(&objects, POLICY, KINDS_POLICY), None);
    assert_eq!(named(&objects, BINDING, KINDS_POLICY), None);
    assert_eq!(environment(&objects, "KINDS"), None);
    assert_eq!(environment(&objects, "EVERY_KIND_IN"), None);
}

#[test]
fn where_namespaces_do_not_trust_each_other_no_kind_looks_at_the_whole_node() {
    let objects = rendered(&["multiTenant=true"]).unwrap();
    assert_eq!(refused(&objects), ["kernelFunctions", "blockIo"]);
    let admitted = environment(&objects, "KINDS");
    assert_eq!(
        admitted,
        Some("rocksdb,functions,usdt,syscalls,tcp,processes,chain,profile")
    );
    let binding = named(&objects, BINDING, KINDS_POLICY).unwrap();
    let spec = json!({ "policyName": KINDS_POLICY, "validationActions": ["Deny"] });
    assert_eq!(binding["spec"], spec);
    let policy = named(&objects, POLICY, KINDS_POLICY).unwrap();
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");

    // The operator goes on without the policy.
    let objects = rendered(&["multiTenant=true", "admissionPolicy.enabled=false"]).unwrap();
    assert_eq!(named(&objects, POLICY, KINDS_POLICY), None);
    assert!(environment(&objects, "KINDS").is_some());
}

#[test]
fn kinds_are_admitted_by_name_and_all_of_them_in_some_namespaces() {
    let values = [
        "multiTenant=true",
        "kinds.admitted={rocksdb,blockIo}",
        "kinds.allIn={nodes,kube-system}",
    ];
    let objects = rendered(&values).unwrap();
    let others = [
        "functions",
        "usdt",
        "kernelFunctions",
        "syscalls",
        "tcp",
        "processes",
        "chain",
        "profile",
    ];
    assert_eq!(refused(&objects), others);
    assert_eq!(environment(&objects, "KINDS"), Some("rocksdb,blockIo"));
    assert_eq!(
        environment(&objects, "EVERY_KIND_IN"),
        Some("nodes,kube-system")
    );
    let binding = named(&objects, BINDING, KINDS_POLICY).unwrap();
    let key = "kubernetes.io/metadata.name";
    let but = json!({ "key": key, "operator": "NotIn", "values": ["nodes", "kube-system"] });
    let selected = &binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"];
    assert_eq!(selected, &json!([but]));

    let one = ["multiTenant=true", "operator.watchNamespace=ckb"];
    let objects = rendered(&one).unwrap();
    let binding = named(&objects, BINDING, KINDS_POLICY).unwrap();
    let only = json!({ "key": key, "operator": "In", "values": ["ckb"] });
    let selected = &binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"];
    assert_eq!(selected, &json!([only]));
}

#[test]
fn what_is_no_kind_and_no_namespace_is_refused() {
    for wrong in ["kinds.admitted={disks}", "kinds.allIn={A}"] {
        let said = rendered(&[wrong]).unwrap_err();
        assert!(
            said.contains("values don't meet the specifications"),
            "{wrong}: {said}"
        );
    }
}

/// Where an account has a right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Where {
    /// In all namespaces, and of what belongs to none.
    Everywhere,
    /// In the namespace of the release.
    Home,
    /// In the namespace that is watched.
    Watched,
}

/// What the rendered roles give an account: by where, and what, the verbs.
fn rights(objects: &[Value], account: &str) -> BTreeMap<(Where, String), BTreeSet<String>> {
    let mut rights: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    let kind_of = |object: &Value| object["kind"].as_str().unwrap_or_default().to_owned();
    for binding in objects
        .iter()
        .filter(|object| kind_of(object).ends_with("RoleBinding"))
    {
        let subjects = binding["subjects"].as_array().unwrap();
        if !subjects.iter().any(|subject| subject["name"] == account) {
            continue;
        }
        let place = match binding["metadata"]["namespace"].as_str() {
            None => Where::Everywhere,
            Some("system") => Where::Home,
            Some("watched") => Where::Watched,
            Some(other) => panic!("a binding in {other}"),
        };
        let role = &binding["roleRef"];
        let role = objects.iter().find(|object| {
            object["kind"] == role["kind"]
                && object["metadata"]["name"] == role["name"]
                && object["metadata"]["namespace"] == binding["metadata"]["namespace"]
        });
        for rule in role.unwrap()["rules"].as_array().unwrap() {
            let words = |field: &str| -> Vec<String> {
                serde_json::from_value(rule[field].clone()).unwrap_or_default()
            };
            let names = words("resourceNames").concat();
            for (group, resource) in words("apiGroups")
                .iter()
                .flat_map(|group| words("resources").into_iter().map(move |one| (group, one)))
            {
                let what = format!("{group}/{resource} {names}");
                let what = what.trim().to_owned();
                rights
                    .entry((place, what))
                    .or_default()
                    .extend(words("verbs"));
            }
        }
    }
    rights
}

/// The same, written down.
fn expected(lines: &[(Where, &str, &str)]) -> BTreeMap<(Where, String), BTreeSet<String>> {
    let verbs = |verbs: &str| verbs.split(' ').map(str::to_owned).collect();
    let lines = lines.iter();
    lines
        .map(|(place, what, may)| ((*place, (*what).to_owned()), verbs(may)))
        .collect()
}

const OPERATOR: &str = "ckb-probe-operator";
const AGENT: &str = "ckb-probe-agent";

/// What docs/security.md says that the operator may do, where it watches these namespaces.
fn operators(watched: Where) -> BTreeMap<(Where, String), BTreeSet<String>> {
    expected(&[
        (watched, "ckbprobe.dev/ckbprobes", "list watch"),
        (watched, "ckbprobe.dev/ckbprobes/status", "patch"),
        (
            watched,
            "ckbprobe.dev/ckbprofiles",
            "get list watch create patch delete",
        ),
        (watched, "/pods", "list watch"),
        (watched, "events.k8s.io/events", "create patch"),
        (Where::Everywhere, "/nodes", "list watch"),
        (
            Where::Home,
            "ckbprobe.dev/nodeprobes",
            "list watch create patch delete",
        ),
        (
            Where::Home,
            "ckbprobe.dev/profileparts",
            "get list watch delete",
        ),
        (Where::Home, "/pods", "list watch create delete"),
        (Where::Home, "events.k8s.io/events", "create"),
        (
            Where::Home,
            "coordination.k8s.io/leases",
            "get create update",
        ),
        (Where::Home, "apps/deployments ckb-probe-operator", "get"),
    ])
}

fn agents() -> BTreeMap<(Where, String), BTreeSet<String>> {
    expected(&[
        (Where::Home, "ckbprobe.dev/nodeprobes", "list watch"),
        (Where::Home, "ckbprobe.dev/nodeprobes/status", "patch"),
        (Where::Home, "ckbprobe.dev/profileparts", "create"),
    ])
}

#[test]
fn operator_and_agent_have_the_rights_that_are_told_and_no_others() {
    let objects = rendered(&[]).unwrap();
    assert_eq!(rights(&objects, OPERATOR), operators(Where::Everywhere));
    assert_eq!(rights(&objects, AGENT), agents());
    // In one namespace: of the whole cluster, nodes alone.
    let objects = rendered(&["operator.watchNamespace=watched"]).unwrap();
    assert_eq!(rights(&objects, OPERATOR), operators(Where::Watched));
    assert_eq!(rights(&objects, AGENT), agents());
    // Who protects metrics has tokens judged.
    let objects = rendered(&["metrics.secure=true"]).unwrap();
    let reviews = expected(&[
        (
            Where::Everywhere,
            "authentication.k8s.io/tokenreviews",
            "create",
        ),
        (
            Where::Everywhere,
            "authorization.k8s.io/subjectaccessreviews",
            "create",
        ),
    ]);
    for (account, mut others) in [(OPERATOR, operators(Where::Everywhere)), (AGENT, agents())] {
        others.extend(reviews.clone());
        assert_eq!(rights(&objects, account), others);
    }
}

#[test]
fn metrics_are_protected_where_tenants_are_unless_somebody_says_otherwise() {
    let protects = |values: &[&str]| {
        let objects = rendered(values).unwrap();
        let pod = agent_pod(&objects).to_string();
        let set = pod.contains("METRICS_SECURE");
        let reads = named(&objects, "ClusterRole", "ckb-probe-metrics-reader").is_some();
        assert_eq!(set, reads, "{values:?}");
        set
    };
    assert!(!protects(&[]));
    assert!(protects(&["metrics.secure=true"]));
    assert!(protects(&["multiTenant=true"]));
    assert!(!protects(&["multiTenant=true", "metrics.secure=false"]));
    assert!(protects(&["multiTenant=true", "metrics.secure=null"]));
}

/// The pod template of the agents.
fn agent_pod(objects: &[Value]) -> Value {
    let map = named(objects, "ConfigMap", OPERATOR).unwrap();
    serde_yaml::from_str(map["data"]["agent-pod.yaml"].as_str().unwrap()).unwrap()
}

#[test]
fn the_agents_root_is_read_only_and_its_seccomp_profile_the_runtimes_whatever_else_is_set() {
    for values in [&[][..], &["agent.sysAdmin=true", "metrics.secure=true"]] {
        let pod = agent_pod(&rendered(values).unwrap());
        let spec = &pod["spec"];
        let profile = json!({ "type": "RuntimeDefault" });
        assert_eq!(spec["securityContext"]["seccompProfile"], profile);
        let containers = spec["containers"].as_array().unwrap();
        assert_eq!(containers.len(), 1);
        assert_eq!(spec["initContainers"], Value::Null);
        let context = &containers[0]["securityContext"];
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
        // Neither is told otherwise nearer to the process, and nothing of the host is mounted.
        assert_eq!(context["seccompProfile"], Value::Null);
        assert_eq!(context["privileged"], Value::Null);
        let volumes = spec["volumes"].as_array().into_iter().flatten();
        assert_eq!(
            volumes.filter(|one| one["hostPath"] != Value::Null).count(),
            0
        );
        assert_eq!(spec["hostNetwork"], Value::Null);
    }
}

#[test]
fn a_network_policy_admits_scrapes_of_metrics_and_nothing_else() {
    assert!(
        !rendered(&[])
            .unwrap()
            .iter()
            .any(|one| one["kind"] == "NetworkPolicy")
    );
    let values = [
        "networkPolicy.enabled=true",
        "networkPolicy.metricsFrom[0].podSelector.matchLabels.app=prometheus",
        "networkPolicy.apiServerCIDRs={10.0.0.1/32}",
    ];
    let objects = rendered(&values).unwrap();
    let from = json!([{ "podSelector": { "matchLabels": { "app": "prometheus" } } }]);
    for (component, port) in [("operator", 8080), ("agent", 9464)] {
        let name = format!("ckb-probe-{component}");
        let spec = &named(&objects, "NetworkPolicy", &name).unwrap()["spec"];
        assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
        let ports = json!([{ "port": port, "protocol": "TCP" }]);
        assert_eq!(spec["ingress"], json!([{ "ports": ports, "from": from }]));
        let egress = spec["egress"].as_array().unwrap();
        assert_eq!(egress.len(), 1);
        assert_eq!(
            egress[0]["to"],
            json!([{ "ipBlock": { "cidr": "10.0.0.1/32" } }])
        );
        // It is about these pods: a policy that selects none admits everybody.
        let labels = spec["podSelector"]["matchLabels"].as_object().unwrap();
        let pod = match component {
            "agent" => agent_pod(&objects),
            _ => named(&objects, "Deployment", OPERATOR).unwrap()["spec"]["template"].clone(),
        };
        assert!(labels.len() > 1);
        for (label, value) in labels {
            assert_eq!(&pod["metadata"]["labels"][label], value, "{name}: {label}");
        }
        let opened = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
        let metrics = opened.iter().find(|one| one["name"] == "metrics").unwrap();
        assert_eq!(metrics["containerPort"], port);
    }
    assert_eq!(
        objects
            .iter()
            .filter(|one| one["kind"] == "NetworkPolicy")
            .count(),
        2
    );
}

/// What Kubernetes 1.30 serves, of what is used: of the first, policies of admission since 1.30.
const SERVED_BY_1_30: [&str; 8] = [
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "apps/v1",
    "networking.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "v1",
];

/// The functions and macros of CEL that it has, of those that are used: `optional` since 1.29, the others since 1.25 or before.
const CEL_OF_1_30: [&str; 14] = [
    "all",
    "contains",
    "double",
    "duration",
    "exists",
    "exists_one",
    "has",
    "matches",
    "orValue",
    "quantity",
    "size",
    "startsWith",
    "string",
    "substring",
];

/// All expressions below a value.
fn expressions<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match (name.as_str(), field) {
                    ("rule" | "expression" | "messageExpression", Value::String(text)) => {
                        found.push(text);
                    }
                    _ => expressions(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// What an expression calls: names before an opening bracket, outside of its strings.
fn calls(expression: &str) -> BTreeSet<&str> {
    let is_named = |letter: char| letter.is_alphanumeric() || letter == '_';
    let mut names = BTreeSet::new();
    for code in expression.split('\'').step_by(2) {
        for (bracket, _) in code.match_indices('(') {
            let before = &code[..bracket];
            let rest = before.trim_end_matches(is_named);
            names.insert(&before[rest.len()..]);
        }
    }
    names.remove("");
    names
}

#[test]
fn kubernetes_1_30_has_each_api_and_each_function_that_the_chart_uses() {
    let values = [
        "multiTenant=true",
        "metrics.secure=true",
        "networkPolicy.enabled=true",
        "operator.replicas=2",
    ];
    let objects = rendered(&values).unwrap();
    let apis = objects
        .iter()
        .map(|one| one["apiVersion"].as_str().unwrap());
    for api in apis {
        assert!(SERVED_BY_1_30.contains(&api), "{api}");
    }
    let mut found = Vec::new();
    objects.iter().for_each(|one| expressions(one, &mut found));
    assert!(found.len() > 40, "{} expressions", found.len());
    for expression in found {
        for call in calls(expression) {
            assert!(CEL_OF_1_30.contains(&call), "{call} in {expression}");
        }
    }
    let called = calls("has(self.a) && size(self.b.filter(x, x in ['f(']) ) > duration('1s')");
    assert_eq!(
        called,
        BTreeSet::from(["duration", "filter", "has", "size"])
    );
}
