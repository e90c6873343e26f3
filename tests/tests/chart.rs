//! What the chart and the code must say alike, and what the chart makes of its values.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use ckb_probe_crds::Kind;
use serde::Deserialize as _;
use serde_json::{Value, json};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../charts/ckb-probe")
}

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

/// The pinned helm, or whatever this machine has: scripts/setup.sh cluster installs it.
fn helm() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = home.map(|home| home.join(".cache/ckb-probe"));
    let cached = cache.and_then(|cache| fs::read_dir(cache).ok());
    let mut helms = cached.into_iter().flatten().filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_one = path.file_name()?.to_str()?.starts_with("helm-");
        let helm = path.join("bin/helm");
        (is_one && helm.exists()).then_some(helm)
    });
    helms.next().unwrap_or("helm".into())
}

/// The objects that the chart makes with these values, or what helm says against them.
fn rendered(values: &[&str]) -> Result<Vec<Value>, String> {
    let mut command = Command::new(helm());
    command
        .args(["template", "ckb-probe", "--namespace", "system"])
        .arg(root());
    for value in values {
        command.args(["--set", value]);
    }
    let output = command.output().expect("helm: see scripts/setup.sh");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let documents = serde_yaml::Deserializer::from_slice(&output.stdout);
    let objects = documents.map(|document| Value::deserialize(document).unwrap());
    Ok(objects.filter(|object| !object.is_null()).collect())
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    let mut objects = objects.iter();
    objects.find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
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
        Some("rocksdb,functions,usdt,syscalls,tcp,processes,profile")
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
