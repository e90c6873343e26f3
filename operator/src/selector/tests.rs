use std::collections::BTreeMap;

use kube::core::SelectorExt;

use super::*;

fn expression(key: &str, operator: &str, values: &[&str]) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.into(),
        operator: operator.into(),
        values: (!values.is_empty()).then(|| values.iter().map(ToString::to_string).collect()),
    }
}

fn expressions(list: Vec<LabelSelectorRequirement>) -> LabelSelector {
    LabelSelector {
        match_expressions: Some(list),
        match_labels: None,
    }
}

fn matches(selector: &LabelSelector, labels: &[(&str, &str)]) -> bool {
    let labels: BTreeMap<String, String> = labels
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect();
    parse(selector).is_ok_and(|selector| selector.matches(&labels))
}

#[test]
fn every_operator_selects_what_kubernetes_says_it_does() {
    let on_app = |operator, values: &[&str]| expressions(vec![expression("app", operator, values)]);
    for (selector, ckb, other, none) in [
        (on_app("In", &["ckb", "x"]), true, false, false),
        (on_app("NotIn", &["ckb", "x"]), false, true, true),
        (on_app("Exists", &[]), true, true, false),
        (on_app("DoesNotExist", &[]), false, false, true),
    ] {
        assert_eq!(matches(&selector, &[("app", "ckb")]), ckb, "{selector:?}");
        assert_eq!(matches(&selector, &[("app", "no")]), other, "{selector:?}");
        assert_eq!(matches(&selector, &[]), none, "{selector:?}");
    }
}

#[test]
fn labels_and_expressions_must_all_hold() {
    let selector = LabelSelector {
        match_labels: Some([("app".to_string(), "ckb".to_string())].into()),
        match_expressions: Some(vec![expression("net", "NotIn", &["dev"])]),
    };
    assert!(matches(&selector, &[("app", "ckb")]));
    assert!(!matches(&selector, &[("app", "ckb"), ("net", "dev")]));
    assert!(!matches(&selector, &[("net", "main")]));
}

#[test]
fn what_means_nothing_is_an_error_and_matches_nothing() {
    assert_eq!(parse(&LabelSelector::default()), Err(SelectorError::Empty));
    for (operator, values) in [
        ("In", &[][..]),
        ("NotIn", &[][..]),
        ("Exists", &["a"][..]),
        ("DoesNotExist", &["a"][..]),
        ("Gt", &["1"][..]),
    ] {
        let selector = expressions(vec![expression("app", operator, values)]);
        let error = parse(&selector).unwrap_err();
        assert!(
            matches!(&error, SelectorError::Expression { operator: o, .. } if o == operator),
            "{error}"
        );
    }
}
