//! Durations as Kubernetes users write them: `10s`, `500us`, `1m30s`.

use std::{borrow::Cow, fmt, time};

use kube::core::Duration as GoDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration of zero or more, written in the format of Go's `time.ParseDuration`.
///
/// The schema bounds its length only; each field that uses it carries a CEL rule which says in one
/// sentence what that field accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(time::Duration);

impl Duration {
    /// The duration as the standard library has it.
    pub const fn get(self) -> time::Duration {
        self.0
    }

    /// In whole nanoseconds, at most `u64::MAX` (584 years).
    pub fn as_nanos(self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

impl From<time::Duration> for Duration {
    fn from(duration: time::Duration) -> Self {
        Self(duration)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&GoDuration::from(self.0), f)
    }
}

impl std::str::FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // kube takes the empty text for zero; Go does not.
        if text.is_empty() {
            return Err(format!("{text:?} is no duration such as 10s or 500us"));
        }
        let parsed: GoDuration = text
            .parse()
            .map_err(|error| format!("{text:?} is no duration such as 10s or 500us: {error}"))?;
        if parsed.is_negative() {
            return Err(format!("{text:?} is negative"));
        }
        Ok(Self(parsed.into()))
    }
}

impl Serialize for Duration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        GoDuration::from(self.0).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Duration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "maxLength": 32 })
    }
}

#[cfg(test)]
mod tests;
