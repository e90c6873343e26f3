//! Label selectors, checked before they are used.
//!
//! What Kubernetes calls invalid (an unknown operator, `In` without values) never matches anything here: it
//! is an error, so that no one is probed by mistake.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;

/// Why a selector selects nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It would match every pod of the namespace.
    #[error("target.selector is empty and would match every pod of the namespace")]
    Empty,
    /// An expression that Kubernetes itself would refuse.
    #[error("target.selector: {operator} on the label {key:?} {problem}")]
    Expression {
        /// The label's key.
        key: String,
        /// The operator as written.
        operator: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// The selector, if every part of it means something and it has at least one part.
pub fn parse(selector: &LabelSelector) -> Result<Selector, SelectorError> {
    let requirements = selector.match_expressions.iter().flatten();
    for requirement in requirements {
        check(requirement)?;
    }
    let selector = Selector::try_from(selector.clone()).map_err(|_| SelectorError::Empty)?;
    if selector.selects_all() {
        return Err(SelectorError::Empty);
    }
    Ok(selector)
}

fn check(requirement: &LabelSelectorRequirement) -> Result<(), SelectorError> {
    let has_values = requirement.values.as_ref().is_some_and(|v| !v.is_empty());
    let problem = match requirement.operator.as_str() {
        "In" | "NotIn" if !has_values => "needs values",
        "Exists" | "DoesNotExist" if has_values => "takes no values",
        "In" | "NotIn" | "Exists" | "DoesNotExist" => return Ok(()),
        _ => "is no operator: In, NotIn, Exists and DoesNotExist are",
    };
    Err(SelectorError::Expression {
        key: requirement.key.clone(),
        operator: requirement.operator.clone(),
        problem,
    })
}

#[cfg(test)]
mod tests;
