//! What a row counted in one report interval.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Figures;

/// A row during one report interval.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Its length in milliseconds, as measured.
    #[serde(default)]
    pub milliseconds: u64,
    /// In how many of them was recorded what happened: fewer where it is sampled. 0: nothing is known of this interval.
    #[serde(default)]
    pub recorded_milliseconds: u64,
    /// How much was seen; the figures are scaled up from it.
    #[serde(default)]
    pub samples: u64,
    /// What happened in it.
    #[serde(default)]
    pub figures: Figures,
}
