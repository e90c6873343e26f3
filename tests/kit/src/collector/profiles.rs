//! Stacks of profiles, as the Collector wrote them down: each looked up in the tables that came with it.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

use serde_json::Value;

use super::{items, text_of};

/// A stack, and what it weighs of each type.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectedStack {
    /// Functions with the files that they are in, the innermost first.
    pub frames: Vec<(String, String)>,
    /// What is said of it.
    pub attributes: BTreeMap<String, Value>,
    /// By sample type.
    pub values: BTreeMap<String, u64>,
    /// What is said of where it is from.
    pub resource: BTreeMap<String, Value>,
}

/// Stacks of a file of JSON lines; a last line that is not whole is none yet.
pub(super) fn read(file: &Path) -> Vec<CollectedStack> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines();
    lines
        .flat_map(|line| of_request(&serde_json::from_str(line).unwrap()))
        .collect()
}

fn of_request(request: &Value) -> Vec<CollectedStack> {
    let tables = &request["dictionary"];
    let mut stacks = Vec::new();
    for place in items(&request["resourceProfiles"]) {
        let resource = referred(tables, &place["resource"]["attributes"]);
        // What is of one stack and has the same attributes is told of once, whatever type it is of.
        let mut known: HashMap<(Value, Value), usize> = HashMap::new();
        let scopes = items(&place["scopeProfiles"]).iter();
        for profile in scopes.flat_map(|scope| items(&scope["profiles"])) {
            let kind = text_at(tables, &profile["sampleType"]["typeStrindex"]);
            for sample in items(&profile["samples"]) {
                let (stack, said) = (&sample["stackIndex"], &sample["attributeIndices"]);
                let at = *known
                    .entry((stack.clone(), said.clone()))
                    .or_insert_with(|| {
                        stacks.push(CollectedStack {
                            frames: frames(tables, stack),
                            attributes: said_of(tables, said),
                            values: BTreeMap::new(),
                            resource: resource.clone(),
                        });
                        stacks.len() - 1
                    });
                let [value] = items(&sample["values"]) else {
                    panic!("one value: {sample}");
                };
                let value = text_of(value).parse().unwrap();
                let before = stacks[at].values.insert(kind.clone(), value);
                assert_eq!(before, None, "{sample}");
            }
        }
    }
    stacks
}

/// A row of a table. What is 0 is not written.
fn row<'a>(tables: &'a Value, table: &str, place: &Value) -> &'a Value {
    let place = place.as_u64().unwrap_or(0);
    &tables[table][usize::try_from(place).unwrap()]
}

fn text_at(tables: &Value, place: &Value) -> String {
    text_of(row(tables, "stringTable", place))
}

fn frames(tables: &Value, stack: &Value) -> Vec<(String, String)> {
    let places = items(&row(tables, "stackTable", stack)["locationIndices"]).iter();
    places
        .map(|place| {
            let location = row(tables, "locationTable", place);
            let [line] = items(&location["lines"]) else {
                panic!("one line: {location}");
            };
            let function = row(tables, "functionTable", &line["functionIndex"]);
            let mapping = row(tables, "mappingTable", &location["mappingIndex"]);
            (
                text_at(tables, &function["nameStrindex"]),
                text_at(tables, &mapping["filenameStrindex"]),
            )
        })
        .collect()
}

/// What is said of where it is from: in profiles, the Collector puts names and texts into the tables, too.
fn referred(tables: &Value, list: &Value) -> BTreeMap<String, Value> {
    let list = items(list).iter();
    list.map(|one| {
        let key = match one["key"].as_str() {
            Some(key) if !key.is_empty() => key.to_string(),
            _ => text_at(tables, &one["keyStrindex"]),
        };
        (key, said(tables, &one["value"]))
    })
    .collect()
}

fn said(tables: &Value, value: &Value) -> Value {
    match &value["stringValue"] {
        Value::Null => text_at(tables, &value["stringValueStrindex"]).into(),
        text => text.clone(),
    }
}

fn said_of(tables: &Value, places: &Value) -> BTreeMap<String, Value> {
    let rows = items(places)
        .iter()
        .map(|place| row(tables, "attributeTable", place));
    rows.map(|one| {
        let key = text_at(tables, &one["keyStrindex"]);
        (key, said(tables, &one["value"]))
    })
    .collect()
}
