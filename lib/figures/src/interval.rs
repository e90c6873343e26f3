//! What a row counted in one report interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figures;

/// A row during one report interval.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IntervalFigures {
    /// The measured length of the interval in milliseconds.
    #[serde(default)]
    pub milliseconds: u64,
    /// For as large a part of these milliseconds calls were recorded as of the target's own time: fewer if they are sampled. 0: nothing is known of this interval.
    #[serde(default)]
    pub recorded_milliseconds: u64,
    /// How many calls were seen; the figures are scaled up from them.
    #[serde(default)]
    pub samples: u64,
    /// The figures of the interval.
    #[serde(default)]
    pub figures: Figures,
}
