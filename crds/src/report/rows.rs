//! Rows as they are written: one text. What a schema would say of them is looked at here.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serializer, de, ser};

use super::{MAX_PARTS, MAX_ROWS, RowReport};
use crate::{Figures, figures::MAX_MEASURES};

/// Writes them as the JSON of a list.
pub fn serialize<S: Serializer>(rows: &[RowReport], serializer: S) -> Result<S::Ok, S::Error> {
    let text = serde_json::to_string(rows).map_err(ser::Error::custom)?;
    serializer.serialize_str(&text)
}

/// Reads them. More than an agent ever writes is refused: who reads it would have to hold it.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<RowReport>, D::Error> {
    let text = Cow::<'de, str>::deserialize(deserializer)?;
    let rows: Vec<RowReport> = serde_json::from_str(&text).map_err(de::Error::custom)?;
    match excess(&rows) {
        Some(what) => Err(de::Error::custom(format_args!(
            "rowsJson has more {what} than a report may have"
        ))),
        None => Ok(rows),
    }
}

/// Of what there is too much, if anything. There is one more of rows and parts than are told apart: `other`.
fn excess(rows: &[RowReport]) -> Option<&'static str> {
    let most = |figures: &Figures| {
        let Figures {
            sums,
            maxima,
            levels,
            distributions,
            variances,
        } = figures;
        let lengths = [
            sums.len(),
            maxima.len(),
            levels.len(),
            distributions.len(),
            variances.len(),
        ];
        lengths.into_iter().max().unwrap_or_default()
    };
    let of_parts = rows.iter().flat_map(|row| &row.parts);
    let of_parts = of_parts.flat_map(|part| [&part.total, &part.window.figures]);
    let of_rows = rows
        .iter()
        .flat_map(|row| [&row.total, &row.window.figures]);
    let excesses = [
        (rows.len() > MAX_ROWS + 1, "rows"),
        (
            rows.iter().any(|row| row.parts.len() > MAX_PARTS + 1),
            "parts of a row",
        ),
        (
            of_rows.chain(of_parts).any(|one| most(one) > MAX_MEASURES),
            "measures",
        ),
    ];
    excesses
        .into_iter()
        .find_map(|(is_so, what)| is_so.then_some(what))
}
