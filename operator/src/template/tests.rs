use super::*;

const TEMPLATE: &str = "
apiVersion: v1
kind: Pod
metadata:
  labels: {team: x, app.kubernetes.io/component: mistaken}
  annotations: {note: kept}
spec:
  hostPID: true
  tolerations: [{operator: Exists}]
  containers: [{name: agent, image: agent}]
";

fn owner() -> OwnerReference {
    OwnerReference {
        name: "n".into(),
        uid: "u".into(),
        ..OwnerReference::default()
    }
}

fn required(pod: &Pod) -> Vec<NodeSelectorTerm> {
    let affinity = pod.spec.as_ref().unwrap().affinity.clone().unwrap();
    let node = affinity.node_affinity.unwrap();
    node.required_during_scheduling_ignored_during_execution
        .unwrap()
        .node_selector_terms
}

fn only_on(node: &str) -> Option<Vec<NodeSelectorRequirement>> {
    Some(vec![NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.into()]),
    }])
}

#[test]
fn an_agent_is_the_template_with_its_name_place_owner_labels_and_hash() {
    let template = AgentTemplate::parse(TEMPLATE).unwrap();
    let pod = template.pod("n", "system", owner());
    let meta = &pod.metadata;
    assert_eq!(meta.name.as_deref(), Some("ckb-probe-agent-n"));
    assert_eq!(meta.namespace.as_deref(), Some("system"));
    assert_eq!(meta.owner_references, Some(vec![owner()]));
    let labels = meta.labels.as_ref().unwrap();
    assert_eq!(labels["team"], "x");
    assert_eq!(labels["app.kubernetes.io/component"], "agent");
    let annotations = meta.annotations.as_ref().unwrap();
    assert_eq!(annotations["note"], "kept");
    assert_eq!(annotations[TEMPLATE_HASH], template.hash());
    assert_eq!(required(&pod)[0].match_fields, only_on("n"));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.host_pid, Some(true));
    assert_eq!(spec.tolerations.unwrap().len(), 1);
}

#[test]
fn what_the_template_requires_of_nodes_stays_required_in_every_alternative() {
    let affinity = "
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions: [{key: a, operator: Exists}]
        - matchExpressions: [{key: b, operator: Exists}]
";
    let template = AgentTemplate::parse(&format!("{TEMPLATE}{affinity}")).unwrap();
    let terms = required(&template.pod("n", "system", owner()));
    assert_eq!(terms.len(), 2);
    for (term, key) in terms.iter().zip(["a", "b"]) {
        assert_eq!(term.match_expressions.as_ref().unwrap()[0].key, key);
        assert_eq!(term.match_fields, only_on("n"));
    }
}

#[test]
fn the_hash_tells_pods_apart_and_not_ways_of_writing_them() {
    let hash = |yaml: &str| AgentTemplate::parse(yaml).unwrap().hash().to_owned();
    let same = format!("# a comment\n{TEMPLATE}");
    let other = TEMPLATE.replace("image: agent", "image: agent:2");
    assert_eq!(hash(TEMPLATE), hash(&same));
    assert_ne!(hash(TEMPLATE), hash(&other));
}

#[test]
fn what_is_no_pod_is_refused() {
    let parse = |yaml: &str| AgentTemplate::parse(yaml).unwrap_err();
    assert!(matches!(
        parse("containers: ["),
        TemplateError::Unreadable(_)
    ));
    assert!(matches!(
        parse("{apiVersion: v1, kind: ConfigMap, metadata: {}}"),
        TemplateError::Unreadable(_)
    ));
    assert!(matches!(
        parse("{apiVersion: v1, kind: Pod, metadata: {}}"),
        TemplateError::NoContainers
    ));
}

#[test]
fn names_are_valid_short_and_unlike_each_other() {
    assert_eq!(agent_name("node0"), "ckb-probe-agent-node0");
    let fits = "n".repeat(63 - NAME_PREFIX.len());
    assert_eq!(agent_name(&fits), format!("{NAME_PREFIX}{fits}"));
    let domain = "compute.internal.example";
    let long = |n: u8| format!("ip-10-0-0-{n}.eu-central-1.{domain}.{domain}");
    let (a, b) = (agent_name(&long(1)), agent_name(&long(2)));
    assert_ne!(a, b);
    for node in [long(1), "a".repeat(253), format!("{}.b", "a".repeat(29))] {
        let name = agent_name(&node);
        assert!(name.len() <= NAME_LENGTH, "{name}");
        for part in name.split('.') {
            let ends = [part.chars().next(), part.chars().last()];
            assert!(
                ends.iter()
                    .all(|c| c.is_some_and(|c| c.is_ascii_alphanumeric())),
                "{name}"
            );
        }
    }
}
