//! Rules that many fields have: what the API server checks of a value, and the sentence with which it refuses one.

use kube::core::Rule;

/// A duration from `least` to `most`, in Go's notation.
pub fn duration(field: &str, least: &str, most: &str, such_as: &str) -> Rule {
    Rule::new(format!(
        "self.matches('^([0-9]+([.][0-9]+)?(ns|us|µs|ms|s|m|h))+$') && duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
    ))
    .message(
        format!("{field} must be a duration from {least} to {most}, such as {such_as}").as_str(),
    )
}

/// A name of what a number is the number of.
pub fn key_name(field: &str) -> Rule {
    Rule::new("self.matches('^[a-zA-Z0-9]([a-zA-Z0-9 ._-]*[a-zA-Z0-9])?$')").message(
        format!("{field} must be letters, digits, spaces, '.', '_' or '-', such as request")
            .as_str(),
    )
}

/// A number from 1 to `most`; the sentence may go on.
pub fn from_one(field: &str, most: u32, and: &str) -> Rule {
    Rule::new(format!("self >= 1 && self <= {most}"))
        .message(format!("{field} must be from 1 to {most}{and}").as_str())
}
