//! Spans as Zipkin writes them: its JSON, version 2, of one span or of an array of them, which a program may hand over as a text.
//!
//! <https://zipkin.io/zipkin-api/zipkin2-api.yaml>. The text is anybody's: it is taken whole or not at all, and what of it is to be read by people is
//! made fit for that. How long it may be is for whoever hands it over.

use std::borrow::Cow;

use ckb_probe_profiles::text::shown;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::{
    ids::{SpanId, TraceId},
    span::{Attributes, Moment, Span, SpanKind},
};

/// A text is none.
#[derive(Debug, thiserror::Error)]
pub enum ZipkinError {
    /// It is no JSON, or other JSON.
    #[error("it is no span, and no array of spans, of Zipkin's JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A number of a trace or a span.
    #[error(
        "{0} is no number of a trace or a span: it has up to 32, or 16, digits of lower-case hexadecimal, not all of them zeros"
    )]
    Number(&'static str),
    /// A time.
    #[error("a time is after the year 2554")]
    Time,
}

/// A span as it is written. What else stands there is passed over.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    trace_id: String,
    id: String,
    parent_id: Option<String>,
    name: Option<String>,
    kind: Option<Kind>,
    /// Microseconds since 1970.
    timestamp: Option<u64>,
    /// Microseconds.
    duration: Option<u64>,
    local_endpoint: Option<Endpoint>,
    remote_endpoint: Option<Endpoint>,
    annotations: Option<Vec<Annotation>>,
    tags: Option<Map<String, Json>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Kind {
    Client,
    Server,
    Producer,
    Consumer,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    service_name: Option<String>,
    ipv4: Option<String>,
    ipv6: Option<String>,
    port: Option<u16>,
}

#[derive(Deserialize)]
struct Annotation {
    timestamp: u64,
    value: String,
}

/// The spans of a text that was handed over at this time, in nanoseconds since 1970: one that does not say when it was ended then.
pub fn read(text: &[u8], now_ns: u64) -> Result<Vec<Span>, ZipkinError> {
    let first = text.iter().find(|byte| !byte.is_ascii_whitespace());
    let all: Vec<Written> = match first {
        Some(b'[') => serde_json::from_slice(text)?,
        _ => vec![serde_json::from_slice(text)?],
    };
    all.into_iter().map(|one| one.span(now_ns)).collect()
}

impl Written {
    fn span(self, now_ns: u64) -> Result<Span, ZipkinError> {
        let id = number(&self.id).ok_or(ZipkinError::Number("id"))?;
        let trace = number(&self.trace_id).ok_or(ZipkinError::Number("traceId"))?;
        let parent = self.parent_id.as_deref().map(number);
        let parent = match parent {
            // As Zipkin has it, a span is not its own parent.
            Some(Some(parent)) if parent == id => None,
            Some(Some(parent)) => Some(SpanId::from_bytes(parent)),
            Some(None) => return Err(ZipkinError::Number("parentId")),
            None => None,
        };
        let length = nanoseconds(self.duration.unwrap_or_default())?;
        // Zipkin has 0 for what is not known.
        let start_ns = match self.timestamp.filter(|time| *time > 0) {
            Some(time) => nanoseconds(time)?,
            None => now_ns.saturating_sub(length),
        };
        let events = self.annotations.unwrap_or_default().into_iter();
        let events = events.map(|one| {
            Ok(Moment {
                time_ns: nanoseconds(one.timestamp)?,
                name: clean(&one.value),
            })
        });
        let mut attributes = Attributes::new();
        if let Some(local) = &self.local_endpoint {
            local.tell("ckb_probe.service", "network.local", &mut attributes);
        }
        if let Some(remote) = &self.remote_endpoint {
            remote.tell("peer.service", "network.peer", &mut attributes);
        }
        for (name, value) in self.tags.unwrap_or_default() {
            let value = match value {
                Json::String(text) => text,
                // Zipkin has texts alone; programs write numbers.
                other => other.to_string(),
            };
            tag(&clean(&name), clean(&value), &mut attributes);
        }
        Ok(Span {
            trace: TraceId::from_bytes(trace),
            id: SpanId::from_bytes(id),
            parent,
            name: clean(&self.name.unwrap_or_default()),
            kind: self.kind.map_or(SpanKind::Internal, SpanKind::from),
            start_ns,
            end_ns: start_ns.checked_add(length).ok_or(ZipkinError::Time)?,
            attributes,
            events: events.collect::<Result<_, ZipkinError>>()?,
        })
    }
}

impl Endpoint {
    fn tell(&self, service: &'static str, place: &str, attributes: &mut Attributes) {
        let given =
            |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(clean);
        if let Some(name) = given(&self.service_name) {
            attributes.push((service.into(), name.into()));
        }
        if let Some(address) = given(&self.ipv4).or_else(|| given(&self.ipv6)) {
            attributes.push((format!("{place}.address").into(), address.into()));
        }
        if let Some(port) = self.port.filter(|port| *port > 0) {
            attributes.push((format!("{place}.port").into(), u64::from(port).into()));
        }
    }
}

/// Adds a tag. A name stands once, and those that we have something to say by are ours: another's is told below `tag.`.
fn tag(name: &str, value: String, attributes: &mut Attributes) {
    let is_ours = name.starts_with("ckb_probe.") || name.starts_with("thread.");
    let mut name = match is_ours {
        true => format!("tag.{name}"),
        false => name.to_string(),
    };
    while attributes.iter().any(|(known, _)| *known == name) {
        name.insert_str(0, "tag.");
    }
    attributes.push((Cow::Owned(name), value.into()));
}

/// So many bytes, of which zeros at the beginning may be left out.
fn number<const BYTES: usize>(digits: &str) -> Option<[u8; BYTES]> {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if digits.is_empty() || digits.len() > 2 * BYTES || !digits.bytes().all(is_digit) {
        return None;
    }
    let number = u128::from_str_radix(digits, 16)
        .ok()
        .filter(|number| *number > 0)?;
    number.to_be_bytes().last_chunk().copied()
}

fn nanoseconds(micros: u64) -> Result<u64, ZipkinError> {
    micros.checked_mul(1000).ok_or(ZipkinError::Time)
}

/// As it can be shown.
fn clean(text: &str) -> String {
    text.chars().map(shown).collect()
}

impl From<Kind> for SpanKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Client => Self::Client,
            Kind::Server => Self::Server,
            Kind::Producer => Self::Producer,
            Kind::Consumer => Self::Consumer,
        }
    }
}

#[cfg(test)]
mod tests;
