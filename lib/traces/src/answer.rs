//! What a receiver's answer means, as the specification of OTLP has it.

use std::time::{Duration, SystemTime};

use prost::Message;

use super::messages::{ExportTraceServiceResponse, RetryInfo, Status};

/// Codes of gRPC (google.rpc.Code) by which a request may be made again.
const RETRYABLE: [i32; 6] = [
    1,  // CANCELLED
    4,  // DEADLINE_EXCEEDED
    10, // ABORTED
    11, // OUT_OF_RANGE
    14, // UNAVAILABLE
    15, // DATA_LOSS
];

/// The one by which it may only where the receiver says when.
const RESOURCE_EXHAUSTED: i32 = 8;

/// The type of what says when.
const RETRY_INFO: &str = "google.rpc.RetryInfo";

/// How much of what a receiver says is passed on.
const MESSAGE_CHARACTERS: usize = 200;

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver took it, but for so many spans, which it will never take.
    Taken {
        /// How many spans it refused.
        rejected: u64,
    },
    /// The receiver took nothing, and never will.
    Refused,
    /// The receiver took nothing, and may later: not before this time, if it says so.
    TryAgain(Option<Duration>),
    /// Nothing was sent: there was no connection.
    Unsent,
    /// It was sent, at least in part, and nobody knows what became of it.
    Unanswered,
}

/// An answer, with what there is to tell people of it; nothing where all is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What came of it.
    pub outcome: Outcome,
    /// What the receiver said, or why it could not be asked.
    pub message: Option<String>,
}

impl Answer {
    /// That, and in words why.
    pub fn new(outcome: Outcome, message: impl Into<String>) -> Self {
        let message: String = message.into();
        // Whatever a receiver says stands in one line of a log.
        let message = message.chars().map(|letter| match letter.is_control() {
            true => ' ',
            false => letter,
        });
        let message: String = message.take(MESSAGE_CHARACTERS).collect();
        Self {
            outcome,
            message: (!message.is_empty()).then_some(message),
        }
    }
}

/// An answer over HTTP: its status, its body, and its header `Retry-After`.
pub fn of_http(status: u16, body: &[u8], retry_after: Option<&str>, now: SystemTime) -> Answer {
    match status {
        200..=299 => taken(body),
        429 | 502 | 503 | 504 => {
            let after = retry_after.and_then(|text| delay(text, now));
            Answer::new(Outcome::TryAgain(after), said(status, body))
        }
        _ => Answer::new(Outcome::Refused, said(status, body)),
    }
}

/// An answer over gRPC: its code, what it says, the details of its status, and its message without the frame.
pub fn of_grpc(code: i32, message: &str, details: &[u8], body: &[u8]) -> Answer {
    if code == 0 {
        return taken(body);
    }
    let after = retry_delay(details);
    let outcome = match (code, after) {
        (RESOURCE_EXHAUSTED, Some(_)) => Outcome::TryAgain(after),
        _ if RETRYABLE.contains(&code) => Outcome::TryAgain(after),
        _ => Outcome::Refused,
    };
    Answer::new(outcome, format!("gRPC status {code} {message}"))
}

fn taken(body: &[u8]) -> Answer {
    // One who took it and says nothing that can be read took it all the same.
    let response = ExportTraceServiceResponse::decode(body).unwrap_or_default();
    let partial = response.partial_success.unwrap_or_default();
    let rejected = u64::try_from(partial.rejected_spans).unwrap_or_default();
    Answer::new(Outcome::Taken { rejected }, partial.error_message)
}

/// What an answer that is no success says.
fn said(status: u16, body: &[u8]) -> String {
    let text = match Status::decode(body) {
        Ok(status) if !status.message.is_empty() => status.message,
        _ => String::from_utf8_lossy(&body[..body.len().min(MESSAGE_CHARACTERS)]).into_owned(),
    };
    format!("HTTP status {status} {text}")
        .trim_end()
        .to_string()
}

/// `Retry-After`: seconds, or a date.
fn delay(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

fn retry_delay(details: &[u8]) -> Option<Duration> {
    let status = Status::decode(details).ok()?;
    let info = status
        .details
        .iter()
        .find(|one| one.type_url.rsplit('/').next() == Some(RETRY_INFO))?;
    let delay = RetryInfo::decode(&info.value[..]).ok()?.retry_delay?;
    let seconds = u64::try_from(delay.seconds).ok()?;
    let nanos = u32::try_from(delay.nanos).ok()?;
    Duration::from_secs(seconds).checked_add(Duration::from_nanos(nanos.into()))
}

#[cfg(test)]
mod tests;
