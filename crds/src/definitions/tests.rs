use serde_json::Value;

use super::*;

/// The whole of a definition.
fn json(definition: &CustomResourceDefinition) -> Value {
    serde_json::to_value(definition).unwrap()
}

/// Everything below a value that is an object, with its place.
fn objects<'a>(place: &str, value: &'a Value, found: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(fields) => {
            found.push((place.to_owned(), value));
            for (name, field) in fields {
                objects(&format!("{place}.{name}"), field, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                objects(&format!("{place}[{index}]"), item, found);
            }
        }
        _ => {}
    }
}

fn places(definition: &CustomResourceDefinition, which: impl Fn(&Value) -> bool) -> Vec<String> {
    let json = json(definition);
    let mut found = Vec::new();
    objects("", &json, &mut found);
    let those = found.into_iter().filter(|(_, value)| which(value));
    those.map(|(place, _)| place).collect()
}

fn has_rules(value: &Value) -> bool {
    value.get("x-kubernetes-validations").is_some()
}

#[test]
fn only_what_people_write_has_rules() {
    let [ckbprobe, nodeprobe, ..] = all();
    assert_eq!(places(&nodeprobe, has_rules), [""; 0]);
    assert!(places(&ckbprobe, has_rules).len() > 9);
    assert!(
        places(&NodeProbe::crd(), has_rules).len() > 1,
        "there is nothing to remove"
    );
}

#[test]
fn nothing_but_the_rules_is_removed() {
    let [_, stripped, ..] = all();
    let mut whole = json(&NodeProbe::crd());
    fn strip(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("x-kubernetes-validations");
                fields.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut whole);
    assert_eq!(json(&stripped), whole);
}

#[test]
fn every_list_and_every_map_has_a_bound() {
    let unbound = |value: &Value| {
        let is = |name| value.get("type").and_then(Value::as_str) == Some(name);
        let lacks = |bound| value.get(bound).is_none();
        let is_map = is("object") && value.get("additionalProperties").is_some();
        is("array") && lacks("maxItems") || is_map && lacks("maxProperties")
    };
    for definition in all() {
        let unbound = places(&definition, unbound);
        // Kubernetes bounds an object's labels by its size, and a selector's are compared with them once.
        let unbound = unbound.iter().filter(|at| !at.ends_with(".matchLabels"));
        assert_eq!(unbound.collect::<Vec<_>>(), [""; 0]);
    }
}
