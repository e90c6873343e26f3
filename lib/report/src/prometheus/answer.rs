//! What Prometheus answers to a range query, in its JSON.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A series: its labels, and its values by milliseconds since 1970. What is no number, or none that a metric of an agent can have, is not
/// there: a value that is stale is none either, by Prometheus' own doing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its values, in the order of their times.
    pub points: Vec<(u64, f64)>,
}

/// Why there is no answer.
#[derive(Debug, Eq, PartialEq, thiserror::Error)]
pub enum AnswerError {
    /// Prometheus says why.
    #[error("Prometheus refuses the query ({kind}): {message}")]
    Refused {
        /// Its word for it.
        kind: String,
        /// Its sentence.
        message: String,
    },
    /// It is none of Prometheus.
    #[error("what answers is no Prometheus, or nothing like its HTTP API: it says {0:?}")]
    Foreign(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    status: String,
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    error_type: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Data {
    #[serde(default)]
    result: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    #[serde(default)]
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

/// Reads an answer: the series, and what it warns of.
///
/// # Errors
///
/// When it is a refusal, or nothing that Prometheus says.
pub fn read(body: &[u8]) -> Result<(Vec<Series>, Vec<String>), AnswerError> {
    let foreign = || AnswerError::Foreign(excerpt(&String::from_utf8_lossy(body)));
    let envelope: Envelope = serde_json::from_slice(body).map_err(|_| foreign())?;
    let warnings = envelope.warnings.iter().map(|one| excerpt(one)).collect();
    match (envelope.status.as_str(), envelope.data) {
        ("success", Some(data)) => {
            Ok((data.result.into_iter().map(Series::of).collect(), warnings))
        }
        ("error", _) => Err(AnswerError::Refused {
            kind: excerpt(&envelope.error_type),
            message: excerpt(&envelope.error),
        }),
        _ => Err(foreign()),
    }
}

/// The beginning of what somebody else says. Nothing in it moves a cursor.
pub fn excerpt(text: &str) -> String {
    let shown = text.chars().map(|letter| match letter.is_control() {
        true => ' ',
        false => letter,
    });
    shown.take(300).collect::<String>().trim().to_owned()
}

impl Series {
    fn of(one: One) -> Self {
        let mut points: Vec<(u64, f64)> = one
            .values
            .iter()
            .filter_map(|(time, value)| Some((milliseconds(*time)?, number(value)?)))
            .collect();
        points.sort_by_key(|(time, _)| *time);
        points.dedup_by_key(|(time, _)| *time);
        Self {
            labels: one.metric,
            points,
        }
    }

    /// A label's value; empty where it has none, as Prometheus has it.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Seconds, as Prometheus writes times, in milliseconds.
fn milliseconds(seconds: f64) -> Option<u64> {
    let time = (seconds * 1000.0).round();
    (time.is_finite() && (0.0..1e15).contains(&time)).then_some(time as u64)
}

/// All that agents tell is zero or more; an error may be without bounds.
fn number(text: &str) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (number >= 0.0).then_some(number)
}
