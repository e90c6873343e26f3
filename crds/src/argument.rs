//! What arguments of functions and of probes are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of an argument.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
pub enum Argument {
    /// A number or a pointer, shown as a signed number: of 32 bits if it fits.
    #[default]
    Integer,
    /// A pointer to a string that ends with NUL. Its first 47 bytes are shown, as they are when the call returns.
    String,
}

impl std::str::FromStr for Argument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "integer" | "int" => Ok(Self::Integer),
            "string" | "str" => Ok(Self::String),
            _ => Err(format!(
                "no argument {text:?}; there are integer and string"
            )),
        }
    }
}
