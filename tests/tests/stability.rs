//! docs/STABILITY.md: what was released is there, as it was. crds/released has what that is, a line each.

use std::{collections::BTreeSet, fs};

use ckb_probe_crds::{Reason, definitions};
use ckb_probe_kubectl::Program;
use ckb_probe_tests::fixture::repository;
use clap::{Command, CommandFactory};
use serde_json::Value;

/// What the released version had: made by this test, where `RELEASE=1` says so.
const RELEASED: &str = "crds/released/v1alpha1.txt";

/// What users read and write: the others are between operator and agents.
const RESOURCES: [&str; 2] = ["ckbprobes", "ckbprofiles"];

fn read(path: &str) -> String {
    let path = repository().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fields of a schema, each with its type and with the words that it may be; and which of them must be there.
fn fields(place: &str, schema: &Value, found: &mut BTreeSet<String>) {
    let kind = schema["type"].as_str().unwrap_or("any");
    found.insert(format!("field {place} {kind}"));
    for word in schema["enum"].as_array().into_iter().flatten() {
        found.insert(format!("word {place} {word}"));
    }
    for name in schema["required"].as_array().into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        found.insert(format!("required {place}.{name}"));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        fields(&format!("{place}.{name}"), field, found);
    }
    for (name, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[name].is_object() {
            fields(&format!("{place}{mark}"), &schema[name], found);
        }
    }
}

/// What can be set in the chart: `{}` and `[]` are filled by whoever installs it.
fn values(place: &str, value: &Value, found: &mut BTreeSet<String>) {
    let nested = value.as_object().filter(|fields| !fields.is_empty());
    let Some(nested) = nested else {
        found.insert(format!("value {place}"));
        return;
    };
    for (name, value) in nested {
        let place = match place {
            "" => name.clone(),
            place => format!("{place}.{name}"),
        };
        values(&place, value, found);
    }
}

/// The form of `-o json`: each view, and the fields of what is in it.
fn views(schema: &Value, found: &mut BTreeSet<String>) {
    for view in schema["oneOf"].as_array().into_iter().flatten() {
        let name = view["properties"]["view"]["const"].as_str();
        found.insert(format!("view {}", name.unwrap_or_default()));
    }
    for (name, form) in schema["$defs"].as_object().into_iter().flatten() {
        let mut of_form = BTreeSet::new();
        fields(name, form, &mut of_form);
        found.extend(of_form.into_iter().map(|line| format!("json {line}")));
    }
}

/// What kubectl's plugin can be told, verb by verb.
fn verbs(place: &str, command: &Command, found: &mut BTreeSet<String>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = format!("{place}{}", verb.get_name());
        found.insert(format!("verb {name}"));
        for option in verb.get_opts().filter_map(|option| option.get_long()) {
            found.insert(format!("option {name} --{option}"));
        }
        verbs(&format!("{name} "), verb, found);
    }
}

/// All that is promised to stay, as it is now.
fn present() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for definition in definitions::all() {
        let names = &definition.spec.names;
        if !RESOURCES.contains(&names.plural.as_str()) {
            continue;
        }
        for version in &definition.spec.versions {
            let place = format!("{}/{}", names.plural, version.name);
            let schema = serde_json::to_value(&version.schema).unwrap();
            fields(&place, &schema["openAPIV3Schema"], &mut found);
        }
        for short in names.short_names.iter().flatten() {
            found.insert(format!("short name {} {short}", names.plural));
        }
    }
    let chart: Value = serde_yaml::from_str(&read("charts/ckb-probe/values.yaml")).unwrap();
    values("", &chart, &mut found);
    views(
        &serde_json::from_str(&read("docs/reference/view.schema.json")).unwrap(),
        &mut found,
    );
    verbs("", &Program::command(), &mut found);
    // `make lint` holds both pages against the code.
    for line in read("docs/troubleshooting.md").lines() {
        if let Some(reason) = line.strip_prefix("### ") {
            assert!(Reason::from_word(reason).is_some(), "{reason}");
            found.insert(format!("reason {reason}"));
        }
    }
    for page in ["docs/reference/metrics.md", "docs/reference/kinds.md"] {
        for line in read(page)
            .lines()
            .filter(|line| line.starts_with("| `ckb_probe_"))
        {
            let mut cells = line.trim_matches('|').split(" | ");
            let name = cells.next().unwrap_or_default().trim().trim_matches('`');
            let kind = cells.next().unwrap_or_default().split([',', ' ']).next();
            found.insert(format!("metric {name} {}", kind.unwrap_or_default()));
        }
    }
    found
}

/// What is not as it was released: what is gone, or is of another type; and what must be there that need not before.
fn broken<'a>(released: &'a BTreeSet<String>, present: &'a BTreeSet<String>) -> Vec<&'a String> {
    let is_rule = |line: &&String| line.starts_with("required ");
    let gone = released.difference(present).filter(|line| !is_rule(line));
    let is_old = |place: &str| {
        let field = format!("field {place} ");
        released.iter().any(|line| line.starts_with(&field))
    };
    // What is new may have parts that must be there.
    let stricter = present.difference(released).filter(|line| {
        let place = line.strip_prefix("required ");
        let parent = place.and_then(|place| place.rsplit_once('.'));
        parent.is_some_and(|(parent, _)| is_old(parent))
    });
    gone.chain(stricter).collect()
}

#[test]
fn what_was_released_is_as_it_was() {
    let present = present();
    let of = |what: &str| {
        let lines = present.iter().filter(|line| line.starts_with(what));
        lines.count()
    };
    assert!(of("field ") > 100 && of("reason ") > 20 && of("metric ") > 20);
    assert!(of("value ") > 50 && of("json field ") > 50 && of("option ") > 20);
    assert!(of("view ") >= 4 && of("verb ") >= 6);
    let released: BTreeSet<String> = read(RELEASED).lines().map(str::to_owned).collect();
    let broken = broken(&released, &present);
    assert!(
        broken.is_empty(),
        "docs/STABILITY.md promises that these stay as they are: {broken:#?}"
    );
    if std::env::var_os("RELEASE").is_some() {
        let lines: Vec<&str> = present.iter().map(String::as_str).collect();
        fs::write(repository().join(RELEASED), lines.join("\n") + "\n").unwrap();
    }
    // An empty list would promise nothing.
    assert!(released.len() > 200, "write it with RELEASE=1");
}

#[test]
fn what_is_taken_away_retyped_or_asked_for_besides_is_found() {
    let lines = |lines: &[&str]| -> BTreeSet<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    };
    let released = lines(&["field a object", "field a.b string", "reason Firing"]);
    let as_it_was = ["field a object", "field a.b string", "reason Firing"];
    assert_eq!(broken(&released, &lines(&as_it_was)), [""; 0]);
    let more = [
        &as_it_was[..],
        &["field a.c object", "required a.c.d", "reason New"],
    ]
    .concat();
    assert_eq!(broken(&released, &lines(&more)), [""; 0]);
    assert_eq!(
        broken(&released, &lines(&as_it_was[..2])),
        ["reason Firing"]
    );
    let retyped = ["field a object", "field a.b integer", "reason Firing"];
    assert_eq!(broken(&released, &lines(&retyped)), ["field a.b string"]);
    let stricter = [&as_it_was[..], &["required a.b"]].concat();
    assert_eq!(broken(&released, &lines(&stricter)), ["required a.b"]);
    // What need not be there any more breaks nobody.
    let released = lines(&["field a object", "required a.b"]);
    assert_eq!(broken(&released, &lines(&["field a object"])), [""; 0]);
}
