//! Selectors of pods, as `kubectl -l` has them, to the form that a CkbProbe takes, and back.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// A text that is no selector.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{0:?} is no selector such as app=ckb, app!=miner, 'tier in (a, b)', 'tier notin (a, b)', app or '!app'"
)]
pub struct SelectorError(String);

/// Reads one: requirements with commas between them, all of which must be met.
pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
    let mut selector = LabelSelector::default();
    for part in split(text) {
        let error = || SelectorError(part.trim().to_owned());
        match requirement(part.trim()).ok_or_else(error)? {
            Requirement::Equal(key, value) => {
                let labels = selector.match_labels.get_or_insert_default();
                // Two values of one label are no pod's; the API server is not asked such a thing.
                if labels
                    .insert(key, value.clone())
                    .is_some_and(|old| old != value)
                {
                    return Err(error());
                }
            }
            Requirement::Other(other) => {
                selector
                    .match_expressions
                    .get_or_insert_default()
                    .push(other);
            }
        }
    }
    Ok(selector)
}

/// Writes one.
pub fn written(selector: &LabelSelector) -> String {
    let labels = selector.match_labels.iter().flatten();
    let labels = labels.map(|(key, value)| format!("{key}={value}"));
    let others = selector.match_expressions.iter().flatten().map(|one| {
        let LabelSelectorRequirement {
            key,
            operator,
            values,
        } = one;
        let values = values.iter().flatten().map(String::as_str);
        let values = values.collect::<Vec<_>>().join(",");
        match operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        }
    });
    labels.chain(others).collect::<Vec<_>>().join(",")
}

enum Requirement {
    Equal(String, String),
    Other(LabelSelectorRequirement),
}

/// At commas that are not within parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let parts = text.split(move |one: char| {
        match one {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        one == ',' && depth == 0
    });
    parts.collect()
}

fn requirement(text: &str) -> Option<Requirement> {
    let other = |key: &str, operator: &str, values: Option<Vec<String>>| {
        is_key(key).then(|| {
            Requirement::Other(LabelSelectorRequirement {
                key: key.to_owned(),
                operator: operator.to_owned(),
                values,
            })
        })
    };
    if let Some((key, value)) = text.split_once("!=") {
        let value = value.trim();
        return other(
            key.trim(),
            "NotIn",
            Some(vec![is_value(value).then(|| value.to_owned())?]),
        );
    }
    if let Some((key, value)) = text.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value).trim();
        let key = key.trim();
        return (is_key(key) && is_value(value))
            .then(|| Requirement::Equal(key.to_owned(), value.to_owned()));
    }
    if let Some(key) = text.strip_prefix('!') {
        return other(key.trim(), "DoesNotExist", None);
    }
    let Some((key, set)) = text.split_once(char::is_whitespace) else {
        return other(text, "Exists", None);
    };
    let set = set.trim();
    let (operator, list) = match set.strip_prefix("notin") {
        Some(list) => ("NotIn", list),
        None => ("In", set.strip_prefix("in")?),
    };
    let list = list.trim().strip_prefix('(')?.strip_suffix(')')?;
    let values: Vec<String> = list
        .split(',')
        .map(|value| value.trim().to_owned())
        .collect();
    let all = values
        .iter()
        .all(|value| is_value(value) && !value.is_empty());
    all.then(|| other(key, operator, Some(values)))?
}

fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|one| one.is_ascii_alphanumeric() || "-_./".contains(one))
}

fn is_value(text: &str) -> bool {
    text.chars()
        .all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one))
}

#[cfg(test)]
mod tests;
